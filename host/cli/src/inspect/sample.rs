//! Generates sample parameters from a component's own JSON Schema. The sample has only the required members.
//!
//! The sample is a starting point for an operator. A trial decides if the component accepts the sample.

use serde_json::{Map, Value};

/// The deepest nesting of schemas that is followed. References can form a cycle.
const MAX_DEPTH: u8 = 16;
/// The limit on a sample's strings and lists: the maximum number of characters of a string, and of items of a list.
const MOST: u64 = 64;

/// Creates a sample value for the schema; `None` if none was found. Some keywords of the schema are ignored.
pub(super) fn of(schema: &Value) -> Option<Value> {
    Walk { root: schema }.value(schema, 0)
}

struct Walk<'a> {
    root: &'a Value,
}

impl<'a> Walk<'a> {
    fn value(&self, schema: &'a Value, depth: u8) -> Option<Value> {
        let depth = depth.checked_add(1).filter(|depth| *depth <= MAX_DEPTH)?;
        if let Some(reference) = schema.get("$ref") {
            return self.value(self.root.pointer(reference.as_str()?.strip_prefix('#')?)?, depth);
        }
        let first = |name: &str| schema.get(name).and_then(|values| values.get(0));
        if let Some(known) = schema.get("default").or(schema.get("const")).or(first("examples")).or(first("enum")) {
            return Some(known.clone());
        }
        if let Some(part) = first("anyOf").or(first("oneOf")) {
            return self.value(part, depth);
        }
        let kind = schema.get("type").and_then(|kind| kind.as_str().or_else(|| kind.get(0)?.as_str()));
        match kind {
            Some("string") => Some(text(schema).into()),
            Some("integer" | "number") => Some(schema.get("minimum").cloned().unwrap_or_else(|| 1.into())),
            Some("boolean") => Some(false.into()),
            Some("array") => self.array(schema, depth),
            Some("object") => self.object(schema, depth),
            None if schema.get("properties").is_some() => self.object(schema, depth),
            // The schema does not restrict the type, so any value will do.
            None => Some(Value::Object(Map::new())),
            Some(_) => None,
        }
    }

    fn array(&self, schema: &'a Value, depth: u8) -> Option<Value> {
        let items = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0).min(MOST);
        let item = schema.get("items").filter(|_| items > 0);
        let item = item.map_or_else(|| Some(Value::from("")), |item| self.value(item, depth))?;
        Some((0..items).map(|_| item.clone()).collect())
    }

    fn object(&self, schema: &'a Value, depth: u8) -> Option<Value> {
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let properties = schema.get("properties");
        let members = required.filter_map(Value::as_str).map(|name| {
            let property = properties.and_then(|properties| properties.get(name));
            let value = property.map_or_else(|| Some(Value::from("")), |property| self.value(property, depth))?;
            Some((name.to_owned(), value))
        });
        members.collect::<Option<Map<_, _>>>().map(Value::Object)
    }
}

fn text(schema: &Value) -> String {
    match schema.get("format").and_then(Value::as_str) {
        Some("uri") => return "https://example.com/".to_owned(),
        Some("email") => return "ada@example.com".to_owned(),
        Some("date-time") => return "2026-01-01T00:00:00Z".to_owned(),
        Some("date") => return "2026-01-01".to_owned(),
        _ => {}
    }
    let least = schema.get("minLength").and_then(Value::as_u64).unwrap_or(0).min(MOST);
    let most = schema.get("maxLength").and_then(Value::as_u64).unwrap_or(MOST);
    "example ".chars().cycle().take(usize::try_from(least.max(7).min(most)).unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::of;

    #[test]
    fn what_is_required_is_made_up_by_its_type_and_bounds() {
        let schema = json!({
            "type": "object",
            "required": ["name", "limit", "rules", "mode"],
            "properties": {
                "name": { "type": "string", "minLength": 9 },
                "limit": { "type": "integer", "minimum": 3 },
                "rules": { "type": "array", "minItems": 2, "items": { "$ref": "#/$defs/rule" } },
                "mode": { "enum": ["strict", "lax"] },
                "note": { "type": "string" },
            },
            "$defs": { "rule": { "type": "object", "required": ["on"], "properties": { "on": { "type": "boolean" } } } },
        });
        let expected =
            json!({ "name": "example e", "limit": 3, "rules": [{ "on": false }, { "on": false }], "mode": "strict" });
        assert_eq!(of(&schema), Some(expected));
    }

    #[test]
    fn a_schema_that_leads_back_to_itself_has_no_sample() {
        let schema = json!({ "type": "object", "required": ["a"], "properties": { "a": { "$ref": "#" } } });
        assert_eq!(of(&schema), None);
    }
}
