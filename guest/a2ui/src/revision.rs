//! The hook `output`: refuses content with A2UI that does not fit, or drops what does not fit.

use annex_sdk::{Json, Place, Replacement, Verdict, Violation, json, log};
use serde_json::Value;

use crate::outgoing::Judge;
use crate::parameters::Invalid;
use crate::parts::{self, UiPart};

/// States of which the host does not let an extension refuse the content.
const ENDS: [&str; 3] = ["TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"];
/// Why metadata of others goes with a dropped part.
const DROPPED: &str = "the A2UI of the part does not fit";

/// The verdict on content at `place` with these parts of A2UI, and whether A2UI goes out.
///
/// # Errors
/// The host's store is not available.
pub fn revise(
    judge: &mut Judge<'_>,
    invalid: Invalid,
    place: &Place,
    parts: &[UiPart<'_>],
) -> Result<(Verdict, bool), String> {
    let drops = invalid == Invalid::Drop || matches!(place, Place::Status(state) if ENDS.contains(&state.as_str()));
    let mut replacements = Vec::new();
    let mut is_left = false;
    for part in parts {
        let found = PartCheck::of(judge, part)?;
        let Some(first) = found.wrong.first() else {
            is_left = true;
            continue;
        };
        let reason = format!(
            "the A2UI of part {} of the answer does not fit at {}: {}",
            part.index, first.pointer, first.message
        );
        if !drops {
            judge.surfaces.forget();
            return Ok((Verdict::Refuse(reason), false));
        }
        log::warn(&format!("dropped: {reason}"));
        let kept = if found.fitting.is_empty() { Vec::new() } else { vec![with_data(part, &found.fitting)?] };
        is_left |= !kept.is_empty();
        let index = u32::try_from(part.index).map_err(|error| error.to_string())?;
        let dropped = kept.is_empty().then(|| DROPPED.to_owned());
        replacements.push(Replacement { part: index, parts: kept, dropped });
    }
    if let Err(reason) = judge.surfaces.commit() {
        return Ok((Verdict::Refuse(format!("the surfaces of the answer cannot be noted: {reason}")), false));
    }
    Ok((if replacements.is_empty() { Verdict::Leave } else { Verdict::Replace(replacements) }, is_left))
}

/// The messages of a part that fit, and the violations of the others.
struct PartCheck<'p> {
    fitting: Vec<&'p Value>,
    wrong: Vec<Violation>,
}

impl<'p> PartCheck<'p> {
    fn of(judge: &mut Judge<'_>, part: &'p UiPart<'_>) -> Result<Self, String> {
        let mut found = Self { fitting: Vec::new(), wrong: Vec::new() };
        let messages = match parts::messages(part.data.as_ref()) {
            Ok(messages) => messages,
            Err(violation) => {
                found.wrong.push(violation);
                return Ok(found);
            }
        };
        for (message, at) in messages {
            let wrong = judge.violations(message, &at)?;
            if wrong.is_empty() {
                found.fitting.push(message);
            }
            found.wrong.extend(wrong);
        }
        Ok(found)
    }
}

/// The part with these messages. Its other members stay as they were sent.
fn with_data(part: &UiPart<'_>, messages: &[&Value]) -> Result<Json, String> {
    let data = json::text(messages)?;
    let members = part.members.iter().map(|(key, value)| {
        let value = if key == "data" { data.as_str() } else { value };
        format!("{}:{value}", json::string(key))
    });
    Ok(format!("{{{}}}", members.collect::<Vec<_>>().join(",")))
}
