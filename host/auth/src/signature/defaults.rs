//! Removes the default values of an Agent Card, because the card's signature does not cover default values
//! (specification sections 5.7 and 8.4.1).

use serde_json::{Map, Value};

/// The fields of one message type of the specification's proto file.
struct Shape {
    /// The fields that are neither REQUIRED nor `optional`. They are omitted if they have their default value.
    implicit: &'static [&'static str],
    /// The fields that hold a message or a list of messages, each with the fields of that message. A map counts as a
    /// message with the field [`ANY`].
    nested: &'static [(&'static str, &'static Shape)],
}

/// Stands for every key of a map.
const ANY: &str = "*";

static CARD: Shape = Shape {
    implicit: &["securitySchemes", "securityRequirements"],
    nested: &[
        ("supportedInterfaces", &INTERFACE),
        ("capabilities", &CAPABILITIES),
        ("securitySchemes", &SCHEMES),
        ("securityRequirements", &REQUIREMENT),
        ("skills", &SKILL),
    ],
};
static INTERFACE: Shape = Shape { implicit: &["tenant"], nested: &[] };
static CAPABILITIES: Shape = Shape { implicit: &["extensions"], nested: &[("extensions", &EXTENSION)] };
// An extension defines its own parameters, so none of their values is omitted.
static EXTENSION: Shape = Shape { implicit: &["uri", "description", "required"], nested: &[] };
static SKILL: Shape = Shape {
    implicit: &["examples", "inputModes", "outputModes", "securityRequirements"],
    nested: &[("securityRequirements", &REQUIREMENT)],
};
static REQUIREMENT: Shape = Shape { implicit: &["schemes"], nested: &[("schemes", &SCOPES_BY_SCHEME)] };
static SCOPES_BY_SCHEME: Shape = Shape { implicit: &[], nested: &[(ANY, &STRING_LIST)] };
static STRING_LIST: Shape = Shape { implicit: &["list"], nested: &[] };
static SCHEMES: Shape = Shape { implicit: &[], nested: &[(ANY, &SCHEME)] };
static SCHEME: Shape = Shape {
    implicit: &[],
    nested: &[
        ("apiKeySecurityScheme", &DESCRIBED),
        ("httpAuthSecurityScheme", &HTTP_SCHEME),
        ("oauth2SecurityScheme", &OAUTH2_SCHEME),
        ("openIdConnectSecurityScheme", &DESCRIBED),
        ("mtlsSecurityScheme", &DESCRIBED),
    ],
};
static DESCRIBED: Shape = Shape { implicit: &["description"], nested: &[] };
static HTTP_SCHEME: Shape = Shape { implicit: &["description", "bearerFormat"], nested: &[] };
static OAUTH2_SCHEME: Shape =
    Shape { implicit: &["description", "oauth2MetadataUrl"], nested: &[("flows", &OAUTH_FLOWS)] };
static OAUTH_FLOWS: Shape = Shape {
    implicit: &[],
    nested: &[
        ("authorizationCode", &FLOW),
        ("clientCredentials", &FLOW),
        ("deviceCode", &FLOW),
        ("implicit", &DEPRECATED_FLOW),
        ("password", &DEPRECATED_FLOW),
    ],
};
static FLOW: Shape = Shape { implicit: &["refreshUrl", "pkceRequired"], nested: &[] };
static DEPRECATED_FLOW: Shape =
    Shape { implicit: &["authorizationUrl", "tokenUrl", "refreshUrl", "scopes"], nested: &[] };

/// Removes default values and `null` from a card. `null` means absent in ProtoJSON. Unknown fields stay.
pub(crate) fn without_defaults(card: Value) -> Value {
    apply(&CARD, card)
}

fn apply(shape: &Shape, value: Value) -> Value {
    match value {
        Value::Object(entries) => Value::Object(apply_to_fields(shape, entries)),
        Value::Array(items) => Value::Array(items.into_iter().map(|item| apply(shape, item)).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

fn apply_to_fields(shape: &Shape, entries: Map<String, Value>) -> Map<String, Value> {
    let fields = entries.into_iter().map(|(name, value)| {
        let nested = shape.nested.iter().find(|(key, _)| *key == ANY || *key == name);
        match nested {
            Some((_, nested)) => (name, apply(nested, value)),
            None => (name, value),
        }
    });
    let is_left_out =
        |name: &str, value: &Value| value.is_null() || (shape.implicit.contains(&name) && is_default(value));
    fields.filter(|(name, value)| !is_left_out(name, value)).collect()
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) | Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    }
}
