//! The operator's parameters, from `wasi:config/store`.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::bindings::capabilities::wasi::config::store;

/// The key under which the host gives all parameters as one JSON object.
const ALL_PARAMETERS: &str = "annex:parameters";

/// For an extension without parameters: any that the operator sets is an error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParameters {}

/// Reads them from the host. The error is for the operator.
pub(crate) fn read<P: DeserializeOwned>() -> Result<P, String> {
    match store::get(ALL_PARAMETERS) {
        Ok(text) => parse(text.as_deref()),
        Err(store::Error::Upstream(cause) | store::Error::Io(cause)) => {
            Err(format!("the parameters are out of reach: {cause}"))
        }
    }
}

/// Parameters that were never set are an empty object.
fn parse<P: DeserializeOwned>(text: Option<&str>) -> Result<P, String> {
    serde_json::from_str(text.unwrap_or("{}")).map_err(|error| format!("the parameters do not fit: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Greeting {
        #[serde(default)]
        text: String,
    }

    #[test]
    fn parameters_that_were_never_set_are_an_empty_object() {
        assert_eq!(parse::<NoParameters>(None), Ok(NoParameters {}));
        assert_eq!(parse::<Greeting>(None), Ok(Greeting { text: String::new() }));
    }

    #[test]
    fn an_unknown_parameter_is_named() {
        let error = parse::<Greeting>(Some(r#"{"txet": "hi"}"#)).unwrap_err();
        assert!(error.contains("`txet`"), "{error}");
    }

    #[test]
    fn an_extension_without_parameters_takes_none() {
        assert!(parse::<NoParameters>(Some(r#"{"text": "hi"}"#)).is_err());
    }
}
