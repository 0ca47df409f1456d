//! The operator's parameters, from `wasi:config/store`.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::imports::config;

/// The key for all parameters, as one JSON object.
pub(crate) const ALL_PARAMETERS: &str = "annex:parameters";

/// The parameters of an extension without parameters. Any parameter in the operator's config is an error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParameters {}

/// A type for an extension's parameters. The first hook that runs in an instance reads the parameters, once.
///
/// All types that serde can deserialize implement this trait. Implement it by hand for a type that reads single
/// parameters without parsing the others. Only the descriptor's parameter schema then refuses a misspelt parameter.
pub trait FromConfig: Sized {
    /// Reads the parameters from the host.
    ///
    /// # Errors
    /// An error fails the load; its text is for the operator.
    fn from_config(config: &Config) -> Result<Self, String>;
}

impl<P: DeserializeOwned> FromConfig for P {
    fn from_config(config: &Config) -> Result<Self, String> {
        parse(config.get(ALL_PARAMETERS)?.as_deref())
    }
}

/// Access to the parameters in the host.
#[derive(Debug)]
pub struct Config(());

impl Config {
    pub(crate) const HOST: Self = Self(());

    /// A parameter: a string unchanged, any other value as JSON text. `None` if the operator has not set the parameter.
    ///
    /// # Errors
    /// The host could not read the parameter; the text is for the operator.
    pub fn get(&self, key: &str) -> Result<Option<String>, String> {
        // Authors need no distinction between the kinds of errors.
        config::get(key).map_err(|error| match error {
            config::Error::Upstream(cause) | config::Error::Io(cause) => {
                format!("the parameters cannot be read: {cause}")
            }
        })
    }
}

/// Parses the parameters. Missing parameters are an empty object.
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
