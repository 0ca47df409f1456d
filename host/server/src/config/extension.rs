//! `[[extension]]`: one installed extension.

use std::path::Path;

use annex_auth::AuthConfig;
use annex_protocol::{Json, JsonObject};
use annex_runtime::{Activate, AllowedCaller, AllowedCallers, Installation, Instances, OnFailure, Selection};
use serde::{Deserialize, Serialize};

use super::document::ConfigText;
use super::grants::GrantsConfig;
use super::limits::LimitsConfig;

/// One installed extension.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExtensionConfig {
    /// A path, relative to the config, or the bare name of a component that ships with Annex.
    #[serde(skip_serializing)]
    pub component: String,
    /// The digest that the component must have; only a tenant that was added names one.
    #[serde(skip)]
    pub(crate) digest: Option<String>,
    /// Where it stands.
    #[serde(skip)]
    pub(crate) place: ExtensionPlace,
    /// Refuse requests that it is not active for. Default false.
    #[serde(default)]
    pub required: bool,
    /// What makes it active for a request. Default `requested`.
    #[serde(default)]
    pub activate: ActivateConfig,
    /// The callers that it is active for, as `principal:ID` or `claim:NAME=VALUE`. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// The grants. Default: none.
    #[serde(default)]
    pub grants: GrantsConfig,
    /// The limits of its calls.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// The consequence that its failure has for a request. Default `reject`.
    #[serde(default)]
    pub on_failure: OnFailureConfig,
    /// The life of its instances. Default `fresh`.
    #[serde(default)]
    pub instances: InstancesConfig,
    /// Turns that a kept instance serves. Default 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_turns: Option<u32>,
    /// Its own parameters.
    #[serde(default)]
    pub parameters: toml::Table,
}

/// Where an `[[extension]]` stands in a config, if it stands in one.
#[derive(Clone, Debug, Default)]
pub struct ExtensionPlace(Option<Box<(ConfigText, usize)>>);

// An extension that is moved in the config is the same one.
impl PartialEq for ExtensionPlace {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ExtensionPlace {}

impl ExtensionPlace {
    /// The text of the config that it stands in.
    pub(crate) fn text(&self) -> Option<&ConfigText> {
        self.0.as_deref().map(|(text, _)| text)
    }

    /// The file, the line and the column of the first of its keys that is there, or else of all of it. `None` where it
    /// stands in no config.
    pub(crate) fn locate(&self, keys: &[String]) -> Option<String> {
        let (text, number) = self.0.as_deref()?;
        let itself = format!("extension[{number}]");
        let keys = keys.iter().map(|key| format!("{itself}.{key}")).chain([itself.clone()]);
        text.locate(&keys.collect::<Vec<_>>())
    }
}

/// Notes in each extension where it stands.
pub(super) fn set_places(extensions: &mut [ExtensionConfig], text: &ConfigText) {
    for (number, extension) in extensions.iter_mut().enumerate() {
        extension.place = ExtensionPlace(Some(Box::new((text.clone(), number))));
    }
}

/// The keys of an `[[extension]]` beside `component` and `required`.
const KEYS: [&str; 8] =
    ["activate", "allow", "grants", "limits", "on_failure", "instances", "instance_turns", "parameters"];

/// The most entries of `allow`: each request looks at them.
const MAX_ALLOWED: usize = 100;

/// What makes an extension active for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ActivateConfig {
    /// The client asks for it.
    #[default]
    Requested,
    /// The same, or the message bears its metadata or names it.
    Metadata,
    /// Every message.
    Always,
}

/// The consequence for a request that an extension fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailureConfig {
    /// It is refused, or its task fails.
    #[default]
    Reject,
    /// It goes on without the extension.
    Skip,
}

/// The life of the instances of an extension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InstancesConfig {
    /// Each serves one turn.
    #[default]
    Fresh,
    /// Each serves one turn after the other, and is put back in between.
    Kept,
}

impl ExtensionConfig {
    /// The digest of a component that was uploaded; `None` for one that is a file.
    pub(crate) fn uploaded(&self) -> Option<&str> {
        // A component of a tenant's text that is a file has its path by the time it is loaded.
        self.digest.as_deref().filter(|digest| *digest == self.component)
    }

    /// The installation as the runtime takes it. Files are looked for in `folder`, and no limit may be above `ceiling`.
    ///
    /// # Errors
    /// The key and what is wrong with its value.
    pub(crate) fn installation(
        &self,
        folder: &Path,
        ceiling: &LimitsConfig,
    ) -> Result<Installation, (&'static str, String)> {
        let parameters = self.parameters.iter().map(|(key, value)| Ok((key.clone(), json(value)?)));
        let parameters = parameters.collect::<Result<JsonObject, String>>().map_err(|reason| ("parameters", reason))?;
        Ok(Installation {
            grants: self.grants.to_grants(folder)?,
            limits: self.limits.to_limits(ceiling)?,
            parameters,
            required: self.required,
            selection: Selection { activate: self.activate.to_activate(), allow: self.allow()? },
            on_failure: self.on_failure()?,
            instances: self.instances()?,
        })
    }

    /// Checks that the server can tell the callers of `allow` from others.
    ///
    /// # Errors
    /// The key and what is wrong with its value.
    pub(crate) fn check_callers(&self, auth: Option<&AuthConfig>) -> Result<(), (&'static str, String)> {
        let Some(allow) = &self.allow else { return Ok(()) };
        let Some(auth) = auth else {
            let reason = "names callers, and without [auth] nobody knows who calls; add [auth] or leave it out";
            return Err(("allow", reason.to_owned()));
        };
        match allow.iter().find(|caller| caller.starts_with("claim:")) {
            Some(claim) if auth.jwt.is_none() => {
                let reason = format!("has {claim:?}, and only tokens have claims; add [auth.jwt] or name principals");
                Err(("allow", reason))
            }
            _ => Ok(()),
        }
    }

    /// True if no server starts without it: every request that it is for needs it, or is to be seen by it.
    pub(crate) fn must_load(&self) -> bool {
        let is_rule = self.activate == ActivateConfig::Always && self.on_failure == OnFailureConfig::Reject;
        self.required || is_rule
    }

    /// The installation of a component that is loaded without a server around it: `settings` are the keys of an
    /// `[[extension]]` but for `component`, and files that they name are looked for in `folder`.
    ///
    /// # Errors
    /// What is wrong with the settings.
    pub fn read_installation(settings: &str, folder: &Path) -> Result<Installation, String> {
        let config = Self::from_settings("component", settings)?;
        // Without a server there is no `[runtime.ceiling]`, and only the engine's own holds.
        config.installation(folder, &LimitsConfig::default()).map_err(|(key, reason)| format!("{key} {reason}"))
    }

    /// Reads the keys of an `[[extension]]` but for `component`, which is the file of that name.
    pub(crate) fn from_settings(name: &str, text: &str) -> Result<Self, String> {
        let mut table: toml::Table = toml::from_str(text).map_err(|error| one_line(&error))?;
        if table.insert("component".to_owned(), format!("{name}.wasm").into()).is_some() {
            return Err("`component` is the file beside it; leave it out".to_owned());
        }
        table.try_into().map_err(|error: toml::de::Error| one_line(&error))
    }

    /// True if settings in which something is wrong still say that a server may start without the extension: it is not always
    /// active, and not required by `required = false`, or by leaving it out where no key can be a misspelt `required`.
    pub(crate) fn broken_settings_are_optional(text: &str) -> bool {
        let Ok(table) = toml::from_str::<toml::Table>(text) else { return false };
        // A value that is misspelt may be meant as `always`.
        let may_be_always = |activate: &toml::Value| !matches!(activate.as_str(), Some("requested" | "metadata"));
        if table.get("activate").is_some_and(may_be_always) {
            return false;
        }
        match table.get("required") {
            Some(required) => required.as_bool() == Some(false),
            None => table.keys().all(|key| KEYS.contains(&key.as_str())),
        }
    }

    /// The keys as JSON, without `component`. Secrets are named and not there.
    pub(crate) fn to_json(&self) -> Json {
        let whole = || {
            let mut settings = JsonObject::parse(Json::from_serialize(self)?.get())?;
            // As the extension gets them: dates are texts.
            let parameters = self.parameters.iter().filter_map(|(key, value)| Some((key.clone(), json(value).ok()?)));
            settings.insert("parameters".to_owned(), parameters.collect::<JsonObject>().to_json()?);
            settings.to_json()
        };
        whole().unwrap_or_else(|_: serde_json::Error| Json::string(""))
    }

    fn allow(&self) -> Result<Option<AllowedCallers>, (&'static str, String)> {
        let Some(allow) = &self.allow else { return Ok(None) };
        let wrong = |reason: String| Err(("allow", reason));
        if allow.is_empty() {
            return wrong("is empty, so that the extension is for nobody; leave it out to have it for all".to_owned());
        }
        if allow.len() > MAX_ALLOWED {
            return wrong(format!("has {} entries, and at most {MAX_ALLOWED} are taken; name a claim", allow.len()));
        }
        let callers = allow.iter().map(|text| {
            AllowedCaller::parse(text).ok_or_else(|| {
                let reason = format!(
                    "has {text:?}; write \"principal:ID\" for one caller or \"claim:NAME=VALUE\" for all whose token has \
                     the claim"
                );
                ("allow", reason)
            })
        });
        callers.collect::<Result<AllowedCallers, _>>().map(Some)
    }

    fn on_failure(&self) -> Result<OnFailure, (&'static str, String)> {
        match self.on_failure {
            OnFailureConfig::Reject => Ok(OnFailure::Reject),
            OnFailureConfig::Skip if self.required => {
                let reason = "is \"skip\", and a request that needs a required extension cannot go on without it; leave \
                              out one of the two";
                Err(("on_failure", reason.to_owned()))
            }
            OnFailureConfig::Skip => Ok(OnFailure::Skip),
        }
    }

    fn instances(&self) -> Result<Instances, (&'static str, String)> {
        match (self.instances, self.instance_turns) {
            (_, Some(0)) => Err(("instance_turns", "is 0; it must be at least 1".to_owned())),
            (InstancesConfig::Kept, turns) => Ok(Instances::Kept { turns: turns.unwrap_or(Instances::TURNS) }),
            (InstancesConfig::Fresh, None) => Ok(Instances::Fresh),
            (InstancesConfig::Fresh, Some(_)) => {
                let reason = "is for kept instances, and each of these serves one turn; set instances = \"kept\" or leave \
                              it out";
                Err(("instance_turns", reason.to_owned()))
            }
        }
    }
}

impl ActivateConfig {
    fn to_activate(self) -> Activate {
        match self {
            Self::Requested => Activate::Requested,
            Self::Metadata => Activate::Metadata,
            Self::Always => Activate::Always,
        }
    }
}

/// TOML as JSON. Dates become strings; numbers that JSON does not have are refused.
fn json(value: &toml::Value) -> Result<Json, String> {
    let value = json_value(value)?;
    Json::from_serialize(&value).map_err(|error| error.to_string())
}

fn json_value(value: &toml::Value) -> Result<serde_json::Value, String> {
    Ok(match value {
        toml::Value::String(text) => text.as_str().into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Float(number) => {
            serde_json::Number::from_f64(*number).ok_or_else(|| format!("{number} is not a number in JSON"))?.into()
        }
        toml::Value::Boolean(flag) => (*flag).into(),
        toml::Value::Datetime(date) => date.to_string().into(),
        toml::Value::Array(items) => items.iter().map(json_value).collect::<Result<Vec<_>, _>>()?.into(),
        toml::Value::Table(table) => {
            let entries = table.iter().map(|(key, value)| Ok((key.clone(), json_value(value)?)));
            entries.collect::<Result<serde_json::Map<_, _>, String>>()?.into()
        }
    })
}

/// The error in one line, without the lines of the file that TOML errors show: they may have secrets.
fn one_line(error: &toml::de::Error) -> String {
    error.message().trim().replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::{ExtensionConfig, KEYS};

    #[test]
    fn broken_settings_are_optional_only_where_they_say_so() {
        let optional = [
            "required = false\n[grants]\nclok = true",
            "[grants]\nclok = true",
            "instances = \"often\"\n[limits]\ncpu = 1",
            "required = false\nreqired = true",
            "activate = \"metadata\"\n[grants]\nclok = true",
        ];
        for text in optional {
            assert!(ExtensionConfig::from_settings("x", text).is_err(), "{text}");
            assert!(ExtensionConfig::broken_settings_are_optional(text), "{text}");
        }
        for text in [
            "reqired = true",
            "required = true\n[grants]\nclok = true",
            "required = \n",
            "required = \"no\"",
            "activate = \"always\"\n[grants]\nclok = true",
            "required = false\nactivate = \"allways\"",
            "activat = \"always\"",
        ] {
            assert!(!ExtensionConfig::broken_settings_are_optional(text), "{text}");
        }
        let error = ExtensionConfig::from_settings("x", "other = 1").expect_err("no such key");
        for key in KEYS.iter().chain(&["component", "required"]) {
            assert!(error.contains(&format!("`{key}`")), "{key}: {error}");
        }
        assert_eq!(error.matches('`').count() / 2, KEYS.len() + 3, "no other key: {error}");
    }

    #[test]
    fn settings_have_the_keys_of_an_extension_without_its_component() {
        assert!(
            ExtensionConfig::from_settings("x", "")
                .is_ok_and(|settings| settings.component == "x.wasm" && !settings.required)
        );
        assert!(
            ExtensionConfig::from_settings("x", "required = true\n[grants]\nclock = true")
                .is_ok_and(|settings| settings.grants.clock)
        );
        for (text, expected) in [("component = \"y\"", "leave it out"), ("clok = 1", "clok"), ("= secret", "key")] {
            let reason = ExtensionConfig::from_settings("x", text).expect_err("a refusal");
            assert!(reason.contains(expected) && !reason.contains("secret"), "{text}: {reason}");
        }
    }
}
