//! Prepares messages for the hook `message`, and rewrites parts of messages.

use std::collections::HashMap;

use annex_protocol::{Message, Part, portable};
use serde_json::Value;

use crate::chain::owned_metadata;
use crate::contract::{Replacement, Rewrite};
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
        let mut read = replacements_of(part, &replacement)?;
        keep_metadata(parts.get(part as usize), &mut read, keys)?;
        if place.replace(read).is_some() {
            return Err(format!("it rewrites the part {part} twice"));
        }
    }
    let kept = |(part, replaced): (&Part, Option<Vec<Part>>)| replaced.unwrap_or_else(|| vec![part.clone()]);
    let rewritten: Vec<Part> = parts.iter().zip(replaced).flat_map(kept).collect();
    // A message has at least one part (A2A 1.0 section 4.1.4).
    if rewritten.is_empty() { Err("it leaves no part in the message".to_owned()) } else { Ok(rewritten) }
}

/// The reasons for which metadata of others is left out, with the index of the part.
pub(crate) type Dropped = Vec<(u32, String)>;

/// Replaces parts of outgoing content, and adds parts at its end. Each entry of `replacements` has the index of a part, or
/// the number of parts for the end.
///
/// # Errors
/// - A replacement has an index beyond the end, or the index of another replacement.
/// - A new part is not a part.
/// - A new part has metadata that neither belongs to the extension nor was on the replaced part.
/// - Metadata of others that was on the replaced part is on none of the new parts, and the replacement has no reason.
pub(crate) fn revise(
    parts: &[Part],
    replacements: Vec<Replacement>,
    keys: &[String],
) -> Result<(Vec<Part>, Dropped), String> {
    // One place more than there are parts, for the end.
    let mut replaced: Vec<Option<Vec<Part>>> = vec![None; parts.len() + 1];
    let mut reasons = Dropped::new();
    for Replacement { part, parts: new, dropped } in replacements {
        let place = usize::try_from(part).ok().and_then(|place| replaced.get_mut(place));
        let place =
            place.ok_or_else(|| format!("it replaces the part {part} of content that has {} parts", parts.len()))?;
        let mut read = replacements_of(part, &new)?;
        let old = parts.get(part as usize);
        keep_metadata(old, &mut read, keys)?;
        match dropped {
            Some(reason) => reasons.push((part, reason)),
            None => check_kept(old, &read, keys)?,
        }
        if place.replace(read).is_some() {
            return Err(format!("it replaces the part {part} twice"));
        }
    }
    let old = parts.iter().map(Some).chain([None]);
    let left = |(part, replaced): (Option<&Part>, Option<Vec<Part>>)| {
        replaced.unwrap_or_else(|| part.cloned().into_iter().collect())
    };
    Ok((old.zip(replaced).flat_map(left).collect(), reasons))
}

/// Reads the parts of an answer. Their metadata must belong to the extension.
///
/// # Errors
/// There is no part, a part is not a part, or a part has metadata of others.
pub(crate) fn new_parts(parts: &[String], keys: &[String]) -> Result<Vec<Part>, String> {
    if parts.is_empty() {
        return Err("it answers without a part".to_owned());
    }
    let read = |(place, json): (usize, &String)| {
        read_part(json).map_err(|error| format!("part {place} of its answer is not a Part: {error}"))
    };
    let mut read: Vec<Part> = parts.iter().enumerate().map(read).collect::<Result<_, _>>()?;
    keep_metadata(None, &mut read, keys)?;
    Ok(read)
}

fn replacements_of(part: u32, replacement: &[String]) -> Result<Vec<Part>, String> {
    let read: Result<Vec<Part>, String> = replacement.iter().map(|json| read_part(json)).collect();
    read.map_err(|error| format!("the replacement of part {part} is not a Part: {error}"))
}

fn read_part(json: &str) -> Result<Part, String> {
    let part: Part = serde_json::from_str(json).map_err(|error| error.to_string())?;
    // Deserializing a part silently repairs JSON that not every client can read. The author of the extension gets an
    // error instead.
    portable::check(json).map_err(|unportable| unportable.to_string())?;
    if part.content.is_readable() { Ok(part) } else { Err("`raw` is not base64".to_owned()) }
}

/// Checks the metadata of replacements. A replacement may keep an entry of another extension, but not add or change one.
///
/// A kept entry gets its old text back. An extension that parses and prints JSON may write `1.0` as `1`, which would change
/// data of another owner. Only the first new part with a rewritten entry gets the old text, because the old text can be
/// much longer than the new one, and there can be thousands of new parts.
fn keep_metadata(replaced: Option<&Part>, replacement: &mut [Part], keys: &[String]) -> Result<(), String> {
    // Each value is parsed once, also if thousands of new parts have it.
    let mut parsed: HashMap<String, Option<Value>> = HashMap::new();
    for part in replacement {
        let others = part.metadata.keys().filter(|key| !keys.iter().any(|own| own == key));
        let others: Vec<String> = others.map(str::to_owned).collect();
        for key in others {
            let not_owned = || format!("it writes metadata[{key:?}] of a part, which it does not own");
            let old = replaced.and_then(|part| part.metadata.get(&key)).ok_or_else(not_owned)?;
            let Some(new) = part.metadata.get(&key).filter(|new| *new != old) else { continue };
            let is_first = !parsed.contains_key(&key);
            let value = parsed.entry(key.clone()).or_insert_with(|| old.to().ok());
            if !matches!((value, new.to()), (Some(old), Ok(new)) if is_equal(old, &new)) {
                return Err(not_owned());
            }
            if is_first {
                part.metadata.insert(key, old.clone());
            }
        }
    }
    Ok(())
}

/// Compares numbers as doubles, because many languages have no other numbers.
fn is_equal(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Number(old), Value::Number(new)) => old.as_f64() == new.as_f64(),
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_equal(old, new))
        }
        (Value::Object(old), Value::Object(new)) => {
            let is_in_new = |(key, old): (&String, &Value)| new.get(key).is_some_and(|new| is_equal(old, new));
            old.len() == new.len() && old.iter().all(is_in_new)
        }
        (old, new) => old == new,
    }
}

/// Checks that metadata of others on the replaced part is on one of the new parts.
fn check_kept(replaced: Option<&Part>, new: &[Part], keys: &[String]) -> Result<(), String> {
    let entries = replaced.iter().flat_map(|part| part.metadata.iter());
    for (key, _) in entries.filter(|(key, _)| !keys.iter().any(|own| own == key)) {
        // A new part with the key has the same value.
        if !new.iter().any(|part| part.metadata.contains_key(key)) {
            return Err(format!("it leaves out metadata[{key:?}] of a part, which it does not own, without a reason"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use annex_protocol::Part;

    use super::{Replacement, Rewrite, new_parts, revise, rewrite};

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
    fn metadata_of_others_that_is_written_in_another_way_gets_its_old_text_back() {
        let old = r#"{"n":[1.0,9007199254740993],"\u00fc":"\u0041/","o":{"a":null,"b":true}}"#;
        let mut part = Part::text("a");
        part.metadata = annex_protocol::Metadata::parse(&format!(r#"{{"other":{old}}}"#)).expect("an object");
        for (new, is_kept) in [
            (r#"{"o": {"b": true, "a": null}, "n": [1, 9007199254740992], "ü": "A\/"}"#, true),
            (r#"{"n":[1.5,9007199254740993],"ü":"A/","o":{"a":null,"b":true}}"#, false),
            (r#"{"n":[1],"ü":"A/","o":{"a":null,"b":true}}"#, false),
            (r#"{"n":[1,9007199254740993],"ü":"A/","o":{"a":null,"c":true}}"#, false),
            (r#"{"n":[1,9007199254740993],"ü":"A/"}"#, false),
        ] {
            let replacement = vec![format!(r#"{{"text":"c","metadata":{{"other":{new}}}}}"#)];
            let rewritten = rewrite(std::slice::from_ref(&part), vec![Rewrite { part: 0, replacement }], &[]);
            match rewritten {
                Ok(parts) => assert!(is_kept && parts[0].metadata == part.metadata, "{new}: {parts:?}"),
                Err(reason) => assert!(!is_kept && reason.contains("does not own"), "{new}: {reason}"),
            }
        }
    }

    #[test]
    fn old_text_of_metadata_that_many_new_parts_have_comes_back_once() {
        let mut part = Part::text("a");
        let old = format!("[{}]", " ".repeat(1000));
        part.metadata = annex_protocol::Metadata::parse(&format!(r#"{{"other":{old}}}"#)).expect("an object");
        let replacement = vec![r#"{"text":"c","metadata":{"other":[]}}"#.to_owned(); 100];
        let rewritten = rewrite(std::slice::from_ref(&part), vec![Rewrite { part: 0, replacement }], &[]);
        let json = serde_json::to_string(&rewritten.expect("parts")).expect("parts are JSON");
        assert!((1000..10_000).contains(&json.len()), "{}", json.len());
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

    fn check_revision(replacements: &[(u32, &[&str], Option<&str>)], expected: &str) {
        let mut parts = [Part::text("a"), Part::text("b")];
        parts[1].metadata = annex_protocol::Metadata::parse(r#"{"other":1,"own":2}"#).expect("an object");
        let given = |(part, parts, dropped): &(u32, &[&str], Option<&str>)| Replacement {
            part: *part,
            parts: parts.iter().map(|part| (*part).to_owned()).collect(),
            dropped: dropped.map(str::to_owned),
        };
        let keys = ["own".to_owned()];
        let revised = match revise(&parts, replacements.iter().map(given).collect(), &keys) {
            Ok((parts, dropped)) => format!("{} {dropped:?}", serde_json::to_string(&parts).expect("parts are JSON")),
            Err(reason) => reason,
        };
        assert!(revised.contains(expected), "{revised}");
    }

    #[test]
    fn revised_parts_are_replaced_removed_or_added() {
        let b = r#"{"text":"b","metadata":{"other":1,"own":2}}"#;
        check_revision(&[(0, &[], None)], &format!("[{b}] []"));
        check_revision(&[(2, &[r#"{"text":"c"}"#], None)], &format!(r#"[{{"text":"a"}},{b},{{"text":"c"}}] []"#));
        check_revision(&[(3, &[], None)], "the part 3 of content that has 2 parts");
        check_revision(&[(2, &[], None), (2, &[], None)], "the part 2 twice");
        check_revision(&[(0, &["{}"], None)], "is not a Part");
    }

    #[test]
    fn a_revision_keeps_metadata_of_others_or_says_why_not() {
        check_revision(
            &[(1, &[r#"{"text":"c"}"#], None)],
            r#"metadata["other"] of a part, which it does not own, without"#,
        );
        check_revision(&[(1, &[], None)], "without a reason");
        check_revision(
            &[(1, &[r#"{"text":"c","metadata":{"other":1}}"#], None)],
            r#"{"text":"c","metadata":{"other":1}}"#,
        );
        check_revision(&[(1, &[r#"{"text":"c","metadata":{"other":2}}"#], Some("x"))], "does not own");
        check_revision(&[(1, &[r#"{"text":"c"}"#], Some("secret"))], r#"[{"text":"a"},{"text":"c"}] [(1, "secret")]"#);
    }

    #[test]
    fn an_answer_has_parts_without_metadata_of_others() {
        let keys = ["own".to_owned()];
        let check = |parts: &[&str]| new_parts(&parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>(), &keys);
        assert!(check(&[r#"{"text":"c","metadata":{"own":1}}"#]).is_ok());
        for (parts, expected) in [
            (&[][..], "without a part"),
            (&[r#"{"text":"c"}"#, "{}"][..], "part 1 of its answer is not a Part"),
            (&[r#"{"text":"c","metadata":{"other":1}}"#][..], "does not own"),
        ] {
            let reason = check(parts).expect_err("a wrong answer");
            assert!(reason.contains(expected), "{reason}");
        }
    }
}
