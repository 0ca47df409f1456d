//! The server's side: decides whether to trust a passport, and converts it to a state delta.

use annex_sdk::{Json, Location, MetadataEntry, Rejection, Violation, json, log, pointer};

use crate::parameters::{OnMalformed, OnUnsupportedKey, Parameters};
use crate::passport::{Passport, PassportError};

/// The state delta of a request: the passport under the configured key, or `None` without a trusted passport.
///
/// # Errors
/// The request must be refused. The rejection has the reason.
pub fn state_delta(parameters: &Parameters, metadata: &[MetadataEntry]) -> Result<Option<Json>, Rejection> {
    // The public specification puts the passport on the message. An entry on the request is not a passport.
    let shown = metadata.iter().find(|entry| entry.location == Location::Message && entry.key == parameters.uri);
    let Some(entry) = shown else { return Ok(None) };
    let base = entry.pointer();
    let passport = match Passport::parse(&entry.value) {
        Ok(passport) => passport,
        Err(malformed) => return refuse_malformed(parameters, &base, &malformed),
    };
    // The signature covers all keys, so it is verified before a key is dropped.
    let (mut passport, is_verified) = verified(parameters, &base, passport)?;
    check_keys(parameters, &base, &mut passport)?;
    Ok(Some(delta(&parameters.state_key, &passport, is_verified)))
}

fn refuse_malformed(parameters: &Parameters, base: &str, malformed: &PassportError) -> Result<Option<Json>, Rejection> {
    match parameters.on_malformed {
        OnMalformed::Reject => {
            Err(Violation::new(format!("{base}{}", malformed.pointer), malformed.message.clone()).into())
        }
        OnMalformed::Ignore => {
            // No value of the passport goes to the log: it tells of a user.
            log::warn(&format!("a passport is ignored: {} {}", malformed.pointer, malformed.message));
            Ok(None)
        }
    }
}

/// Returns the passport, and true if a known client has signed it. Refuses a wrong signature of a known client. Also
/// refuses a passport without a verified signature if the parameters require one.
fn verified(parameters: &Parameters, base: &str, passport: Passport) -> Result<(Passport, bool), Rejection> {
    let refusal = |message: &str| Err(Violation::new(format!("{base}/signature"), message).into());
    let (Some(signature), Some(client)) = (&passport.signature, parameters.client(&passport.client_id)) else {
        return match (parameters.require_signature, &passport.signature) {
            // The signature of an unknown client proves nothing, but is no reason for a refusal either.
            (false, _) => Ok((passport, false)),
            (true, None) => refusal("is required"),
            (true, Some(_)) => refusal("cannot be verified: the client is not known here"),
        };
    };
    let verifies = client
        .verifying_key()
        // A missing key, or a passport without canonical form, verifies no signature.
        .is_ok_and(|key| passport.canonical().is_ok_and(|signed| key.verifies(&signed, signature)));
    // A verified passport is read from the signed text, so that nothing in it is unsigned.
    match passport.as_signed() {
        Ok(signed) if verifies => Ok((signed, true)),
        _ => refusal("does not verify"),
    }
}

fn check_keys(parameters: &Parameters, base: &str, passport: &mut Passport) -> Result<(), Rejection> {
    let is_supported = |key: &str| parameters.supported_state_keys.iter().any(|supported| supported == key);
    let unsupported: Vec<&str> =
        passport.state.iter().map(|(key, _)| key.as_str()).filter(|key| !is_supported(key)).collect();
    if unsupported.is_empty() {
        return Ok(());
    }
    if parameters.on_unsupported_key == OnUnsupportedKey::Reject {
        let state = format!("{base}/state");
        let violation = |key: &&str| Violation::new(pointer::child(&state, key), "is not supported by this agent");
        // A client can send any number of keys. The answer lists only a readable number.
        return Err(Rejection::Violations(unsupported.iter().take(64).map(violation).collect()));
    }
    // The log gets only the number of keys, because the client chooses the keys and may send many.
    log::warn(&format!("{} keys of a passport are not supported and dropped", unsupported.len()));
    passport.state.retain(|(key, _)| is_supported(key));
    Ok(())
}

/// The state delta: `{"passport": {"clientId": …, "sessionId": …, "verified": …, "state": {…}}}`, with `state_key` in
/// place of `passport`.
fn delta(state_key: &str, passport: &Passport, is_verified: bool) -> Json {
    // Values go on as the text that was sent or signed, so that their digits survive.
    let members = passport.state.iter().map(|(key, value)| format!("{}:{value}", json::string(key)));
    let state = members.collect::<Vec<_>>().join(",");
    let session = passport.session_id.iter().map(|id| format!(r#""sessionId":{},"#, json::string(id)));
    let session: String = session.collect();
    let client = json::string(&passport.client_id);
    format!(
        r#"{{{}:{{"clientId":{client},{session}"verified":{is_verified},"state":{{{state}}}}}}}"#,
        json::string(state_key)
    )
}

#[cfg(test)]
mod tests {
    use annex_sdk::testing::{self, Host};

    use super::*;
    use crate::SecurePassport;
    use crate::parameters::DEFAULT_URI;
    use crate::parameters::tests::{PUBLIC_KEY, host};
    use crate::signature::Key;

    const POINTER: &str = "/message/metadata/https:~1~1github.com~1a2aproject~1a2a-samples~1tree~1main~1samples~1python~1extensions~1secure-passport";

    /// The host of an agent with two known clients; `more` replaces single parameters.
    fn known(more: &str) -> Host {
        host().parameters(format!(
            r#"{{"supported_state_keys": ["tier", "n"], "clients": [
                {{"client_id": "shared", "algorithm": "hmac-sha256", "secret": "KEY"}},
                {{"client_id": "public", "algorithm": "ed25519", "public_key": "{PUBLIC_KEY}"}}
            ]{more}}}"#
        ))
    }

    /// The delta, or the pointer (below the passport) and the text of the first violation.
    fn show(host: &Host, passport: &str) -> Result<Option<String>, (String, String)> {
        let entry =
            MetadataEntry { location: Location::Message, key: DEFAULT_URI.to_owned(), value: passport.to_owned() };
        host.validate::<SecurePassport>(testing::request(), vec![entry]).map_err(|rejection| match rejection {
            Rejection::Violations(violations) => {
                let first = &violations[0];
                (first.pointer.strip_prefix(POINTER).unwrap().to_owned(), first.message.clone())
            }
            Rejection::Error(error) => panic!("{error:?}"),
        })
    }

    /// A passport of the client, signed with the key.
    fn signed(client_id: &str, key: &Key, state: &str) -> String {
        let text = format!(r#"{{"clientId":"{client_id}","state":{state}}}"#);
        let signature = key.sign(&Passport::parse(&text).unwrap().canonical().unwrap()).unwrap();
        format!(r#"{{"clientId":"{client_id}","state":{state},"signature":"{signature}"}}"#)
    }

    fn shared() -> Key {
        Key::hmac("0123456789abcdef").unwrap()
    }

    #[test]
    fn a_passport_without_signature_is_taken_as_unverified_unless_one_is_required() {
        let passport = r#"{"clientId": "c", "sessionId": "s", "state": {"tier": "gold", "n": 1.0}}"#;
        let delta = r#"{"passport":{"clientId":"c","sessionId":"s","verified":false,"state":{"tier":"gold","n":1.0}}}"#;
        assert_eq!(show(&known(""), passport), Ok(Some(delta.to_owned())));
        let refused = show(&known(r#", "require_signature": true"#), passport);
        assert_eq!(refused, Err(("/signature".to_owned(), "is required".to_owned())));
    }

    #[test]
    fn a_signature_of_either_kind_makes_a_passport_verified() {
        let private = Key::private("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8").unwrap();
        for (client, key) in [("shared", shared()), ("public", private)] {
            let delta = show(&known(r#", "require_signature": true"#), &signed(client, &key, r#"{"tier":"gold"}"#));
            let expected =
                format!(r#"{{"passport":{{"clientId":"{client}","verified":true,"state":{{"tier":"gold"}}}}}}"#);
            assert_eq!(delta, Ok(Some(expected)));
        }
    }

    #[test]
    fn a_forged_signature_is_refused_whatever_the_parameters_say() {
        let genuine = signed("shared", &shared(), r#"{"tier":"gold"}"#);
        let forgeries = [
            genuine.replace("gold", "platinum"),
            genuine.replace(r#""clientId":"shared""#, r#""clientId":"public""#),
            genuine.replace(r#""state""#, r#""sessionId":"s","state""#),
            signed("shared", &Key::hmac("another key that is long").unwrap(), r#"{"tier":"gold"}"#),
            r#"{"clientId":"shared","state":{},"signature":"not base64!"}"#.to_owned(),
            r#"{"clientId":"shared","state":{"n":1e400},"signature":"AAAA"}"#.to_owned(),
        ];
        for forged in forgeries {
            let refused = show(&known(""), &forged);
            assert_eq!(refused, Err(("/signature".to_owned(), "does not verify".to_owned())), "{forged}");
        }
    }

    #[test]
    fn the_signature_of_a_client_that_is_not_known_proves_nothing() {
        let passport = signed("stranger", &shared(), r#"{"tier":"gold"}"#);
        let delta = show(&known(""), &passport).unwrap().unwrap();
        assert!(delta.contains(r#""verified":false"#), "{delta}");
        let (pointer, message) = show(&known(r#", "require_signature": true"#), &passport).unwrap_err();
        assert_eq!(pointer, "/signature");
        assert!(message.contains("not known"), "{message}");
    }

    #[test]
    fn what_was_not_signed_does_not_ride_along() {
        let delta = show(&known(""), &signed("shared", &shared(), r#"{"n":9007199254740993}"#)).unwrap().unwrap();
        assert!(delta.contains(r#""state":{"n":9007199254740992}"#), "{delta}");
    }

    #[test]
    fn a_malformed_passport_is_ignored_with_a_warning_or_refused() {
        let host = known("");
        assert_eq!(show(&host, r#"{"clientId": "c", "state": {}, "admin": true}"#), Ok(None));
        assert_eq!(host.log(), ["warn: a passport is ignored: /admin is not a field of a passport"]);
        let refused = show(&known(r#", "on_malformed": "reject""#), r#"{"clientId": "c", "state": []}"#);
        assert_eq!(refused, Err(("/state".to_owned(), "must be a JSON object".to_owned())));
    }

    #[test]
    fn keys_that_are_not_supported_are_dropped_with_a_warning_or_refused() {
        let passport = r#"{"clientId": "c", "state": {"a/b": 1, "tier": "gold"}}"#;
        let host = known("");
        let delta = show(&host, passport).unwrap().unwrap();
        assert!(delta.contains(r#""state":{"tier":"gold"}"#), "{delta}");
        assert_eq!(host.log(), ["warn: 1 keys of a passport are not supported and dropped"]);
        let (pointer, _) = show(&known(r#", "on_unsupported_key": "reject""#), passport).unwrap_err();
        assert_eq!(pointer, "/state/a~1b");
    }

    #[test]
    fn a_request_without_passport_changes_nothing() {
        let request =
            MetadataEntry { location: Location::Request, key: DEFAULT_URI.to_owned(), value: "{}".to_owned() };
        assert_eq!(known("").validate::<SecurePassport>(testing::request(), vec![request]), Ok(None));
    }
}
