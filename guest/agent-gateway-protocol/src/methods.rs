//! The methods of the extension. The public specification does not define methods.

use annex_sdk::MethodDeclaration;

use crate::parameters::Parameters;

/// The method for announcing a route.
pub const ANNOUNCE: &str = "agp/announce";
/// The method that asks for the route of an intent, without sending the intent to the route's squad.
pub const ROUTE: &str = "agp/route";

const ANNOUNCE_PARAMS: &str = r#"{
  "type": "object",
  "properties": {
    "capability": {"type": "string", "pattern": "^\\S+$", "maxLength": 200},
    "version": {"type": "string", "minLength": 1, "maxLength": 200},
    "cost": {"type": "number", "minimum": 0},
    "policy": {"type": "object", "maxProperties": 32, "additionalProperties": {"type": ["string", "number", "boolean", "null"]}},
    "path": {"type": "string", "pattern": "^\\S+$", "maxLength": 200},
    "token": {"type": "string"}
  },
  "required": ["capability", "version", "policy", "path"],
  "additionalProperties": false
}"#;

const ANNOUNCE_RESULT: &str = r#"{
  "type": "object",
  "properties": {
    "capability": {"type": "string"},
    "path": {"type": "string"},
    "expires": {"type": "string", "format": "date-time"}
  },
  "required": ["capability", "path", "expires"],
  "additionalProperties": false
}"#;

const ROUTE_PARAMS: &str = r#"{
  "type": "object",
  "properties": {
    "target_capability": {"type": "string", "minLength": 1},
    "payload": {"type": "object"},
    "policy_constraints": {"type": "object"},
    "metadata": {"type": "object"}
  },
  "required": ["target_capability", "payload"],
  "additionalProperties": false
}"#;

const ROUTE_RESULT: &str = r#"{
  "type": "object",
  "properties": {
    "capability": {"type": "string"},
    "version": {"type": "string"},
    "path": {"type": "string"},
    "cost": {"type": "number"},
    "policy": {"type": "object"}
  },
  "required": ["capability", "path", "cost", "policy"],
  "additionalProperties": false
}"#;

/// The available methods. `agp/announce` is available if the operator allows announcements.
pub fn declarations(parameters: &Parameters) -> Vec<MethodDeclaration> {
    let announce = MethodDeclaration {
        params_schema: Some(ANNOUNCE_PARAMS.to_owned()),
        result_schema: Some(ANNOUNCE_RESULT.to_owned()),
        ..MethodDeclaration::new(ANNOUNCE, "Announces a squad's capability with its cost and policy.")
    };
    let route = MethodDeclaration {
        params_schema: Some(ROUTE_PARAMS.to_owned()),
        result_schema: Some(ROUTE_RESULT.to_owned()),
        ..MethodDeclaration::new(ROUTE, "Returns the route of an intent.")
    };
    // A method that is not declared does not exist for anybody.
    if parameters.announcements { vec![announce, route] } else { vec![route] }
}
