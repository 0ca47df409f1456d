//! Checks forms, and the values of forms that clients send.

use annex_sdk::{Violation, pointer};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::parameters::{Kind, Parameters};

/// The types of fields that a form may have.
pub const FORM_TYPES: &[&str] = &["text", "date", "file", "singleselect", "multiselect", "checkbox", "checkbox_group"];
/// The types of fields that settings of `services/form` may have.
pub const SETTINGS_TYPES: &[&str] = &["checkbox_group", "singleselect"];
/// The types of fields that settings of `ui/settings` may have.
pub const OLD_SETTINGS_TYPES: &[&str] = &["checkbox_group", "single_select"];

/// The maximum number of violations in an error for the client.
const MAX_VIOLATIONS: usize = 20;

/// A field of a form, as far as values are checked against it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Field {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    required: bool,
    #[serde(default)]
    options: Vec<Choice>,
    #[serde(default)]
    fields: Vec<Choice>,
}

/// An option of a selection, or a box of a group. `ui/settings` has `value` in place of `id` for an option.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Choice {
    #[serde(alias = "value")]
    id: String,
}

impl Field {
    fn has_option(&self, id: &str) -> bool {
        self.options.iter().any(|option| option.id == id)
    }
}

/// The fields of a form.
///
/// # Errors
/// The form cannot be filled in: a field has another type, an id is there twice, or a selection has no option.
pub fn fields(form: &Value, allowed: &[&str]) -> Result<Vec<Field>, String> {
    let fields = form.get("fields").cloned().unwrap_or_default();
    let fields: Vec<Field> = serde_json::from_value(fields).map_err(|error| format!("`fields`: {error}"))?;
    for (index, field) in fields.iter().enumerate() {
        let Field { id, kind, .. } = field;
        if !allowed.contains(&kind.as_str()) {
            return Err(format!("the field {id:?} has the type {kind:?}; the types are {}", allowed.join(", ")));
        }
        if fields.iter().take(index).any(|earlier| earlier.id == *id) {
            return Err(format!("there are two fields with the id {id:?}"));
        }
        if kind.contains("select") && field.options.is_empty() {
            return Err(format!("the field {id:?} has no `options`"));
        }
        if kind == "checkbox_group" && field.fields.is_empty() {
            return Err(format!("the field {id:?} has no `fields`"));
        }
    }
    Ok(fields)
}

/// The change of session state: one object of values for each form that the client has filled in. `pointer` leads to the
/// client's metadata.
///
/// # Errors
/// The values do not fit the form.
pub fn delta(parameters: &Parameters, metadata: &str, pointer: &str) -> Result<Map<String, Value>, Vec<Violation>> {
    let one = |message: String| vec![Violation::new(pointer, message)];
    let metadata: Value = serde_json::from_str(metadata).map_err(|error| one(format!("is no JSON: {error}")))?;
    let Value::Object(members) = metadata else { return Err(one("is not an object".to_owned())) };
    let mut delta = Map::new();
    match parameters.extension {
        Kind::Form => {
            let empty = Map::new();
            let at = pointer::child(pointer, "form_fulfillments");
            let filled = match members.get("form_fulfillments") {
                None => &empty,
                Some(Value::Object(filled)) => filled,
                Some(_) => return Err(vec![Violation::new(at, "is not an object")]),
            };
            let forms = [
                ("initial_form", &parameters.initial_form, FORM_TYPES, &parameters.form_key),
                ("settings_form", &parameters.settings_form, SETTINGS_TYPES, &parameters.settings_key),
            ];
            for (name, response) in filled {
                let at = pointer::child(&at, name);
                let form = forms.iter().find(|(known, form, ..)| known == name && form.is_some());
                let Some((_, Some(form), allowed, key)) = form else {
                    return Err(vec![Violation::new(at, "is a form that the agent does not have")]);
                };
                delta.insert((*key).clone(), values(form, allowed, response, &at)?);
            }
        }
        Kind::FormRequest => {
            let response = Value::Object(members);
            let form = parameters.form.as_ref().unwrap_or(&Value::Null);
            delta.insert(parameters.form_key.clone(), values(form, FORM_TYPES, &response, pointer)?);
        }
        Kind::Settings => {
            let response = Value::Object(members);
            let form = parameters.settings.as_ref().unwrap_or(&Value::Null);
            delta.insert(parameters.settings_key.clone(), values(form, OLD_SETTINGS_TYPES, &response, pointer)?);
        }
        Kind::Citation | Kind::AgentDetail | Kind::Error | Kind::Secrets => {}
    }
    Ok(delta)
}

/// The values of a form without their types.
fn values(form: &Value, allowed: &[&str], response: &Value, pointer: &str) -> Result<Value, Vec<Violation>> {
    let fields = fields(form, allowed).map_err(|error| vec![Violation::new(pointer, error)])?;
    let pointer = pointer::child(pointer, "values");
    let Some(Value::Object(sent)) = response.get("values") else {
        return Err(vec![Violation::new(pointer, "is not an object")]);
    };
    let mut violations = Vec::new();
    let mut values = Map::new();
    for (id, value) in sent {
        let at = pointer::child(&pointer, id);
        match fields.iter().find(|field| field.id == *id) {
            None => violations.push(Violation::new(at, "is a field that the form does not have")),
            Some(field) => match checked(field, value) {
                Ok(value) => {
                    values.insert(id.clone(), value);
                }
                Err(message) => violations.push(Violation::new(at, message)),
            },
        }
    }
    for field in fields.iter().filter(|field| field.required) {
        // A value with an error has its own violation.
        let is_missing = if sent.contains_key(&field.id) { values.get(&field.id).is_some_and(is_empty) } else { true };
        if is_missing {
            violations.push(Violation::new(pointer::child(&pointer, &field.id), "is required"));
        }
    }
    violations.truncate(MAX_VIOLATIONS);
    if violations.is_empty() { Ok(Value::Object(values)) } else { Err(violations) }
}

/// True if a required field has no value. A box that must be checked is not checked.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// The value of a field without its type.
fn checked(field: &Field, sent: &Value) -> Result<Value, String> {
    if sent.get("type").and_then(Value::as_str) != Some(&field.kind) {
        return Err(format!("is not of the type {:?}", field.kind));
    }
    // `ui/settings` has the values of a group in another member.
    if let Some(boxes) = sent.get("values").filter(|_| field.kind == "checkbox_group") {
        let Value::Object(boxes) = boxes else { return Err("is not an object of boxes".to_owned()) };
        let unwrapped = boxes.iter().map(|(id, value)| (id.clone(), value.get("value").cloned().unwrap_or_default()));
        return checked_boxes(field, &unwrapped.collect());
    }
    let value = sent.get("value").unwrap_or(&Value::Null);
    let fits = match (field.kind.as_str(), value) {
        (_, Value::Null) => true,
        ("text" | "date", Value::String(_)) | ("checkbox", Value::Bool(_)) => true,
        ("singleselect" | "single_select", Value::String(id)) => field.has_option(id),
        ("multiselect", Value::Array(list)) => list.iter().all(|id| id.as_str().is_some_and(|id| field.has_option(id))),
        ("file", Value::Array(files)) => files.iter().all(|file| file.get("uri").is_some_and(Value::is_string)),
        ("checkbox_group", Value::Object(boxes)) => return checked_boxes(field, boxes),
        _ => false,
    };
    if fits {
        Ok(value.clone())
    } else {
        Err(format!("has a value that the field of the type {:?} does not have", field.kind))
    }
}

fn checked_boxes(field: &Field, boxes: &Map<String, Value>) -> Result<Value, String> {
    for (id, value) in boxes {
        if !field.fields.iter().any(|known| known.id == *id) {
            return Err(format!("has the box {id:?}, which the form does not have"));
        }
        if !matches!(value, Value::Bool(_) | Value::Null) {
            return Err(format!("has the box {id:?}, which is neither true nor false"));
        }
    }
    Ok(Value::Object(boxes.clone()))
}
