//! Data shared by all instances of one extension.

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
use crate::overrides::ServiceOverrides;

/// Data shared by all stores of one extension. A guest can only change the cached validators, the log tail and the
/// counters.
pub(crate) struct Profile {
    pub(crate) uri: ExtensionUri,
    pub(crate) grants: Grants,
    pub(crate) limits: Limits,
    pub(crate) parameters: ParameterTexts,
    /// Metadata keys that the extension owns. Empty before `describe` was called.
    pub(crate) metadata_keys: Vec<String>,
    pub(crate) schemas: Schemas,
    /// The last log lines of the component.
    pub(crate) log: LogTail,
    /// Counters, shared by all versions of the URI.
    pub(crate) meters: Arc<Meters>,
    /// The space of the extension's lasting keys.
    pub(crate) space: Space,
    pub(crate) services: Services,
}

/// Host services for an extension, outside of its store.
#[derive(Clone)]
pub(crate) struct Services {
    pub(crate) keyvalue: Arc<dyn KeyValueStore>,
    /// Replacements of host services, for turns whose view has no replacements.
    pub(crate) overrides: ServiceOverrides,
    /// Sends HTTP requests. `None` without the grant `http`.
    pub(crate) http: Option<Arc<Sender>>,
    pub(crate) metrics: Arc<Registry>,
    pub(crate) validators: Validators,
    pub(crate) guest_time: GuestTime,
    /// The tenant whose keys the extension sees; empty for a server without tenants.
    pub(crate) tenant: Arc<str>,
}

/// Most bytes of cached validators of all extensions of the process.
const KEPT_BY_ALL: usize = 64 << 20;
/// Most bytes of validators for the installed methods of one tenant.
const PINNED_BY_TENANT: usize = 32 << 20;
/// Most bytes of cached validators of the extensions of one tenant.
const KEPT_BY_TENANT: usize = 24 << 20;

/// Limits for JSON Schema validation, of the process and of one tenant.
#[derive(Clone)]
pub(crate) struct Validators {
    all: Arc<ValidatorBudget>,
    tenant: Arc<ValidatorBudget>,
    /// Budget for validators of methods. The operator installed the methods, so their validators are never evicted.
    pinned: Arc<ValidatorBudget>,
    workers: Workers,
}

impl Default for Validators {
    fn default() -> Self {
        let all = ValidatorBudget::new(KEPT_BY_ALL);
        // Not a part of `all`: validators cached by other extensions must not take the room of an installed method.
        let pinned = ValidatorBudget::new(PINNED_BY_TENANT);
        Self { tenant: all.part(KEPT_BY_TENANT), all, pinned, workers: Workers::default() }
    }
}

impl Validators {
    /// The limits for another tenant. The budget and the workers of the process are shared.
    pub(crate) fn of_tenant(&self, tenant: &Arc<str>) -> Self {
        let pinned = ValidatorBudget::new(PINNED_BY_TENANT);
        let all = Arc::clone(&self.all);
        // The process has one set of workers, depending on the number of cores. Tenants add none.
        let workers = self.workers.of_tenant(tenant);
        Self { tenant: self.all.part(KEPT_BY_TENANT), all, pinned, workers }
    }

    pub(crate) fn pinned(&self) -> &Arc<ValidatorBudget> {
        &self.pinned
    }

    /// The cache of one extension.
    fn of_extension(&self) -> Schemas {
        Schemas::new(&self.tenant, self.workers.clone())
    }
}

/// The parameters in the forms that a guest can request.
pub(crate) struct ParameterTexts {
    /// All parameters as one JSON object.
    pub(crate) text: String,
    /// Each parameter: a string as it is, other values as JSON text.
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

    /// Text of a guest for a client, with secrets replaced.
    pub(crate) fn without_secrets<'a>(&'a self, text: &'a str) -> Cow<'a, str> {
        log::without(text, self.grants.secrets.values())
    }

    /// Text with secrets replaced, including their JSON and URL encodings.
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

    /// Text of a guest for the operator: one line, with secrets replaced.
    pub(crate) fn words(&self, text: &str) -> String {
        log::shown(self, text, self.limits.log_line)
    }
}
