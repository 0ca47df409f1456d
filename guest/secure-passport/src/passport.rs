//! The format of a passport, and the bytes of a passport that are signed.

use annex_sdk::Json;
use annex_sdk::members::Members;
use serde_json::Value;

/// The fields that a passport may have.
const FIELDS: [&str; 4] = ["clientId", "state", "signature", "sessionId"];

/// A passport with its values as received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passport {
    /// The name of the client.
    pub client_id: String,
    /// The client's own session.
    pub session_id: Option<String>,
    /// The signature as text.
    pub signature: Option<String>,
    /// The state: each key with its value as JSON text, in the received order.
    pub state: Vec<(String, Json)>,
}

/// The reason why a text is not a passport: a JSON pointer into the text, and a lower-case fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassportError {
    /// The JSON pointer to the fault, relative to the passport.
    pub pointer: String,
    /// The fault, as a lower-case fragment.
    pub message: String,
}

impl PassportError {
    fn new(field: &str, message: impl Into<String>) -> Self {
        let pointer = if field.is_empty() { String::new() } else { annex_sdk::pointer::child("", field) };
        Self { pointer, message: message.into() }
    }
}

impl Passport {
    /// Parses a passport strictly: only its four fields are allowed, each once.
    ///
    /// # Errors
    /// The text is not a passport. The error describes the first fault.
    pub fn parse(text: &str) -> Result<Self, PassportError> {
        let fields = Members::of(text).ok_or_else(|| PassportError::new("", "must be a JSON object"))?;
        // With a repeated field, the signer could use one value and the verifier the other.
        if let Some(field) = fields.repeated() {
            return Err(PassportError::new(field, "must not be repeated"));
        }
        // A field that the signature does not cover must not appear next to signed fields.
        if let Some(field) = fields.keys().find(|field| !FIELDS.contains(field)) {
            return Err(PassportError::new(field, "is not a field of a passport"));
        }
        let state = fields.get("state").ok_or_else(|| PassportError::new("state", "is required"))?;
        let state = Members::of(state).ok_or_else(|| PassportError::new("state", "must be a JSON object"))?;
        if state.repeated().is_some() {
            return Err(PassportError::new("state", "must not have a key twice"));
        }
        Ok(Self {
            client_id: string(&fields, "clientId")?.ok_or_else(|| PassportError::new("clientId", "is required"))?,
            session_id: string(&fields, "sessionId")?,
            signature: string(&fields, "signature")?,
            state: state.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        })
    }

    /// The signed text: the passport without its signature, in the canonical form of RFC 8785 (JCS). Signed numbers are
    /// doubles. A verified passport must therefore be read from this text.
    ///
    /// # Errors
    /// A value has no canonical form, such as a number beyond the range of doubles.
    pub fn canonical(&self) -> Result<Json, String> {
        let mut fields = serde_json::Map::new();
        fields.insert("clientId".to_owned(), Value::from(self.client_id.as_str()));
        // A missing field is omitted and not signed as `null`, because both sides must write the same bytes.
        if let Some(session_id) = &self.session_id {
            fields.insert("sessionId".to_owned(), Value::from(session_id.as_str()));
        }
        let mut state = serde_json::Map::new();
        for (key, value) in &self.state {
            // RFC 8785 writes numbers as doubles, so `1e2` and `100` have one signature.
            state.insert(key.clone(), serde_json::from_str(value).map_err(|error| error.to_string())?);
        }
        fields.insert("state".to_owned(), Value::Object(state));
        serde_json_canonicalizer::to_string(&Value::Object(fields)).map_err(|error| error.to_string())
    }

    /// The passport as read from its canonical form, without the signature.
    ///
    /// # Errors
    /// A value has no canonical form, such as a number beyond the range of doubles.
    pub fn as_signed(&self) -> Result<Self, String> {
        Self::parse(&self.canonical()?).map_err(|malformed| malformed.message)
    }
}

/// Reads a field whose value must be a string that is not empty. `None` if the field is missing. `null` is a fault.
fn string(fields: &Members<'_>, name: &str) -> Result<Option<String>, PassportError> {
    let Some(text) = fields.get(name) else { return Ok(None) };
    match serde_json::from_str::<String>(text) {
        Ok(text) if !text.is_empty() => Ok(Some(text)),
        _ => Err(PassportError::new(name, "must be a string that is not empty")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passport_keeps_its_values_as_they_were_sent() {
        let text =
            r#"{"clientId": "a2a://c", "sessionId": "s", "signature": "x", "state": {"b": 1.0, "a": {"z":1e2}}}"#;
        let passport = Passport::parse(text).unwrap();
        assert_eq!(passport.client_id, "a2a://c");
        assert_eq!((passport.session_id.as_deref(), passport.signature.as_deref()), (Some("s"), Some("x")));
        let state = [("b".to_owned(), "1.0".to_owned()), ("a".to_owned(), r#"{"z":1e2}"#.to_owned())];
        assert_eq!(passport.state, state);
    }

    #[test]
    fn what_is_no_passport_is_refused_where_it_is_wrong() {
        let cases = [
            ("[]", ""),
            ("null", ""),
            (r#"{"state": {}}"#, "/clientId"),
            (r#"{"clientId": "", "state": {}}"#, "/clientId"),
            (r#"{"clientId": 7, "state": {}}"#, "/clientId"),
            (r#"{"clientId": "c"}"#, "/state"),
            (r#"{"clientId": "c", "state": []}"#, "/state"),
            (r#"{"clientId": "c", "state": {"a": 1, "a": 2}}"#, "/state"),
            (r#"{"clientId": "c", "state": {}, "sessionId": null}"#, "/sessionId"),
            (r#"{"clientId": "c", "state": {}, "signature": 1}"#, "/signature"),
            (r#"{"clientId": "c", "state": {}, "agent/Id": "c"}"#, "/agent~1Id"),
            (r#"{"clientId": "c", "state": {}, "clientId": "d"}"#, "/clientId"),
        ];
        for (text, pointer) in cases {
            assert_eq!(Passport::parse(text).unwrap_err().pointer, pointer, "{text}");
        }
    }

    #[test]
    fn the_canonical_form_is_the_same_for_each_way_to_write_a_passport_and_has_no_signature() {
        let expected = r#"{"clientId":"c","sessionId":"s","state":{"a":[1,"ü"],"b":100}}"#;
        let texts = [
            r#"{"clientId":"c","sessionId":"s","state":{"a":[1,"ü"],"b":100}}"#,
            r#"{ "state": {"b": 1e2, "a": [1.0, "\u00fc"]}, "signature": "x", "sessionId": "s", "clientId": "c" }"#,
        ];
        for text in texts {
            assert_eq!(Passport::parse(text).unwrap().canonical().unwrap(), expected);
        }
    }

    #[test]
    fn what_a_signature_does_not_cover_is_not_in_the_signed_passport() {
        let passport = Passport::parse(r#"{"clientId":"c","state":{"n":9007199254740993,"o":{"a":1,"a":2}}}"#).unwrap();
        let signed = passport.as_signed().unwrap();
        let state = [("n".to_owned(), "9007199254740992".to_owned()), ("o".to_owned(), r#"{"a":2}"#.to_owned())];
        assert_eq!(signed.state, state);
        let beyond = Passport::parse(r#"{"clientId":"c","state":{"n":1e400}}"#).unwrap();
        assert!(beyond.canonical().is_err());
    }
}
