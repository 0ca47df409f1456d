//! The data that all instances of one extension share.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use annex_keyvalue::{KeyValueStore, Scope, Space};
use annex_protocol::{ExtensionUri, Json, JsonObject, Secret};
use annex_schema::{Schemas, ValidatorBudget, Workers};

use crate::confinement::grants::Grants;
use crate::confinement::guest_time::GuestTime;
use crate::confinement::http_sender::Sender;
use crate::confinement::limits::Limits;
use crate::load::installation::Installation;
use crate::observation::log;
use crate::observation::log_tail::LogTail;
use crate::observation::metrics::{Meters, Registry};
use crate::outside::Outside;

/// The data that every store of the extension shares. A guest can change nothing in it but the validators that it had
/// compiled, its last log lines and its counters.
pub(crate) struct Profile {
    pub(crate) uri: ExtensionUri,
    pub(crate) grants: Grants,
    pub(crate) limits: Limits,
    pub(crate) parameters: ParameterTexts,
    /// The metadata keys that the extension owns; none before it has said so.
    pub(crate) metadata_keys: Vec<String>,
    pub(crate) schemas: Schemas,
    /// The last lines that the component wrote.
    pub(crate) log: LogTail,
    /// Its counters, shared with the other versions of the URI.
    pub(crate) meters: Arc<Meters>,
    /// Its keys in the store of the host that outlive turns.
    pub(crate) space: Space,
    pub(crate) services: Services,
}

/// The services of the host for an extension outside of its store.
#[derive(Clone)]
pub(crate) struct Services {
    pub(crate) keyvalue: Arc<dyn KeyValueStore>,
    /// In place of what the host itself has, where the turn brings nothing.
    pub(crate) outside: Outside,
    /// `None` without the grant.
    pub(crate) http: Option<Arc<Sender>>,
    pub(crate) metrics: Arc<Registry>,
    pub(crate) validators: Validators,
    pub(crate) guest_time: GuestTime,
    /// The tenant whose keys it sees; empty where there are no tenants.
    pub(crate) tenant: Arc<str>,
}

/// Bytes of validators that all extensions of a process may keep.
const KEPT_BY_ALL: usize = 64 << 20;
/// Bytes of the validators of methods that one tenant may have installed.
const PINNED_BY_TENANT: usize = 32 << 20;
/// Bytes of validators that the extensions of one tenant may keep.
const KEPT_BY_TENANT: usize = 24 << 20;

/// The host's work with JSON Schemas: its bounds, over the process and for one tenant.
#[derive(Clone)]
pub(crate) struct Validators {
    all: Arc<ValidatorBudget>,
    tenant: Arc<ValidatorBudget>,
    /// Those of methods, which are the operator's choice and are not dropped for others.
    pinned: Arc<ValidatorBudget>,
    workers: Workers,
}

impl Default for Validators {
    fn default() -> Self {
        let all = ValidatorBudget::new(KEPT_BY_ALL);
        // Not a part of `all`: what other extensions keep must not take the room of a method that is installed.
        let pinned = ValidatorBudget::new(PINNED_BY_TENANT);
        Self { tenant: all.part(KEPT_BY_TENANT), all, pinned, workers: Workers::default() }
    }
}

impl Validators {
    /// Those of another tenant.
    pub(crate) fn of_tenant(&self, tenant: &Arc<str>) -> Self {
        let pinned = ValidatorBudget::new(PINNED_BY_TENANT);
        let all = Arc::clone(&self.all);
        // The process has one set of workers, by the number of its cores; tenants add none.
        let workers = self.workers.of_tenant(tenant);
        Self { tenant: self.all.part(KEPT_BY_TENANT), all, pinned, workers }
    }

    pub(crate) fn pinned(&self) -> &Arc<ValidatorBudget> {
        &self.pinned
    }

    /// Those of one extension.
    fn of_extension(&self) -> Schemas {
        Schemas::new(&self.tenant, self.workers.clone())
    }
}

/// The parameters in the forms that a guest can ask for.
pub(crate) struct ParameterTexts {
    /// All of them as one JSON object.
    pub(crate) text: String,
    /// Each by itself: a string as it is, anything else as JSON text.
    pub(crate) plain: BTreeMap<String, String>,
}

impl ParameterTexts {
    fn of(parameters: &JsonObject) -> Self {
        let plain = |value: &Json| value.to::<String>().unwrap_or_else(|_| value.get().to_owned());
        let plain = parameters.iter().map(|(key, value)| (key.to_owned(), plain(value))).collect();
        Self { text: parameters.to_json_string(), plain }
    }
}

impl Profile {
    pub(crate) fn new(uri: ExtensionUri, installation: &Installation, services: Services) -> Self {
        Self {
            space: Space { extension: uri.clone(), scope: Scope::lasting(&services.tenant) },
            meters: services.metrics.of(&uri),
            schemas: services.validators.of_extension(),
            services,
            uri,
            grants: installation.grants.clone(),
            limits: installation.limits,
            parameters: ParameterTexts::of(&installation.parameters),
            metadata_keys: Vec::new(),
            log: LogTail::default(),
        }
    }

    /// A guest's words for a client, as they are but for secrets.
    pub(crate) fn without_secrets<'a>(&'a self, text: &'a str) -> Cow<'a, str> {
        log::without(text, self.grants.secrets.values())
    }

    /// Text in which secrets are replaced, also as JSON and URLs write them.
    pub(crate) fn without_encoded_secrets(&self, text: &str) -> String {
        let in_json = |secret: &Secret| {
            let quoted = serde_json::to_string(secret.expose()).unwrap_or_default();
            Secret::new(quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default())
        };
        let in_url = |secret: &Secret| {
            Secret::new(url::form_urlencoded::byte_serialize(secret.expose().as_bytes()).collect::<String>())
        };
        let secrets = self.grants.secrets.values();
        let encoded: Vec<Secret> = secrets.clone().flat_map(|secret| [in_json(secret), in_url(secret)]).collect();
        log::without(text, secrets.chain(&encoded)).into_owned()
    }

    /// A guest's words as the operator may see them: one line, without secrets.
    pub(crate) fn words(&self, text: &str) -> String {
        log::shown(self, text, self.limits.log_line)
    }
}
