//! `[[extension]]` in the text of a tenant.

use std::collections::BTreeMap;

use annex_registry::is_reference;
use serde::Deserialize;

use super::super::{
    ActivateConfig, AgentStepsGrantConfig, CallerGrantConfig, ExtensionConfig, ExtensionPlace, GrantsConfig,
    HttpGrantConfig, HttpRuleConfig, InstancesConfig, KeyValueGrantConfig, LimitsConfig, LiveCardGrantConfig,
    OnFailureConfig, ReadsConfig, SessionStateGrantConfig,
};
use super::lent::Admission;

/// The length of a digest in bytes.
const DIGEST: usize = "sha256:".len() + 64;

/// A table `[[extension]]` of a tenant's text, with the keys that a text may have.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextExtension {
    /// A digest, the bare name of a component that ships with Annex, a reference of `tenants.components`, or a reference
    /// with a digest to a registry of `tenants.registries`.
    component: String,
    #[serde(default)]
    required: bool,
    #[serde(default)]
    activate: ActivateConfig,
    allow: Option<Vec<String>>,
    #[serde(default)]
    reads: ReadsConfig,
    #[serde(default)]
    grants: TextGrants,
    #[serde(default)]
    limits: LimitsConfig,
    #[serde(default)]
    on_failure: OnFailureConfig,
    #[serde(default)]
    instances: InstancesConfig,
    instance_turns: Option<u32>,
    #[serde(default)]
    parameters: toml::Table,
}

/// The table `[extension.grants]` of a tenant's text.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TextGrants {
    clock: bool,
    random: bool,
    http: Option<TextHttp>,
    keyvalue: Option<KeyValueGrantConfig>,
    /// The lent secrets that the extension can read. A key is the name that the extension uses, and its value is the
    /// name in `[tenants.secrets]`.
    secrets: BTreeMap<String, String>,
    #[serde(rename = "session-state")]
    session_state: Option<SessionStateGrantConfig>,
    task: bool,
    tasks: bool,
    #[serde(rename = "task-resumption")]
    task_resumption: bool,
    #[serde(rename = "agent-steps")]
    agent_steps: AgentStepsGrantConfig,
    /// What the extension sees of the caller. Claims and header fields must be lent in `[tenants]`.
    caller: Option<CallerGrantConfig>,
    #[serde(rename = "task-metadata")]
    task_metadata: bool,
    #[serde(rename = "forget-metadata")]
    forget_metadata: bool,
    #[serde(rename = "rewrite-message")]
    rewrite_message: bool,
    #[serde(rename = "rewrite-answer")]
    rewrite_answer: bool,
    answer: bool,
    reads: bool,
    /// How often the extension may change its entry on the card.
    #[serde(rename = "live-card")]
    live_card: Option<LiveCardGrantConfig>,
}

/// The key `http = { allow = […], … }` of a tenant's text. It cannot allow private addresses.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextHttp {
    allow: Vec<HttpRuleConfig>,
    max_response_bytes: Option<usize>,
    timeout_ms: Option<u64>,
}

impl TextExtension {
    /// The number of callers in `allow`.
    pub(super) fn allowed(&self) -> usize {
        self.allow.as_ref().map_or(0, Vec::len)
    }

    /// Checks the extension, and replaces the names of secrets. `table` is the config key of the extension, such as
    /// `extension[0]`.
    pub(super) fn admit(self, table: &str, admission: &mut Admission<'_>) -> ExtensionConfig {
        let component = self.component;
        let is_name = is_bare_name(&component);
        let is_reference = is_reference(&component);
        let is_pulled = is_reference && admission.check_reference(&format!("{table}.component"), &component);
        if !is_reference && !is_name && !is_digest(&component) {
            let reason = format!(
                "{component:?} is neither a digest nor a component that ships; name a component that was uploaded, or one \
                 of tenants.components, by its digest (`sha256:` and 64 hexadecimal digits, as `annex inspect` shows it)"
            );
            admission.refuse(format!("{table}.component"), reason);
        }
        ExtensionConfig {
            // Everything but a name of a shipped component and a reference of the operator must have the digest of this
            // text, so no path is opened.
            digest: (!is_name && !is_reference).then(|| component.clone()),
            is_pulled,
            component,
            place: ExtensionPlace::default(),
            required: self.required,
            activate: self.activate,
            allow: self.allow,
            reads: self.reads,
            grants: self.grants.admit(&format!("{table}.grants"), admission),
            limits: self.limits,
            on_failure: self.on_failure,
            instances: self.instances,
            instance_turns: self.instance_turns,
            parameters: self.parameters,
        }
    }
}

/// True for a digest in the form of [`annex_runtime::Digest`].
fn is_digest(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == DIGEST && text.strip_prefix("sha256:").is_some_and(|digits| digits.bytes().all(is_digit))
}

/// True for a name without separators. Such a name cannot lead out of the folder of shipped components.
fn is_bare_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    !text.is_empty() && text.bytes().all(is_plain)
}

impl TextGrants {
    /// Checks the grants, and replaces the names of secrets. `table` is the config key of the grants.
    fn admit(self, table: &str, admission: &mut Admission<'_>) -> GrantsConfig {
        let secrets = self.secrets.into_iter().filter_map(|(name, of)| {
            let secret = admission.secret(&format!("{table}.secrets.{name}"), &of)?.clone();
            Some((name, secret))
        });
        let secrets = secrets.collect();
        if let Some(keyvalue) = &self.keyvalue {
            let most = KeyValueGrantConfig::default();
            for (key, given, most) in [
                ("max_keys", keyvalue.max_keys, most.max_keys),
                ("max_value_bytes", keyvalue.max_value_bytes, most.max_value_bytes),
                ("max_total_bytes", keyvalue.max_total_bytes, most.max_total_bytes),
                ("max_scoped_keys", keyvalue.max_scoped_keys, most.max_scoped_keys),
                ("max_scoped_bytes", keyvalue.max_scoped_bytes, most.max_scoped_bytes),
            ] {
                admission.check_most(&format!("{table}.keyvalue.{key}"), (Some(given), most));
            }
        }
        if let Some(caller) = &self.caller {
            admission.check_caller(&format!("{table}.caller"), caller);
        }
        if let Some(live_card) = self.live_card {
            admission.check_live_card(&format!("{table}.live-card"), live_card);
        }
        GrantsConfig {
            clock: self.clock,
            random: self.random,
            http: self.http.map(|http| http.admit(&format!("{table}.http"), admission)),
            keyvalue: self.keyvalue,
            secrets,
            session_state: self.session_state,
            task: self.task,
            tasks: self.tasks,
            task_resumption: self.task_resumption,
            agent_steps: self.agent_steps,
            caller: self.caller,
            task_metadata: self.task_metadata,
            forget_metadata: self.forget_metadata,
            rewrite_message: self.rewrite_message,
            rewrite_answer: self.rewrite_answer,
            answer: self.answer,
            reads: self.reads,
            live_card: self.live_card,
        }
    }
}

impl TextHttp {
    fn admit(self, table: &str, admission: &mut Admission<'_>) -> HttpGrantConfig {
        let most = super::super::grants::max_response_bytes();
        admission.check_most(&format!("{table}.max_response_bytes"), (self.max_response_bytes, most));
        HttpGrantConfig {
            allow: self.allow,
            max_response_bytes: self.max_response_bytes.unwrap_or(most),
            timeout_ms: self.timeout_ms.unwrap_or_else(super::super::grants::timeout_ms),
            allow_private: Vec::new(),
        }
    }
}
