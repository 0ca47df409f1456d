//! The fields of a form for a state, from the JSON Schema on the card: texts, numbers, booleans, choices, and objects one
//! level deep. Any other value is JSON in a text area.

use serde_json::{Map, Value};

use crate::console::shown::line;

/// The maximum number of fields of one form. Further properties of a schema are left to the client.
const MAX_FIELDS: usize = 60;
/// The maximum number of choices of a field.
const MAX_CHOICES: usize = 100;

/// The kind of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Choice,
    Json,
}

/// A choice of a field. `value` is JSON.
pub(super) struct ChoiceView {
    pub(super) value: String,
    pub(super) label: String,
    pub(super) is_chosen: bool,
}

/// A field of the form.
pub(super) struct FormField {
    /// The name in the form. It has numbers only, because the names of properties are texts of strangers.
    pub(super) name: String,
    pub(super) label: String,
    pub(super) kind: Kind,
    pub(super) is_required: bool,
    pub(super) choices: Vec<ChoiceView>,
    /// The value in the form. An empty value is not sent.
    pub(super) value: String,
    /// The names of the properties that lead to the value.
    path: Vec<String>,
}

impl FormField {
    pub(super) fn is_text(&self) -> bool {
        self.kind == Kind::Text
    }

    pub(super) fn is_number(&self) -> bool {
        self.kind == Kind::Number
    }

    pub(super) fn is_choice(&self) -> bool {
        self.kind == Kind::Choice
    }

    fn json(&self) -> Result<Option<Value>, String> {
        let value = self.value.as_str();
        match self.kind {
            Kind::Text if value.is_empty() && !self.is_required => Ok(None),
            Kind::Text => Ok(Some(value.into())),
            _ if value.trim().is_empty() => Ok(None),
            Kind::Number | Kind::Choice | Kind::Json => {
                let parsed: Result<Value, _> = serde_json::from_str(value);
                let is_number = parsed.as_ref().is_ok_and(Value::is_number);
                match parsed {
                    Ok(_) if self.kind == Kind::Number && !is_number => Err(format!("{}: it is no number", self.label)),
                    Ok(value) => Ok(Some(value)),
                    Err(error) => Err(format!("{}: it is no JSON: {error}", self.label)),
                }
            }
        }
    }
}

/// The fields for a schema. `prefix` begins the name of each field, and `value_of` has the values of a sent form.
pub(super) fn fields(schema: &Value, prefix: &str, value_of: &dyn Fn(&str) -> String) -> Vec<FormField> {
    let mut fields = Vec::new();
    match properties(schema) {
        Some(properties) => {
            for (number, (name, inner)) in properties.iter().enumerate() {
                add(&mut fields, format!("{prefix}.{number}"), (schema, name.as_str(), inner), value_of);
            }
        }
        None => fields.push(field(format!("{prefix}.all"), Vec::new(), Kind::Json, value_of)),
    }
    fields.truncate(MAX_FIELDS);
    fields
}

/// Adds the field of a property, or the fields of an object.
fn add(
    fields: &mut Vec<FormField>,
    name: String,
    (schema, property, inner): (&Value, &str, &Value),
    value_of: &dyn Fn(&str) -> String,
) {
    match properties(inner) {
        Some(properties) => {
            for (number, (below, leaf)) in properties.iter().enumerate() {
                let path = vec![property.to_owned(), below.clone()];
                let is_required = is_required(inner, below);
                fields.push(leaf_field((format!("{name}.{number}"), path), leaf, is_required, value_of));
            }
        }
        None => {
            let is_required = is_required(schema, property);
            fields.push(leaf_field((name, vec![property.to_owned()]), inner, is_required, value_of));
        }
    }
}

/// The properties of a schema of an object.
fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    let is_object = schema.get("type").is_none_or(|kind| kind == "object");
    schema.get("properties").filter(|_| is_object)?.as_object().filter(|properties| !properties.is_empty())
}

fn is_required(schema: &Value, property: &str) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|names| names.iter().any(|name| name == property))
}

fn leaf_field(
    (name, path): (String, Vec<String>),
    schema: &Value,
    is_required: bool,
    value_of: &dyn Fn(&str) -> String,
) -> FormField {
    let choices = schema.get("enum").and_then(Value::as_array).filter(|choices| choices.len() <= MAX_CHOICES);
    let kind = match (choices, schema.get("type").and_then(Value::as_str)) {
        (Some(_), _) | (None, Some("boolean")) => Kind::Choice,
        (None, Some("string")) => Kind::Text,
        (None, Some("number" | "integer")) => Kind::Number,
        (None, _) => Kind::Json,
    };
    let mut field = field(name, path, kind, value_of);
    let booleans = [Value::Bool(true), Value::Bool(false)];
    let choices = choices.map_or(booleans.as_slice(), Vec::as_slice);
    if kind == Kind::Choice {
        field.choices = choices.iter().map(|choice| view(choice, &field.value)).collect();
    }
    FormField { is_required, ..field }
}

fn view(choice: &Value, chosen: &str) -> ChoiceView {
    let value = choice.to_string();
    let label = line(choice.as_str().unwrap_or(&value));
    ChoiceView { is_chosen: value == chosen, label, value }
}

fn field(name: String, path: Vec<String>, kind: Kind, value_of: &dyn Fn(&str) -> String) -> FormField {
    let label = if path.is_empty() { "state".to_owned() } else { line(&path.join(" / ")) };
    let value = value_of(&name);
    FormField { name, label, kind, is_required: false, choices: Vec::new(), value, path }
}

/// The state that the values of the fields make. `None` if no field has a value.
///
/// # Errors
/// The first field whose value is not of its kind.
pub(super) fn state(fields: &[FormField]) -> Result<Option<Value>, String> {
    let mut state = Map::new();
    for field in fields {
        let Some(value) = field.json()? else { continue };
        match field.path.as_slice() {
            [] => return Ok(Some(value)),
            [name] => drop(state.insert(name.clone(), value)),
            [outer, inner, ..] => {
                let object = state.entry(outer.clone()).or_insert_with(|| Map::new().into());
                if let Some(object) = object.as_object_mut() {
                    object.insert(inner.clone(), value);
                }
            }
        }
    }
    let has_values = fields.iter().any(|field| !field.value.is_empty());
    Ok((has_values && !state.is_empty()).then(|| state.into()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Kind, fields, state};

    fn schema() -> Value {
        json!({"type": "object", "required": ["user"], "properties": {
            "user": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string"},
                "age": {"type": "integer"},
            }},
            "plan": {"enum": ["free", 7]},
            "is_new": {"type": "boolean"},
            "<script>": {"type": "array"},
        }})
    }

    #[test]
    fn a_form_has_a_field_for_each_simple_property_and_json_for_the_others() {
        let fields = fields(&schema(), "s0", &|_| String::new());
        let kinds: Vec<(&str, Kind)> = fields.iter().map(|field| (field.name.as_str(), field.kind)).collect();
        let expected = [
            ("s0.0.0", Kind::Text),
            ("s0.0.1", Kind::Number),
            ("s0.1", Kind::Choice),
            ("s0.2", Kind::Choice),
            ("s0.3", Kind::Json),
        ];
        assert_eq!(kinds, expected);
        assert!(fields.first().is_some_and(|field| field.is_required && field.label == "user / name"));
        assert_eq!(super::fields(&json!(true), "s0", &|_| String::new()).len(), 1, "any schema has a field");
    }

    #[test]
    fn the_values_of_a_form_are_the_state_of_the_message() {
        let sent = |values: &'static [(&'static str, &'static str)]| {
            let value_of = move |name: &str| {
                values
                    .iter()
                    .find(|(field, _)| *field == name)
                    .map_or_else(String::new, |(_, value)| (*value).to_owned())
            };
            state(&fields(&schema(), "s0", &value_of))
        };
        assert_eq!(sent(&[]), Ok(None));
        let full = sent(&[("s0.0.0", "Ada"), ("s0.0.1", "36"), ("s0.1", "7"), ("s0.2", "true"), ("s0.3", "[1]")]);
        let expected = json!({"user": {"name": "Ada", "age": 36}, "plan": 7, "is_new": true, "<script>": [1]});
        assert_eq!(full, Ok(Some(expected)));
        assert!(sent(&[("s0.0.1", "many")]).is_err_and(|error| error.contains("user / age")));
        assert!(sent(&[("s0.0.1", "true")]).is_err());
        assert!(sent(&[("s0.3", "[")]).is_err());
    }
}
