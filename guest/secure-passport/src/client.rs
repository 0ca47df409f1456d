//! The client's side: writes a passport.

use annex_sdk::members::Members;
use annex_sdk::{Addition, Outgoing, Rejection, Violation, json, pointer};

use crate::parameters::Parameters;
use crate::passport::Passport;

/// The addition that sends the program's input as a passport. If `sign_as` is set, the passport is signed by that
/// client, and gets the name of that client unless the input has a name. The addition is empty if the program gives no
/// input, or if the call has no message.
///
/// # Errors
/// The agent does not declare the extension. Or the input is not a passport, has a key that the agent does not support,
/// or cannot be signed.
pub fn addition(parameters: &Parameters, call: &Outgoing) -> Result<Addition, Rejection> {
    let (Some(_), Some(input)) = (&call.message, &call.input) else { return Ok(Addition::none()) };
    // A passport tells of a user, so it goes to agents that declare the extension and to no others.
    let Some(declaration) = &call.declaration else {
        let message = format!("cannot be sent: the agent does not declare {}", parameters.uri);
        return Err(Violation::new("", message).into());
    };
    let mut passport = Passport::parse(&named(parameters, input))
        .map_err(|malformed| Violation::new(malformed.pointer, malformed.message))?;
    check_keys(declaration, &passport)?;
    if let Some(client) = &parameters.sign_as {
        let cannot = |error: String| Violation::new("", format!("cannot be signed: {error}"));
        let key = client.signing_key().map_err(cannot)?;
        // The passport is sent in the text that is signed, with the same digits.
        passport = passport.as_signed().map_err(cannot)?;
        passport.signature = key.sign(&passport.canonical().map_err(cannot)?);
    }
    Ok(Addition::entry(parameters.uri.clone(), text(&passport)))
}

/// Adds the name of the signing client to the input, unless the input has a name or no client signs.
fn named(parameters: &Parameters, input: &str) -> String {
    // The name is put in as text, so that the values of the input stay as they were written.
    let has_name = Members::of(input).is_none_or(|fields| fields.get("clientId").is_some());
    match (&parameters.sign_as, input.trim_start().strip_prefix('{')) {
        (Some(client), Some(rest)) if !has_name => {
            let separator = if rest.trim_start().starts_with('}') { "" } else { "," };
            format!(r#"{{"clientId":{}{separator}{rest}"#, json::string(&client.client_id))
        }
        _ => input.to_owned(),
    }
}

/// Checks that the agent supports all keys of the passport. An agent whose declaration lists no keys supports all keys.
fn check_keys(declaration: &str, passport: &Passport) -> Result<(), Rejection> {
    let params = Members::of(declaration).and_then(|entry| entry.get("params")).and_then(Members::of);
    let supported = params.and_then(|params| params.get("supportedStateKeys"));
    let supported: Option<Vec<String>> = supported.and_then(|keys| serde_json::from_str(keys).ok());
    let Some(supported) = supported else { return Ok(()) };
    let unsupported = passport.state.iter().map(|(key, _)| key).filter(|key| !supported.contains(key));
    let violation = |key: &String| Violation::new(pointer::child("/state", key), "is not supported by the agent");
    let violations: Vec<Violation> = unsupported.map(violation).collect();
    if violations.is_empty() { Ok(()) } else { Err(Rejection::Violations(violations)) }
}

fn text(passport: &Passport) -> String {
    let members = passport.state.iter().map(|(key, value)| format!("{}:{value}", json::string(key)));
    let state = members.collect::<Vec<_>>().join(",");
    let optional = [("sessionId", &passport.session_id), ("signature", &passport.signature)];
    let optional = optional.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let optional: String = optional.map(|(name, value)| format!(r#","{name}":{}"#, json::string(value))).collect();
    format!(r#"{{"clientId":{},"state":{{{state}}}{optional}}}"#, json::string(&passport.client_id))
}

#[cfg(test)]
mod tests {
    use annex_sdk::MetadataEntry;
    use annex_sdk::testing;

    use super::*;
    use crate::SecurePassport;
    use crate::parameters::tests::host;

    const SIGNS: &str = r#"{"supported_state_keys": ["tier"], "require_signature": true,
        "sign_as": {"client_id": "c", "algorithm": "hmac-sha256", "secret": "KEY"},
        "clients": [{"client_id": "c", "algorithm": "hmac-sha256", "secret": "KEY"}]}"#;

    fn call(input: &str) -> Outgoing {
        Outgoing {
            declaration: Some(r#"{"uri": "u", "params": {"supportedStateKeys": ["tier"]}}"#.to_owned()),
            input: Some(input.to_owned()),
            ..testing::outgoing()
        }
    }

    fn written(text: &str, input: &str) -> Result<Vec<MetadataEntry>, Rejection> {
        host().parameters(text).before::<SecurePassport>(call(input)).map(|addition| addition.metadata)
    }

    #[test]
    fn what_the_client_signs_passes_the_border() {
        for input in
            [r#"{"state": {"tier": "gold"}}"#, r#"{"clientId": "c", "state": {"tier": 1.0}, "sessionId": "s"}"#]
        {
            let entries = written(SIGNS, input).unwrap();
            let agent = host().parameters(SIGNS);
            let delta = agent.validate::<SecurePassport>(testing::request(), entries).unwrap().unwrap();
            assert!(delta.contains(r#""verified":true"#), "{delta}");
            assert!(agent.log().is_empty());
        }
    }

    #[test]
    fn without_a_key_the_passport_goes_out_as_it_is() {
        let entries = written("{}", r#"{"clientId": "c", "state": {"tier": 1.0}}"#).unwrap();
        assert_eq!(entries[0].value, r#"{"clientId":"c","state":{"tier":1.0}}"#);
    }

    #[test]
    fn input_that_would_not_be_taken_is_not_sent() {
        let pointer = |input| match written("{}", input) {
            Err(Rejection::Violations(violations)) => violations[0].pointer.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(pointer("{}"), "/state");
        assert_eq!(pointer(r#"{"state": {}}"#), "/clientId");
        assert_eq!(pointer(r#"{"clientId": "c", "state": {"shoe": 43}}"#), "/state/shoe");
    }

    #[test]
    fn an_agent_that_does_not_declare_the_extension_is_shown_no_passport() {
        let call = Outgoing { declaration: None, ..call(r#"{"clientId": "c", "state": {}}"#) };
        let refused = host().before::<SecurePassport>(call);
        assert!(matches!(refused, Err(Rejection::Violations(violations)) if violations[0].message.contains("declare")));
    }

    #[test]
    fn calls_without_message_or_input_get_nothing() {
        let calls = [Outgoing { message: None, ..call("{}") }, Outgoing { input: None, ..call("{}") }];
        for call in calls {
            assert_eq!(host().parameters(SIGNS).before::<SecurePassport>(call), Ok(Addition::none()));
        }
    }
}
