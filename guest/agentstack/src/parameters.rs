//! The operator's parameters.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::forms;
use crate::secrets::{self, Demand};

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = include_str!("../parameters.json");

/// Which extension this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `ui/citation`.
    Citation,
    /// `ui/agent-detail`.
    AgentDetail,
    /// `ui/error`.
    Error,
    /// `services/form`.
    Form,
    /// `ui/form_request`.
    FormRequest,
    /// `ui/settings`, which agentstack's SDK replaces by `services/form`.
    Settings,
    /// `auth/secrets`.
    Secrets,
}

impl Kind {
    /// The URI and the metadata key, as agentstack's SDK has them.
    #[must_use]
    pub fn uri(self) -> &'static str {
        match self {
            Self::Citation => "https://a2a-extensions.agentstack.beeai.dev/ui/citation/v1",
            Self::AgentDetail => "https://a2a-extensions.agentstack.beeai.dev/ui/agent-detail/v1",
            Self::Error => "https://a2a-extensions.agentstack.beeai.dev/ui/error/v1",
            Self::Form => "https://a2a-extensions.agentstack.beeai.dev/services/form/v1",
            Self::FormRequest => "https://a2a-extensions.agentstack.beeai.dev/ui/form_request/v1",
            Self::Settings => "https://a2a-extensions.agentstack.beeai.dev/ui/settings/v1",
            Self::Secrets => "https://a2a-extensions.agentstack.beeai.dev/auth/secrets/v1",
        }
    }

    /// The sentence on the card.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Citation => "Marks the links of an answer as citations.",
            Self::AgentDetail => "Describes the agent for user interfaces.",
            Self::Error => "Adds an error to the status of a failed task.",
            Self::Form => "Takes the values of forms and settings with a message.",
            Self::FormRequest => "Lets a new task wait for a form.",
            Self::Settings => "Takes settings with a message.",
            Self::Secrets => "Lets a task wait for secrets, which are not stored.",
        }
    }

    /// The grants that no import stands for.
    #[must_use]
    pub fn grants(self) -> Vec<String> {
        let grants: &[&str] =
            if self == Self::Secrets { &["forget-metadata", "session-state.scopes.temp"] } else { &[] };
        grants.iter().map(|grant| (*grant).to_owned()).collect()
    }

    /// True if clients send the values of a form.
    #[must_use]
    pub fn is_form(self) -> bool {
        matches!(self, Self::Form | Self::FormRequest | Self::Settings)
    }
}

/// The operator's parameters with defaults filled in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Which extension this is.
    pub extension: Kind,
    detail: Option<Map<String, Value>>,
    /// The title of an error.
    #[serde(default = "error_title")]
    pub title: String,
    /// The form that is filled in before the first message.
    pub initial_form: Option<Value>,
    /// The settings of `services/form`.
    pub settings_form: Option<Value>,
    /// The form for which a new task waits.
    pub form: Option<Value>,
    /// The settings of `ui/settings`.
    pub settings: Option<Value>,
    /// The secrets that each message to the agent must have, by their keys.
    #[serde(default)]
    pub secret_demands: BTreeMap<String, Demand>,
    /// The key of session state for the values of a form.
    #[serde(default = "form_key")]
    pub form_key: String,
    /// The key of session state for the values of settings.
    #[serde(default = "settings_key")]
    pub settings_key: String,
}

fn error_title() -> String {
    "Error".to_owned()
}

fn form_key() -> String {
    "form".to_owned()
}

fn settings_key() -> String {
    "settings".to_owned()
}

impl Parameters {
    /// Checks the rules that the schema cannot express.
    ///
    /// # Errors
    /// A parameter is missing, belongs to another extension, or has an invalid value.
    pub fn check(&self) -> Result<(), String> {
        let given = [
            ("detail", self.detail.is_some(), Kind::AgentDetail),
            ("initial_form", self.initial_form.is_some(), Kind::Form),
            ("settings_form", self.settings_form.is_some(), Kind::Form),
            ("form", self.form.is_some(), Kind::FormRequest),
            ("settings", self.settings.is_some(), Kind::Settings),
            ("secret_demands", !self.secret_demands.is_empty(), Kind::Secrets),
        ];
        if let Some((name, ..)) = given.iter().find(|(_, is_given, kind)| *is_given && *kind != self.extension) {
            return Err(format!("`{name}` belongs to another extension than that in `extension`; remove it"));
        }
        let is_needed = matches!(self.extension, Kind::AgentDetail | Kind::Secrets) || self.extension.is_form();
        if is_needed && !given.iter().any(|(_, is_given, _)| *is_given) {
            let names: Vec<&str> =
                given.iter().filter(|(.., kind)| *kind == self.extension).map(|(name, ..)| *name).collect();
            return Err(format!("`{}` is missing", names.join("` or `")));
        }
        if self.extension == Kind::Form && self.form_key == self.settings_key {
            return Err("`form_key` and `settings_key` are the same; change one of them".to_owned());
        }
        secrets::check(&self.secret_demands).map_err(|error| format!("`secret_demands`: {error}"))?;
        for (name, form, allowed) in [
            ("initial_form", &self.initial_form, forms::FORM_TYPES),
            ("settings_form", &self.settings_form, forms::SETTINGS_TYPES),
            ("form", &self.form, forms::FORM_TYPES),
            ("settings", &self.settings, forms::OLD_SETTINGS_TYPES),
        ] {
            if let Some(form) = form {
                forms::fields(form, allowed).map_err(|error| format!("`{name}`: {error}"))?;
            }
        }
        Ok(())
    }

    /// The params on the card.
    #[must_use]
    pub fn declared(&self) -> Option<Value> {
        match self.extension {
            Kind::Citation | Kind::FormRequest => None,
            Kind::AgentDetail => self.detail.clone().map(Value::Object),
            Kind::Error => Some(json!({"include_stacktrace": false})),
            Kind::Form => {
                Some(json!({"form_demands": {"initial_form": self.initial_form, "settings_form": self.settings_form}}))
            }
            Kind::Settings => self.settings.clone(),
            Kind::Secrets => Some(secrets::params(self)),
        }
    }
}
