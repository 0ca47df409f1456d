//! Messages for the hook `message`, and the rewriting of their parts.

use annex_protocol::{Message, Part, portable};

use crate::chain::owned_metadata;
use crate::contract::Rewrite;
use crate::load::descriptor::Descriptor;

/// The message as JSON, with `parts` as its parts, and without metadata of other extensions.
pub(crate) fn shown(message: &Message, parts: &[Part], descriptor: &Descriptor) -> String {
    let mut shown = Message { parts: parts.to_vec().into(), ..message.clone() };
    owned_metadata::retain_in_message(&mut shown, &descriptor.metadata_keys);
    serde_json::to_string(&shown).unwrap_or_default()
}

/// Replaces parts of a message. Each entry of `rewrites` has the index of a part and its replacement.
///
/// # Errors
/// - A rewrite has the index of a missing part, or of a part that another rewrite replaces.
/// - A replacement is not a part.
/// - A replacement has metadata that neither belongs to the extension nor was on the replaced part.
/// - The message would have no parts.
pub(crate) fn rewrite(parts: &[Part], rewrites: Vec<Rewrite>, keys: &[String]) -> Result<Vec<Part>, String> {
    // Rewrites refer to parts by their index in the original message, so all are collected before any is applied.
    let mut replaced: Vec<Option<Vec<Part>>> = vec![None; parts.len()];
    for Rewrite { part, replacement } in rewrites {
        let place = usize::try_from(part).ok().and_then(|place| replaced.get_mut(place));
        let place =
            place.ok_or_else(|| format!("it rewrites the part {part} of a message of {} parts", parts.len()))?;
        let read: Result<Vec<Part>, String> = replacement.iter().map(|json| read_part(json)).collect();
        let read = read.map_err(|error| format!("the replacement of part {part} is not a Part: {error}"))?;
        check_metadata(parts.get(part as usize), &read, keys)?;
        if place.replace(read).is_some() {
            return Err(format!("it rewrites the part {part} twice"));
        }
    }
    let kept = |(part, replaced): (&Part, Option<Vec<Part>>)| replaced.unwrap_or_else(|| vec![part.clone()]);
    let rewritten: Vec<Part> = parts.iter().zip(replaced).flat_map(kept).collect();
    // A message has at least one part (A2A 1.0 section 4.1.4).
    if rewritten.is_empty() { Err("it leaves no part in the message".to_owned()) } else { Ok(rewritten) }
}

fn read_part(json: &str) -> Result<Part, String> {
    let part: Part = serde_json::from_str(json).map_err(|error| error.to_string())?;
    // Deserializing a part silently repairs JSON that not every client can read. The author of the extension gets an
    // error instead.
    portable::check(json).map_err(|unportable| unportable.to_string())?;
    if part.content.is_readable() { Ok(part) } else { Err("`raw` is not base64".to_owned()) }
}

/// Checks the metadata of replacements. A replacement may keep an entry of another extension, but not add or change
/// one.
fn check_metadata(replaced: Option<&Part>, replacement: &[Part], keys: &[String]) -> Result<(), String> {
    for (key, value) in replacement.iter().flat_map(|part| part.metadata.iter()) {
        // Compared as text: 1 and 1.0 are equal numbers, but replacing one by the other would change data of another
        // owner.
        let was_there = replaced.is_some_and(|part| part.metadata.get(key).is_some_and(|old| old.get() == value.get()));
        if !was_there && !keys.iter().any(|own| own == key) {
            return Err(format!("it writes metadata[{key:?}] of a part, which it does not own"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use annex_protocol::Part;

    use super::{Rewrite, rewrite};

    fn check(rewrites: &[(u32, &[&str])], expected: &str) {
        let mut parts = [Part::text("a"), Part::text("b")];
        parts[1].metadata = annex_protocol::Metadata::parse(r#"{"other":1}"#).expect("an object");
        let own = |(part, replacement): &(u32, &[&str])| Rewrite {
            part: *part,
            replacement: replacement.iter().map(|part| (*part).to_owned()).collect(),
        };
        let keys = ["own".to_owned()];
        let rewritten = match rewrite(&parts, rewrites.iter().map(own).collect(), &keys) {
            Ok(parts) => serde_json::to_string(&parts).expect("parts are JSON"),
            Err(reason) => reason,
        };
        assert!(rewritten.contains(expected), "{rewritten}");
    }

    #[test]
    fn rewritten_parts_are_replaced_and_other_parts_stay() {
        check(&[], r#"[{"text":"a"},{"text":"b","metadata":{"other":1}}]"#);
        check(&[(1, &[r#"{"data":1.0}"#, r#"{"text":"c"}"#])], r#"[{"text":"a"},{"data":1.0},{"text":"c"}]"#);
        check(&[(0, &[])], r#"[{"text":"b","metadata":{"other":1}}]"#);
    }

    #[test]
    fn metadata_of_a_replacement_is_the_extensions_own_or_unchanged() {
        check(&[(0, &[r#"{"text":"c","metadata":{"own":1}}"#])], r#"{"text":"c","metadata":{"own":1}}"#);
        check(&[(1, &[r#"{"text":"c","metadata":{"other":1}}"#])], r#"{"text":"c","metadata":{"other":1}}"#);
        check(&[(1, &[r#"{"text":"c","metadata":{"other":2}}"#])], "does not own");
        check(&[(0, &[r#"{"text":"c","metadata":{"other":1}}"#])], "does not own");
    }

    #[test]
    fn a_rewriting_that_makes_no_message_is_refused() {
        check(&[(2, &[])], "the part 2 of a message of 2 parts");
        check(&[(0, &[]), (0, &[])], "the part 0 twice");
        check(&[(0, &["{}"])], "is not a Part");
        check(&[(0, &["x"])], "is not a Part");
        check(&[(0, &[r#"{"raw":"no base64!"}"#])], "is not a Part: `raw` is not base64");
        check(&[(0, &[r#"{"data":["\ud800"]}"#])], "data[0]: the text has half of a surrogate pair");
        check(&[(0, &[r#"{"text":"c","metadata":{"own":1e999}}"#])], "metadata.own: the number is beyond the range");
        check(&[(0, &[]), (1, &[])], "no part");
    }
}
