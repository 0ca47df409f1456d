//! Decides which schemas are admitted: walks a schema, refuses keywords whose work has no bound, and counts the cost of
//! all other keywords.
//!
//! The known keywords are those of JSON Schema up to 2020-12. The validator ignores unknown keywords, and so does the
//! measurement.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::cost::Cost;
use crate::pattern::automaton_bytes;

/// Maximum number of parts of a schema in which every `$ref` is replaced by its target.
const MAX_PARTS: u64 = 10_000;
/// Maximum number of nesting levels of a schema in which every `$ref` is replaced by its target. The limit protects the
/// stack, because the validator recurses.
const MAX_HEIGHT: u64 = 100;
/// Maximum size of a compiled schema, in bytes.
const MAX_WEIGHT: u64 = 8 << 20;
/// Maximum size of the automata of all distinct patterns, in bytes.
const MAX_AUTOMATA: u64 = 512 << 10;
/// Maximum size of the text of all distinct patterns, in bytes.
const MAX_PATTERN_TEXT: usize = 8 << 10;

/// The latest supported draft. All supported drafts are in [`DRAFTS`].
const LATEST_DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";
const DRAFTS: [&str; 5] = [
    LATEST_DRAFT,
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-04/schema",
];

/// The kind of work that a keyword does.
enum Keyword {
    /// Has no effect on validation.
    Annotation,
    /// Checks one value.
    Value,
    /// Counts or reads the characters of a string.
    Text,
    /// Decodes a string.
    Format,
    Pattern,
    /// Compares the value with literals.
    Literal,
    /// Looks members up by name.
    Names,
    Unique,
    /// Contains one schema, or a list of schemas.
    Schema,
    /// Contains an object whose values are schemas.
    Schemas,
    /// `properties` contains an object of schemas. The schema under a key applies to the member of that name in the
    /// checked value. `additionalProperties` and `propertyNames` contain one schema, for members or for their names.
    Properties,
    /// Contains an object of schemas. Each key is a pattern. The schema under a key applies to the members of the
    /// checked value whose names match the pattern.
    PatternProperties,
    Unevaluated,
    Reference,
    Draft,
    Refused(&'static str),
}

/// Keywords that apply further schemas to the same value. If such a keyword stands next to `unevaluatedProperties` or
/// `unevaluatedItems`, the validator checks those schemas twice at each level.
const IN_PLACE: [&str; 11] =
    ["$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies", "contains"];

fn keyword(name: &str) -> Keyword {
    match name {
        "type" | "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" | "minItems"
        | "maxItems" | "minProperties" | "maxProperties" | "minContains" | "maxContains" => Keyword::Value,
        "minLength" | "maxLength" => Keyword::Text,
        "format" | "contentEncoding" | "contentMediaType" => Keyword::Format,
        "pattern" => Keyword::Pattern,
        "const" | "enum" => Keyword::Literal,
        "required" | "dependentRequired" => Keyword::Names,
        "uniqueItems" => Keyword::Unique,
        "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" | "items" | "prefixItems" | "additionalItems"
        | "contains" | "contentSchema" => Keyword::Schema,
        "$defs" | "definitions" | "dependentSchemas" | "dependencies" => Keyword::Schemas,
        "properties" | "additionalProperties" | "propertyNames" => Keyword::Properties,
        "patternProperties" => Keyword::PatternProperties,
        "unevaluatedProperties" | "unevaluatedItems" => Keyword::Unevaluated,
        "$ref" => Keyword::Reference,
        "$schema" => Keyword::Draft,
        "$dynamicRef" | "$recursiveRef" => Keyword::Refused("has a target that is known only during validation"),
        "$id" | "id" => Keyword::Refused("changes the meaning of every $ref"),
        "$vocabulary" => Keyword::Refused("changes the meaning of keywords"),
        _ => Keyword::Annotation,
    }
}

/// Measures a schema.
///
/// The schema is refused. The text says why, as a clause whose subject `it` is the schema.
pub(crate) fn measure(schema: &Value) -> Result<Cost, String> {
    let cost =
        Walk { root: schema, known: HashMap::new(), open: Vec::new(), automata: HashMap::new() }.schema(schema, 0)?;
    let weight = cost.weight();
    if weight > MAX_WEIGHT {
        return Err(format!("it would take {weight} bytes when it is compiled; at most {MAX_WEIGHT} are allowed"));
    }
    Ok(cost)
}

struct Walk<'a> {
    root: &'a Value,
    /// The cost of the schema that each reference leads to. Each such schema is measured once.
    known: HashMap<&'a str, Cost>,
    /// The references that lead to the current position of the walk. A further reference to one of these is circular.
    open: Vec<&'a str>,
    /// Sizes of automata, by pattern. The validator builds each automaton once.
    automata: HashMap<&'a str, u64>,
}

impl<'a> Walk<'a> {
    fn schema(&mut self, value: &'a Value, depth: u64) -> Result<Cost, String> {
        // Checked on the way down as well, because this walk recurses too.
        check_height(depth)?;
        let mut cost = Cost { parts: 1, assertions: 1, ..Cost::default() };
        match value {
            Value::Object(members) => {
                check_unevaluated(members)?;
                for (name, member) in members {
                    let inner = self.keyword(name, member, depth + 1)?;
                    add(&mut cost, name, inner)?;
                }
            }
            Value::Array(items) => {
                for item in items {
                    let inner = self.schema(item, depth + 1)?;
                    // The index of an item is part of the path.
                    add(&mut cost, "00000", inner)?;
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        check_height(depth.saturating_add(cost.height))?;
        Ok(cost)
    }

    fn keyword(&mut self, name: &'a str, value: &'a Value, depth: u64) -> Result<Cost, String> {
        let one = Cost { parts: 1, assertions: 1, ..Cost::default() };
        match keyword(name) {
            Keyword::Annotation => Ok(Cost::default()),
            Keyword::Value => Ok(one),
            Keyword::Text => Ok(Cost { texts: 1, ..one }),
            Keyword::Format if value == "regex" => {
                Err("the work of the format regex has no bound in proportion to the text, and it is not supported"
                    .to_owned())
            }
            Keyword::Format => Ok(Cost { formats: 1, ..one }),
            Keyword::Pattern => {
                let (automata, patterns) = value.as_str().map_or(Ok((0, 0)), |pattern| self.automaton(pattern))?;
                Ok(Cost { texts: 1, automata, patterns, ..one })
            }
            Keyword::Literal => Ok(Cost { parts: 1 + literal(value), ..one }),
            // Each missing name is a violation of its own.
            Keyword::Names => Ok(Cost { parts: 1 + literal(value), assertions: literal(value), ..one }),
            Keyword::Unique => Ok(Cost { uniques: 1, ..one }),
            Keyword::Schema => self.schema(value, depth),
            Keyword::Schemas => self.schemas(value, depth),
            Keyword::Properties if name == "properties" => Ok(Cost { texts: 1, ..self.schemas(value, depth)? }),
            Keyword::Properties => {
                let inner = self.schema(value, depth)?;
                Ok(Cost { texts: inner.texts + 1, ..inner })
            }
            Keyword::PatternProperties => self.pattern_properties(value, depth),
            Keyword::Unevaluated => unevaluated(name, value).map(|()| Cost { texts: 1, ..one }),
            Keyword::Reference => value.as_str().map_or(Ok(one), |reference| self.reference(reference, depth)),
            Keyword::Draft => draft(value).map(|()| Cost::default()),
            Keyword::Refused(reason) if value.is_string() || value.is_object() => {
                Err(format!("the keyword {name} {reason}, and is not supported"))
            }
            Keyword::Refused(_) => Ok(Cost::default()),
        }
    }

    /// Measures an object whose values are schemas. A value that is not an object is measured as one schema, and the
    /// validator refuses it later.
    fn schemas(&mut self, value: &'a Value, depth: u64) -> Result<Cost, String> {
        let Value::Object(members) = value else { return self.schema(value, depth) };
        check_height(depth)?;
        let mut cost = Cost { parts: 1, assertions: 1, ..Cost::default() };
        for (name, member) in members {
            let inner = self.schema(member, depth + 1)?;
            add(&mut cost, name, inner)?;
        }
        Ok(cost)
    }

    fn pattern_properties(&mut self, value: &'a Value, depth: u64) -> Result<Cost, String> {
        let mut cost = self.schemas(value, depth)?;
        cost.texts += 1;
        for pattern in value.as_object().into_iter().flat_map(Map::keys) {
            let (automata, patterns) = self.automaton(pattern)?;
            // `additionalProperties` and `unevaluatedProperties` in the same schema match the pattern once more.
            cost.automata = cost.automata.saturating_add(automata.saturating_mul(3));
            cost.patterns += patterns;
        }
        Ok(cost)
    }

    /// Returns the size of a pattern's automaton in bytes, and the number of matchers that the validator adds for the
    /// pattern. The number is 1 for a new pattern. It is 0 for a known pattern, whose matcher is shared.
    fn automaton(&mut self, pattern: &'a str) -> Result<(u64, u64), String> {
        if let Some(bytes) = self.automata.get(pattern) {
            return Ok((*bytes, 0));
        }
        let text = self.automata.keys().map(|known| known.len()).sum::<usize>() + pattern.len();
        if text > MAX_PATTERN_TEXT {
            return Err(format!("its patterns have more than {MAX_PATTERN_TEXT} bytes together"));
        }
        let bytes = automaton_bytes(pattern)?;
        self.automata.insert(pattern, bytes);
        let all = self.automata.values().copied().fold(0, u64::saturating_add);
        if all > MAX_AUTOMATA {
            return Err(format!("the automata of its patterns take more than {MAX_AUTOMATA} bytes together"));
        }
        Ok((bytes, 1))
    }

    fn reference(&mut self, reference: &'a str, depth: u64) -> Result<Cost, String> {
        if let Some(cost) = self.known.get(reference) {
            // The schema was measured at another depth.
            check_height(depth.saturating_add(cost.height))?;
            return Ok(*cost);
        }
        let pointer = reference.strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        let pointer = pointer.ok_or_else(|| format!("the $ref {reference:?} does not have the form #/…"))?;
        if self.open.contains(&reference) {
            return Err(format!("the $ref {reference:?} leads back to itself; recursive schemas are not supported"));
        }
        if reference.contains('%') {
            // The validator decodes the escape before following the reference, and could reach another schema than
            // this walk.
            return Err(format!("the $ref {reference:?} has an escape with %; write the name as it is"));
        }
        let target = self.root.pointer(pointer).ok_or_else(|| format!("the $ref {reference:?} leads nowhere"))?;
        self.open.push(reference);
        let cost = self.schema(target, depth + 1)?;
        self.open.pop();
        // Measured once: if each schema refers twice to the next, the walk would otherwise double with every level.
        self.known.insert(reference, cost);
        Ok(cost)
    }
}

fn add(cost: &mut Cost, segment: &str, inner: Cost) -> Result<(), String> {
    cost.add_below(segment, inner);
    if cost.parts > MAX_PARTS {
        return Err(format!("it has more than {MAX_PARTS} parts with every $ref written out"));
    }
    Ok(())
}

fn check_height(height: u64) -> Result<(), String> {
    if height > MAX_HEIGHT {
        return Err(format!("it nests deeper than {MAX_HEIGHT} with every $ref written out"));
    }
    Ok(())
}

/// Returns how many parts of a schema a comparison with this literal costs: one per value in the literal, and one per
/// 32 bytes of text.
fn literal(value: &Value) -> u64 {
    let text = |text: &str| 1 + u64::try_from(text.len() / 32).unwrap_or(u64::MAX);
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(string) => text(string),
        Value::Array(items) => items.iter().map(literal).fold(1, u64::saturating_add),
        Value::Object(members) => {
            members.iter().map(|(key, member)| text(key) + literal(member)).fold(1, u64::saturating_add)
        }
    }
}

/// Refuses `unevaluatedProperties` or `unevaluatedItems` with a schema: the validator would check the schema twice at
/// each level, so its work would have no bound. Only true and false are allowed.
fn unevaluated(name: &str, value: &Value) -> Result<(), String> {
    match value {
        Value::Bool(_) => Ok(()),
        _ => Err(format!("the work of {name} has no bound unless it is true or false")),
    }
}

fn check_unevaluated(members: &Map<String, Value>) -> Result<(), String> {
    let found = members.keys().find(|name| matches!(keyword(name), Keyword::Unevaluated));
    let beside = members.keys().find(|name| IN_PLACE.contains(&name.as_str()));
    match (found, beside) {
        (Some(name), Some(beside)) => Err(format!(
            "the work of {name} has no bound beside {beside}; name all members in one object, and close it with \
             additionalProperties"
        )),
        _ => Ok(()),
    }
}

fn draft(value: &Value) -> Result<(), String> {
    match value.as_str().map(|uri| uri.trim_end_matches('#')) {
        Some(uri) if !DRAFTS.contains(&uri) => {
            Err(format!("its $schema {uri:?} is not supported; use for example {:?}", LATEST_DRAFT))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
