//! What validating with a schema can cost, found out before it is compiled.
//!
//! Schemas come from guests, and validation runs on the host without an epoch. So the work is bounded by the schema's
//! size with every reference written out, times the size of the instance; a schema that refers to itself has no such
//! size and is refused.

use std::collections::HashMap;

use serde_json::Value;

/// Values in a schema with every reference written out.
const MAX_VALUES: u64 = 10_000;
/// How deep a schema may nest with every reference written out: the validator recurses.
const MAX_DEPTH: usize = 100;
/// Schema values times instance values that are validated at all: some hundred milliseconds at worst.
const MAX_WORK: u64 = 2_000_000;
/// Schema values times instance values for which every violation is listed: each costs memory.
const MAX_LISTED_WORK: u64 = 100_000;
/// Patterns times bytes of the instance.
const MAX_PATTERN_WORK: u64 = 256 << 10;

/// Keywords that make the work unbounded or reach outside of the document.
const REFUSED: [&str; 5] = ["$dynamicRef", "$recursiveRef", "$id", "id", "$vocabulary"];

/// The size of a schema with every reference written out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    values: u64,
    patterns: u64,
}

/// What may be done with an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    /// Every violation may be listed.
    List,
    /// Only whether it is valid may be found out.
    Judge,
}

impl Cost {
    /// Measures a schema.
    pub(super) fn of(schema: &Value) -> Result<Self, String> {
        Measure { root: schema, known: HashMap::new(), open: Vec::new() }.value(schema, 0, true)
    }

    /// Decides by the size of an instance; the error says that it is too large.
    pub(super) fn allow(self, instance: &Value, bytes: usize) -> Result<Allowed, String> {
        let work = self.values.saturating_mul(count(instance));
        let pattern_work = self.patterns.saturating_mul(u64::try_from(bytes).unwrap_or(u64::MAX));
        if work > MAX_WORK || pattern_work > MAX_PATTERN_WORK {
            return Err("it is too large for this schema to be validated".to_owned());
        }
        Ok(if work > MAX_LISTED_WORK { Allowed::Judge } else { Allowed::List })
    }

    fn add(&mut self, other: Self) -> Result<(), String> {
        self.values = self.values.saturating_add(other.values);
        self.patterns = self.patterns.saturating_add(other.patterns);
        if self.values > MAX_VALUES {
            return Err(format!("it has more than {MAX_VALUES} values with every $ref written out"));
        }
        Ok(())
    }
}

/// How many values JSON is made of.
fn count(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<u64>(),
        Value::Object(members) => 1 + members.values().map(count).sum::<u64>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

struct Measure<'a> {
    root: &'a Value,
    known: HashMap<&'a str, Cost>,
    /// References that are being followed.
    open: Vec<&'a str>,
}

impl<'a> Measure<'a> {
    /// Measures a value; `schema` tells a schema's keywords from the names below `properties` and the like.
    fn value(&mut self, value: &'a Value, depth: usize, schema: bool) -> Result<Cost, String> {
        if depth > MAX_DEPTH {
            return Err(format!("it nests deeper than {MAX_DEPTH} with every $ref written out"));
        }
        let mut cost = Cost { values: 1, patterns: 0 };
        match value {
            Value::Array(items) => {
                for item in items {
                    cost.add(self.value(item, depth + 1, true)?)?;
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    cost.add(self.member(name, member, depth, schema)?)?;
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(cost)
    }

    fn member(&mut self, name: &str, value: &'a Value, depth: usize, schema: bool) -> Result<Cost, String> {
        // Below these stand names of the author's, not keywords.
        let names = matches!(name, "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas");
        let mut cost = self.value(value, depth + 1, !(schema && names))?;
        if !schema {
            return Ok(cost);
        }
        match (name, value) {
            ("$ref", Value::String(reference)) => cost.add(self.reference(reference, depth)?)?,
            ("pattern" | "format", Value::String(_)) => cost.patterns += 1,
            ("patternProperties", Value::Object(patterns)) => {
                cost.patterns += u64::try_from(patterns.len()).unwrap_or(u64::MAX);
            }
            (refused, Value::String(_)) if REFUSED.contains(&refused) => {
                return Err(format!("the keyword {refused} is not supported"));
            }
            _ => {}
        }
        Ok(cost)
    }

    fn reference(&mut self, reference: &'a str, depth: usize) -> Result<Cost, String> {
        if let Some(cost) = self.known.get(reference) {
            return Ok(*cost);
        }
        let pointer = reference.strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        let pointer = pointer.ok_or_else(|| format!("the $ref {reference:?} does not have the form #/…"))?;
        if self.open.contains(&reference) {
            return Err(format!("the $ref {reference:?} leads back to itself; recursive schemas are not supported"));
        }
        let target = self.root.pointer(pointer).ok_or_else(|| format!("the $ref {reference:?} leads nowhere"))?;
        self.open.push(reference);
        let cost = self.value(target, depth + 1, true)?;
        self.open.pop();
        self.known.insert(reference, cost);
        Ok(cost)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Allowed, Cost};

    fn refused(schema: &Value, expected: &str) {
        let error = Cost::of(schema).expect_err("refused");
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn schemas_whose_work_has_no_bound_are_refused() {
        refused(&json!({"properties": {"next": {"$ref": "#"}}}), "leads back to itself");
        refused(&json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}), "leads back to itself");
        refused(&json!({"$ref": "https://example.com/s"}), "form #/");
        refused(&json!({"$ref": "#/$defs/none"}), "leads nowhere");
        refused(&json!({"$dynamicRef": "#x"}), "$dynamicRef");
    }

    #[test]
    fn a_schema_that_multiplies_with_each_reference_is_refused_at_once() {
        let definitions: serde_json::Map<String, Value> = (0..10)
            .map(|level| {
                let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
                (format!("d{level}"), json!({"allOf": vec![next; 10]}))
            })
            .chain([("d10".to_owned(), json!(true))])
            .collect();
        refused(&json!({"$ref": "#/$defs/d0", "$defs": definitions}), "more than 10000 values");
    }

    #[test]
    fn a_long_chain_of_references_is_refused() {
        let definitions: serde_json::Map<String, Value> = (0..300)
            .map(|level| (format!("d{level}"), json!({"$ref": format!("#/$defs/d{}", level + 1)})))
            .chain([("d300".to_owned(), json!(true))])
            .collect();
        refused(&json!({"$ref": "#/$defs/d0", "$defs": definitions}), "nests deeper");
    }

    #[test]
    fn a_property_may_have_the_name_of_a_keyword() {
        let schema = json!({"properties": {"$ref": {"type": "string"}, "id": {"type": "string"}, "pattern": true}});
        assert_eq!(Cost::of(&schema).expect("a schema").patterns, 0);
    }

    #[test]
    fn what_is_done_with_an_instance_depends_on_its_size() {
        let schema = json!({"items": {"type": "string", "pattern": "a"}});
        let cost = Cost::of(&schema).expect("a schema");
        let instance = |items: usize| Value::from(vec!["x"; items]);
        assert_eq!(cost.allow(&instance(10), 50), Ok(Allowed::List));
        assert_eq!(cost.allow(&instance(50_000), 50), Ok(Allowed::Judge));
        assert!(cost.allow(&instance(10), 1 << 20).is_err());
        assert!(cost.allow(&instance(5_000_000), 50).is_err());
    }
}
