//! JSON Schema validators of one installed extension, compiled once and kept by the schema's text.
//!
//! Offline: a reference to another document does not resolve. `format` is asserted. Patterns run on a linear-time
//! engine with a size limit, because schemas come from guests.

use std::sync::{Arc, Mutex, PoisonError};

use jsonschema::{PatternOptions, Validator};
mod cost;
mod strict;

use cost::{Allowed, Cost};

/// Schemas longer than this are refused.
const MAX_SCHEMA_BYTES: usize = 64 << 10;
/// Validators kept per extension; the oldest goes first.
const MAX_SCHEMAS: usize = 16;
/// Violations reported for one instance.
const MAX_VIOLATIONS: usize = 64;
/// Bytes of one violation's message; it may quote the instance.
const MAX_MESSAGE_BYTES: usize = 512;
/// Bytes of one compiled pattern.
const MAX_PATTERN_BYTES: usize = 256 << 10;

/// One violation: a JSON pointer into the instance, and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where in the instance; empty for the whole.
    pub pointer: String,
    /// What is wrong there; it may quote the instance.
    pub message: String,
}

/// Validators by the text of their schema. Both schemas and instances may come from strangers: what they can cost is
/// bounded.
#[derive(Default)]
pub struct Schemas {
    compiled: Mutex<Vec<(String, Arc<Schema>)>>,
}

/// A compiled schema and what it costs to validate with it.
pub(crate) struct Schema {
    validator: Validator,
    cost: Cost,
}

impl Schemas {
    /// All violations, up to a bound.
    ///
    /// # Errors
    /// When the schema or the instance cannot be used at all, and why.
    pub fn validate(&self, schema: &str, instance: &str) -> Result<Vec<Violation>, String> {
        self.compile(schema)?.validate(instance)
    }

    pub(crate) fn compile(&self, schema: &str) -> Result<Arc<Schema>, String> {
        if let Some(schema) = self.find(schema) {
            return Ok(schema);
        }
        if schema.len() > MAX_SCHEMA_BYTES {
            return Err(format!("the schema has {} bytes; at most {MAX_SCHEMA_BYTES} are allowed", schema.len()));
        }
        let document = strict::parse(schema).map_err(|error| format!("the schema is not JSON: {error}"))?;
        let unusable = |error: String| format!("the schema is not usable: {error}");
        let cost = Cost::of(&document).map_err(unusable)?;
        let patterns = PatternOptions::regex().size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES);
        let options = jsonschema::options().should_validate_formats(true).with_pattern_options(patterns);
        let validator = options.build(&document).map_err(|error| unusable(error.to_string()))?;
        Ok(self.keep(schema, Arc::new(Schema { validator, cost })))
    }

    fn find(&self, text: &str) -> Option<Arc<Schema>> {
        let compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        compiled.iter().find(|(known, _)| known == text).map(|(_, schema)| Arc::clone(schema))
    }

    fn keep(&self, text: &str, schema: Arc<Schema>) -> Arc<Schema> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if compiled.len() >= MAX_SCHEMAS {
            compiled.remove(0);
        }
        compiled.push((text.to_owned(), Arc::clone(&schema)));
        schema
    }
}

impl Schema {
    /// As [`Schemas::validate`].
    pub(crate) fn validate(&self, instance: &str) -> Result<Vec<Violation>, String> {
        let unusable = |error: String| format!("the instance is not usable: {error}");
        let document = strict::parse(instance).map_err(|error| unusable(error.to_string()))?;
        let allowed = self.cost.allow(&document, instance.len()).map_err(unusable)?;
        if self.validator.is_valid(&document) {
            return Ok(Vec::new());
        }
        match allowed {
            Allowed::List => {
                let errors = self.validator.iter_errors(&document).take(MAX_VIOLATIONS);
                Ok(errors.map(|error| Violation::of(&error)).collect())
            }
            Allowed::Judge => {
                let message = "does not match the schema; it is too large to say where".to_owned();
                Ok(vec![Violation { pointer: String::new(), message }])
            }
        }
    }
}

impl Violation {
    fn of(error: &jsonschema::ValidationError<'_>) -> Self {
        let mut message = error.to_string();
        if message.len() > MAX_MESSAGE_BYTES {
            message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
            message.push('…');
        }
        Self { pointer: error.instance_path().to_string(), message }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_SCHEMAS, Schemas};

    fn pointers(schema: &str, instance: &str) -> Vec<String> {
        let violations = Schemas::default().validate(schema, instance).expect("usable");
        violations.into_iter().map(|violation| violation.pointer).collect()
    }

    #[test]
    fn formats_are_asserted_and_pointers_name_the_place() {
        let schema =
            r#"{"properties": {"user": {"properties": {"email": {"format": "email"}}, "required": ["name"]}}}"#;
        assert_eq!(pointers(schema, r#"{"user": {"email": "nobody"}}"#).len(), 2);
        assert!(pointers(schema, r#"{"user": {"email": "nobody", "name": 1}}"#).contains(&"/user/email".to_owned()));
        assert!(pointers(schema, r#"{"user": {"email": "a@example.com", "name": 1}}"#).is_empty());
    }

    #[test]
    fn references_to_other_documents_are_refused() {
        for reference in ["https://example.com/schema.json", "file:///etc/passwd"] {
            let schema = format!(r#"{{"$ref": "{reference}"}}"#);
            assert!(Schemas::default().compile(&schema).is_err(), "{reference}");
        }
    }

    #[test]
    fn a_key_that_comes_twice_cannot_hide_a_value_from_validation() {
        let schema = r#"{"properties": {"user": {"properties": {"email": {"format": "email"}}}}}"#;
        for instance in [r#"{"user": {"email": "<evil>", "email": "a@b.cc"}}"#, r#"{"user": 1, "user": {}}"#] {
            let error = Schemas::default().validate(schema, instance).expect_err("not usable");
            assert!(error.contains("twice"), "{error}");
        }
    }

    #[test]
    fn what_is_kept_and_what_is_reported_is_bounded() {
        let schemas = Schemas::default();
        for number in 0..MAX_SCHEMAS * 2 {
            schemas.compile(&format!(r#"{{"const": {number}}}"#)).expect("a schema");
        }
        assert_eq!(schemas.compiled.lock().expect("no panic").len(), MAX_SCHEMAS);
        let many = format!("[{}]", vec!["1"; 1000].join(","));
        assert_eq!(schemas.validate(r#"{"items": {"type": "string"}}"#, &many).expect("usable").len(), 64);
        let long = format!("\"{}\"", "x".repeat(10_000));
        let violation = schemas.validate(r#"{"type": "integer"}"#, &long).expect("usable").remove(0);
        assert!(violation.message.len() < 600);
    }

    #[test]
    fn a_nested_pattern_cannot_blow_up() {
        let schema = r#"{"pattern": "((((a{1,100}){1,100}){1,100}){1,100})"}"#;
        assert!(Schemas::default().compile(schema).is_err());
    }
}
