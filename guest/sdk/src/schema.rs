//! JSON Schema, validated by the host (import `json-schema`, no grant needed).

use crate::Violation;
use crate::imports::json_schema;

/// Checks that a schema is usable. An error has the reason. Call it from `descriptor` or `declare`.
pub fn compile(schema: &str) -> Result<(), String> {
    json_schema::compile(schema)
}

/// The violations of the schema by the instance, at most 64; empty if the instance is valid. Pointers are relative to
/// the instance. Fails for an unusable schema, or an instance that is not JSON.
pub fn validate(schema: &str, instance: &str) -> Result<Vec<Violation>, String> {
    json_schema::validate(schema, instance)
}
