//! `[[extension]]`: an installed extension and its settings.

use std::path::Path;

use annex_auth::AuthConfig;
use annex_protocol::{Json, JsonObject};
use annex_runtime::{Activate, AllowedCaller, AllowedCallers, Installation, Instances, OnFailure, Readers, Selection};
use serde::{Deserialize, Serialize};

use super::credentials;
use super::document::ConfigText;
use super::grants::GrantsConfig;
use super::limits::LimitsConfig;
use super::wording::Mistake;

/// One installed extension.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExtensionConfig {
    /// A path relative to the config, or the bare name of a component that ships with Annex.
    #[serde(skip_serializing)]
    pub component: String,
    /// The digest that the component must have. Only set for added tenants.
    #[serde(skip)]
    pub(crate) digest: Option<String>,
    /// True for a reference in the text of an added tenant whose component was pulled for the tenant, and is not in
    /// `annex.lock`.
    #[serde(skip)]
    pub(crate) is_pulled: bool,
    /// The position of the `[[extension]]` in the config.
    #[serde(skip)]
    pub(crate) place: ExtensionPlace,
    /// Refuses requests for which the extension is not active. Default false.
    #[serde(default)]
    pub required: bool,
    /// When the extension is active for a request. Default `requested`.
    #[serde(default)]
    pub activate: ActivateConfig,
    /// The callers for whom the extension may be active, as `principal:ID` or `claim:NAME=VALUE`. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// The readers of tasks that see the extension's metadata. Default `all`.
    #[serde(default)]
    pub reads: ReadsConfig,
    /// The permissions of the extension. Default: none.
    #[serde(default)]
    pub grants: GrantsConfig,
    /// The resource limits of the extension's calls.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// The effect of a failure of the extension on a request. Default `reject`.
    #[serde(default)]
    pub on_failure: OnFailureConfig,
    /// The lifetime of instances. Default `fresh`.
    #[serde(default)]
    pub instances: InstancesConfig,
    /// The number of turns that a kept instance serves before a new instance replaces it. Default 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_turns: Option<u32>,
    /// The parameters that are passed to the extension.
    #[serde(default)]
    pub parameters: toml::Table,
}

/// The position of an `[[extension]]` in a config. Empty for an extension that no config has, such as an extension of
/// an added tenant.
#[derive(Clone, Debug, Default)]
pub struct ExtensionPlace(Option<Box<(ConfigText, usize)>>);

// Moving an `[[extension]]` within the config does not change the extension, so all places are equal.
impl PartialEq for ExtensionPlace {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ExtensionPlace {}

impl ExtensionPlace {
    /// The text of the config.
    pub(crate) fn text(&self) -> Option<&ConfigText> {
        self.0.as_deref().map(|(text, _)| text)
    }

    /// The position of the first of `keys` that the extension sets, as `FILE:LINE:COLUMN`. If the extension sets none
    /// of these keys, the position of the `[[extension]]`. `None` without a config.
    pub(crate) fn locate(&self, keys: &[String]) -> Option<String> {
        let (text, number) = self.0.as_deref()?;
        let itself = format!("extension[{number}]");
        let keys = keys.iter().map(|key| format!("{itself}.{key}")).chain([itself.clone()]);
        text.locate(&keys.collect::<Vec<_>>())
    }
}

/// Stores in each extension the position of its `[[extension]]` in `text`.
pub(super) fn set_places(extensions: &mut [ExtensionConfig], text: &ConfigText) {
    for (number, extension) in extensions.iter_mut().enumerate() {
        extension.place = ExtensionPlace(Some(Box::new((text.clone(), number))));
    }
}

/// The keys of an `[[extension]]` except `component` and `required`.
const KEYS: [&str; 9] =
    ["activate", "allow", "reads", "grants", "limits", "on_failure", "instances", "instance_turns", "parameters"];

/// The maximum number of callers in `allow`. Each request is compared with all of them.
const MAX_ALLOWED: usize = 100;

/// When an extension is active for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ActivateConfig {
    /// The extension is active if the client requests it.
    #[default]
    Requested,
    /// The extension is active if the client requests it, if the message has metadata of the extension, or if the
    /// message names the extension's URI.
    Metadata,
    /// The extension is active for every request.
    Always,
}

/// The readers of tasks that see the metadata of an extension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadsConfig {
    /// All readers of the task.
    #[default]
    All,
    /// Readers that the extension is active for.
    Active,
}

/// The effect of an extension's failure on a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailureConfig {
    /// The request is refused, or its task fails.
    #[default]
    Reject,
    /// The request continues without the extension.
    Skip,
}

/// The lifetime of an extension's instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InstancesConfig {
    /// Each turn gets a new instance.
    #[default]
    Fresh,
    /// One instance serves several turns, one after the other. The instance is reset between two turns.
    Kept,
}

impl ExtensionConfig {
    /// The digest of an uploaded component. `None` for a component that is a file.
    pub(crate) fn uploaded(&self) -> Option<&str> {
        // If the digest is that of a file, `component` has been replaced by the file's path before loading.
        self.digest.as_deref().filter(|digest| *digest == self.component)
    }

    /// Converts the settings to the form that the runtime takes. Relative paths start at `folder`, and no limit may
    /// exceed `ceiling`.
    ///
    /// # Errors
    /// The first setting that cannot be used, as a pair of the config key and the reason.
    pub(crate) fn installation(
        &self,
        folder: &Path,
        ceiling: &LimitsConfig,
    ) -> Result<Installation, (&'static str, String)> {
        let parameters = self.parameters()?;
        Ok(Installation {
            grants: self.grants.to_grants(folder)?,
            limits: self.limits.to_limits(ceiling)?,
            parameters,
            required: self.required,
            selection: Selection {
                activate: self.activate.to_activate(),
                allow: self.allow()?,
                readers: self.readers()?,
            },
            on_failure: self.on_failure()?,
            instances: self.instances()?,
        })
    }

    /// Returns each setting that cannot be used, as a pair of the config key and the reason.
    pub(crate) fn wrong(&self, folder: &Path, ceiling: &LimitsConfig) -> Vec<(String, String)> {
        let others = [
            self.parameters().err(),
            self.allow().err(),
            self.readers().err(),
            self.on_failure().err(),
            self.instances().err(),
        ];
        let others = others.into_iter().flatten().chain(self.limits.wrong(ceiling));
        let others = others.map(|(key, reason)| (key.to_owned(), reason));
        self.grants.wrong(folder).into_iter().chain(others).collect()
    }

    fn parameters(&self) -> Result<JsonObject, (&'static str, String)> {
        let parameters = self.parameters.iter().map(|(key, value)| Ok((key.clone(), json(value)?)));
        parameters.collect::<Result<JsonObject, String>>().map_err(|reason| ("parameters", reason))
    }

    /// Checks that `[auth]` can identify the callers of `allow`, and that no grant shows the header field of API keys.
    ///
    /// # Errors
    /// A pair of the config key and the reason.
    pub(crate) fn check_callers(&self, auth: Option<&AuthConfig>) -> Result<(), (&'static str, String)> {
        let mut shown = self.grants.caller.iter().flat_map(|caller| &caller.headers);
        // `wrong` refuses the fields that are never shown.
        let is_key = |name: &&String| credentials::is_credential(name, auth) && !credentials::is_never_shown(name);
        if let Some(name) = shown.find(is_key) {
            return Err(("grants.caller.headers", credentials::refusal(name)));
        }
        let Some(allow) = &self.allow else { return Ok(()) };
        let Some(auth) = auth else {
            let reason = "names callers, but without [auth] all callers are anonymous; add [auth] or leave it out";
            return Err(("allow", reason.to_owned()));
        };
        match allow.iter().find(|caller| caller.starts_with("claim:")) {
            Some(claim) if !auth.accepts_tokens() => {
                let tables = "add [auth.jwt] or [auth.introspection], or name principals";
                let reason = format!("has {claim:?}, but only tokens have claims; {tables}");
                Err(("allow", reason))
            }
            _ => Ok(()),
        }
    }

    /// True if the server must not start without the extension: the extension is required, or it is always active with
    /// `on_failure = "reject"`.
    pub(crate) fn must_load(&self) -> bool {
        let is_rule = self.activate == ActivateConfig::Always && self.on_failure == OnFailureConfig::Reject;
        self.required || is_rule
    }

    /// Parses the settings of a component that is loaded without a server. `settings` is TOML with the keys of an
    /// `[[extension]]` except `component`. Relative paths start at `folder`.
    ///
    /// # Errors
    /// When a setting cannot be parsed or used. The error is the key and the reason, or the message of the parser.
    pub fn read_installation(settings: &str, folder: &Path) -> Result<Installation, String> {
        let config = Self::from_settings("component", settings)?;
        // Without a server there is no `[runtime.ceiling]`, so only the engine's own maximum applies.
        config.installation(folder, &LimitsConfig::default()).map_err(|(key, reason)| format!("{key} {reason}"))
    }

    /// Parses the keys of an `[[extension]]` except `component`. The component of the result is `NAME.wasm`.
    pub(crate) fn from_settings(name: &str, text: &str) -> Result<Self, String> {
        let mut table: toml::Table = toml::from_str(text).map_err(|error| at_its_line(&error, text))?;
        if table.insert("component".to_owned(), format!("{name}.wasm").into()).is_some() {
            return Err("`component` is the file beside it; leave it out".to_owned());
        }
        table.try_into().map_err(|error: toml::de::Error| explained(&error))
    }

    /// True if a server may start without the extension whose settings are `text`, although the settings have mistakes.
    /// False if a misspelt key or value in `text` could stand for `activate = "always"` or `required = true`.
    pub(crate) fn broken_settings_are_optional(text: &str) -> bool {
        let Ok(table) = toml::from_str::<toml::Table>(text) else { return false };
        // A misspelt value may stand for `always`.
        let may_be_always = |activate: &toml::Value| !matches!(activate.as_str(), Some("requested" | "metadata"));
        if table.get("activate").is_some_and(may_be_always) {
            return false;
        }
        match table.get("required") {
            Some(required) => required.as_bool() == Some(false),
            None => table.keys().all(|key| KEYS.contains(&key.as_str())),
        }
    }

    /// The settings as JSON, without `component`. The JSON has no value of a secret, but the name of the environment
    /// variable or file that has the value.
    pub(crate) fn to_json(&self) -> Json {
        let whole = || {
            let mut settings = JsonObject::parse(Json::from_serialize(self)?.get())?;
            // Parameters appear as the extension gets them, with dates as strings.
            let parameters = self.parameters.iter().filter_map(|(key, value)| Some((key.clone(), json(value).ok()?)));
            settings.insert("parameters".to_owned(), parameters.collect::<JsonObject>().to_json()?);
            settings.to_json()
        };
        whole().unwrap_or_else(|_: serde_json::Error| Json::string(""))
    }

    /// The settings as the TOML of a settings file, without the keys that have their defaults. The text has no value of a
    /// secret, as in [`to_json`](Self::to_json).
    pub(crate) fn to_settings(&self) -> String {
        let defaults = Self::from_settings("", "").ok().and_then(|defaults| toml::Table::try_from(&defaults).ok());
        let mut table = toml::Table::try_from(self).unwrap_or_default();
        leave_out_defaults(&mut table, &defaults.unwrap_or_default());
        toml::to_string(&table).unwrap_or_default()
    }

    fn allow(&self) -> Result<Option<AllowedCallers>, (&'static str, String)> {
        let Some(allow) = &self.allow else { return Ok(None) };
        let wrong = |reason: String| Err(("allow", reason));
        if allow.is_empty() {
            return wrong("is empty, so no caller may use the extension; leave it out to allow all callers".to_owned());
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

    fn readers(&self) -> Result<Readers, (&'static str, String)> {
        match self.reads {
            ReadsConfig::All => Ok(Readers::All),
            ReadsConfig::Active if self.activate == ActivateConfig::Always && self.allow.is_none() => {
                let reason = "is \"active\", but with activate = \"always\" the extension is active for each reader, so no \
                              metadata is left out; leave out one of the two, or set allow";
                Err(("reads", reason.to_owned()))
            }
            ReadsConfig::Active => Ok(Readers::Active),
        }
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
                let reason = "is for kept instances, but those of instances = \"fresh\" serve one turn each; set \
                              instances = \"kept\" or leave it out";
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

/// Removes the keys whose values are those of `defaults`, also in inner tables.
fn leave_out_defaults(table: &mut toml::Table, defaults: &toml::Table) {
    for (key, value) in table.iter_mut() {
        if let (Some(inner), Some(of_inner)) = (value.as_table_mut(), defaults.get(key).and_then(toml::Value::as_table))
        {
            leave_out_defaults(inner, of_inner);
        }
    }
    table.retain(|key, value| {
        let is_empty = value.as_table().is_some_and(toml::Table::is_empty);
        defaults.get(key).is_none_or(|default| *value != *default && !is_empty)
    });
}

/// Converts TOML to JSON. Dates become strings. A number that JSON cannot express, such as `nan`, is an error.
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

/// A mistake in text that is not TOML, with its line. The message omits the excerpt of the text that a TOML error
/// includes, because the excerpt may contain secrets.
fn at_its_line(error: &toml::de::Error, text: &str) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    format!("line {line}: {}", error.message().trim().replace('\n', " "))
}

/// A mistake in settings, in the words in which errors of a config are.
fn explained(error: &toml::de::Error) -> String {
    let mut mistake = Mistake::read(error.message());
    if let Mistake::UnknownKey { accepted, .. } = &mut mistake {
        // Settings lie beside their component and do not name it.
        accepted.retain(|key| key != "component");
    }
    mistake.into_text()
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
        let error = ExtensionConfig::from_settings("x", "zzzzzz = 1").expect_err("no such key");
        for key in KEYS.iter().chain(&["required"]) {
            assert!(error.contains(&format!("`{key}`")), "{key}: {error}");
        }
        assert_eq!(error.matches('`').count() / 2, KEYS.len() + 1, "no other key: {error}");
    }

    #[test]
    fn settings_are_written_without_defaults_and_are_the_same_when_they_are_read() {
        for (text, is_empty) in [
            ("", true),
            ("required = true\n[grants]\nclock = true\nlive-card = {}\nkeyvalue = {}", false),
            (
                "activate = \"always\"\n[limits]\ncpu_ms = 5\n[parameters]\nempty = {}\n[parameters.deep]\na = false",
                false,
            ),
            ("[grants]\nagent-steps = { steer = true }\nsession-state = { read = true, scopes = [\"user\"] }", false),
        ] {
            let settings = ExtensionConfig::from_settings("x", text).expect("settings");
            let written = settings.to_settings();
            assert_eq!(ExtensionConfig::from_settings("x", &written), Ok(settings), "{written}");
            assert_eq!(written.is_empty(), is_empty, "{written}");
            assert!(!written.contains("random"), "{written}");
        }
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
        for (text, expected) in [
            ("component = \"y\"", "leave it out"),
            ("[grants]\nclok = 1", "clok: unknown key; did you mean `clock`? it takes `clock`"),
            ("on_failure = \"ignore\"", "\"ignore\" is not accepted; it takes `reject`, `skip`"),
            ("required = 1", "is the number 1; it must be true or false"),
            ("[grants]\n= sesame", "line 2: "),
        ] {
            let reason = ExtensionConfig::from_settings("x", text).expect_err("a refusal");
            assert!(reason.contains(expected) && !reason.contains("sesame"), "{text}: {reason}");
        }
    }
}
