//! Comparison with a turn in which values are hidden. A hidden value is unknown, so it is neither equal nor
//! different.

use serde_json::Value;

use crate::observation::log::HIDDEN as HIDDEN_SECRET;
use crate::recording::RecordedTurn;
use crate::recording::host_call::{HostCall, Octets};
use crate::recording::redaction::HIDDEN;
use crate::recording::step::StepResult;

/// The texts that replace hidden values.
const MARKS: [&str; 2] = [HIDDEN, HIDDEN_SECRET];

impl RecordedTurn {
    /// True if values in the extension's input are hidden. The result of the replayed turn may differ because of that.
    #[must_use]
    pub fn hides_what_was_given(&self) -> bool {
        let mut given = self.clone();
        for step in &mut given.steps {
            step.result = StepResult::Inactive;
            // The extension's own output is not its input.
            step.calls.retain(|call| !matches!(call, HostCall::Set { .. } | HostCall::TaskMetadata { .. }));
            for call in &mut step.calls {
                if let HostCall::Http { request, body, .. } = call {
                    (*request, *body) = (String::new(), Octets::Text(String::new()));
                }
            }
        }
        serde_json::to_string(&given).is_ok_and(|text| MARKS.iter().any(|mark| text.contains(mark)))
    }
}

/// True if the values are equal apart from hidden ones in `was`. Adds the number of hidden values to `hidden`.
pub(super) fn agrees(was: &Value, is: &Value, hidden: &mut u64) -> bool {
    match (was, is) {
        (Value::String(was), _) if was == HIDDEN => {
            *hidden += 1;
            true
        }
        (Value::String(was), Value::String(is)) => was == is || fits(was, is, hidden),
        (Value::Array(was), Value::Array(is)) => {
            was.len() == is.len() && was.iter().zip(is).all(|(was, is)| agrees(was, is, hidden))
        }
        (Value::Object(was), Value::Object(is)) => {
            let agrees = |(key, was): (&String, &Value)| is.get(key).is_some_and(|is| agrees(was, is, hidden));
            was.len() == is.len() && was.iter().all(agrees)
        }
        _ => was == is,
    }
}

/// True if `is` contains the visible parts of `was`, in their order.
fn fits(was: &str, is: &str, hidden: &mut u64) -> bool {
    let marked = MARKS.iter().fold(was.to_owned(), |text, mark| text.replace(mark, HIDDEN));
    let Some((first, after)) = marked.split_once(HIDDEN) else { return false };
    let (between, last) = after.rsplit_once(HIDDEN).map_or((None, after), |(between, last)| (Some(between), last));
    let inner = is.strip_prefix(first).and_then(|rest| rest.strip_suffix(last));
    let Some(mut rest) = inner else { return false };
    let mut marks = 1;
    for part in between.into_iter().flat_map(|between| between.split(HIDDEN)) {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
        marks += 1;
    }
    *hidden += marks;
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::agrees;

    #[test]
    fn hidden_values_are_not_compared_and_all_others_are() {
        for (was, is, expected) in [
            (json!({"a": 1, "pin": "[hidden]"}), json!({"a": 1, "pin": 4711}), Some(1)),
            (json!({"a": 1, "pin": "[hidden]"}), json!({"a": 2, "pin": 4711}), None),
            (json!({"pin": "[hidden]"}), json!({}), None),
            (json!(["[hidden]", "[hidden]"]), json!([{"any": "thing"}, null]), Some(2)),
            (json!(r#"{"a":1,"pin":"[hidden]"}"#), json!(r#"{"a":1,"pin":"4711"}"#), Some(1)),
            (json!("key=(secret)&n=1&token=[hidden]"), json!("key=k&n=1&token=t"), Some(2)),
            (json!("key=(secret)&n=1&token=[hidden]"), json!("key=k&n=2&token=t"), None),
            (json!("key=(secret)"), json!("token=x"), None),
            (json!("same"), json!("same"), Some(0)),
            (json!("same"), json!("other"), None),
        ] {
            let mut hidden = 0;
            let found = agrees(&was, &is, &mut hidden).then_some(hidden);
            assert_eq!(found, expected, "{was} {is}");
        }
    }
}
