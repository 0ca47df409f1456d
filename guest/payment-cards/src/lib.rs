//! Refuses messages with a payment card number in a text or in data.
//!
//! This file has the hook. [`numbers`] finds card numbers in a text, and [`message`] searches the parts of a message.

pub mod message;
pub mod numbers;

use annex_sdk::{Descriptor, Extension, Json, Message, Rejection, Request, Rewrite};
use serde::Deserialize;

/// The extension's URI, unless the parameters set another.
const DEFAULT_URI: &str = "https://annex.example/payment-cards/v1";

/// JSON Schema of the parameters, for the host and for people.
const PARAMETER_SCHEMA: &str = include_str!("../parameters.json");

/// The operator's parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The extension's URI.
    #[serde(default = "default_uri")]
    pub uri: String,
}

fn default_uri() -> String {
    DEFAULT_URI.to_owned()
}

/// The extension. The type has no data: each hook gets the parameters as an argument.
#[derive(Debug)]
pub struct PaymentCards;

impl Extension for PaymentCards {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        Ok(Descriptor {
            name: "payment-cards".to_owned(),
            ..Descriptor::new(parameters.uri.clone(), "Refuses messages with the number of a payment card.")
        })
    }
}

impl Message for PaymentCards {
    fn check(_: &Parameters, _: Request, message: Json) -> Result<Vec<Rewrite>, Rejection> {
        let violations = message::violations(&message);
        if violations.is_empty() { Ok(Vec::new()) } else { Err(Rejection::Violations(violations)) }
    }
}

annex_sdk::export!(PaymentCards: message);

#[cfg(test)]
mod tests {
    use annex_sdk::Rejection;
    use annex_sdk::testing::{self, Host};

    use super::PaymentCards;

    #[test]
    fn a_message_with_a_card_number_is_refused_and_any_other_is_taken_as_it_is() {
        let check = |text: &str| {
            let message = format!(r#"{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"{text}"}}]}}"#);
            Host::new().parameters("{}").check::<PaymentCards>(testing::request(), message)
        };
        assert!(check("Who am I?").is_ok_and(|rewrites| rewrites.is_empty()));
        let Err(Rejection::Violations(violations)) = check("My card is 4111 1111 1111 1111.") else {
            panic!("it is taken")
        };
        assert_eq!(violations[0].pointer, "/message/parts/0/text");
        assert!(!violations[0].message.contains("1111"), "the number is not repeated: {}", violations[0].message);
    }
}
