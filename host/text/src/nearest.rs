//! Suggestions for misspelled names.

use strsim::osa_distance;

/// The longest name that is compared, in bytes. The time for a comparison grows with the square of the length.
const MAX_NAME: usize = 64;

/// The suggestion for a misspelled name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nearest<'a> {
    /// The accepted name that is suggested.
    pub name: &'a str,
    /// True if one or two typing errors explain the difference between both names.
    pub is_sure: bool,
}

/// The accepted name that is most similar to `name`; `None` if no accepted name is similar enough.
#[must_use]
pub fn nearest<'a>(name: &str, accepted: impl IntoIterator<Item = &'a str>) -> Option<Nearest<'a>> {
    if name.len() > MAX_NAME {
        return None;
    }
    let lower = name.to_lowercase();
    let by_distance = accepted.into_iter().filter(|other| other.len() <= MAX_NAME);
    let by_distance = by_distance.map(|other| (osa_distance(&lower, &other.to_lowercase()), other));
    let (distance, nearest) = by_distance.min()?;
    let length = name.chars().count().max(nearest.chars().count());
    let is_near = distance <= (length / 2).max(1) && distance < length;
    is_near.then_some(Nearest { name: nearest, is_sure: distance <= 2 && distance * 3 <= length })
}

/// Returns a suffix for the error message about the unknown `name`, such as ``; did you mean `a`? it takes `a`, `b` ``.
/// The suffix suggests a similar name if there is one. It lists the accepted names if there are any. `takes` is the
/// text before the list, such as `it takes`.
#[must_use]
pub fn instead<S: AsRef<str>>(name: &str, accepted: &[S], takes: &str) -> String {
    let meant = nearest(name, accepted.iter().map(AsRef::as_ref));
    let mut text = meant.map(|meant| format!("; did you mean `{}`?", meant.name)).unwrap_or_default();
    if !accepted.is_empty() {
        let names: Vec<String> = accepted.iter().map(|name| format!("`{}`", name.as_ref())).collect();
        text.push_str(if text.is_empty() { "; " } else { " " });
        text.push_str(&format!("{takes} {}", names.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{instead, nearest};

    #[test]
    fn similar_names_are_suggested_and_others_are_not() {
        let keys = ["listen", "allow_anonymous", "max_connections", "drain_seconds"];
        for (typo, expected) in [
            ("listn", Some(("listen", true))),
            ("Listen", Some(("listen", true))),
            ("listen_on", Some(("listen", false))),
            ("max_conections", Some(("max_connections", true))),
            ("drain_secs", Some(("drain_seconds", false))),
            ("port", None),
            ("x", None),
            (&"listen".repeat(100), None),
        ] {
            assert_eq!(nearest(typo, keys).map(|meant| (meant.name, meant.is_sure)), expected, "{typo}");
        }
        assert_eq!(nearest("ab", ["xy"]), None);
        assert_eq!(nearest("ab", []), None);
    }

    #[test]
    fn accepted_names_follow_the_suggestion() {
        assert_eq!(instead("lst", &["list", "b"], "it takes"), "; did you mean `list`? it takes `list`, `b`");
        assert_eq!(instead("other", &["list", "b"], "it takes"), "; it takes `list`, `b`");
        assert_eq!(instead::<&str>("other", &[], "it takes"), "");
    }
}
