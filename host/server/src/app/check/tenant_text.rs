//! The check of a text for `annex tenant add`, with or without the config of the server.

use std::path::Path;
use std::sync::Arc;

use annex_registry::is_reference;

use super::served::{self, CheckReport, Counts, wrong_in_served};
use crate::config::served::ServedConfig;
use crate::config::tenant_text::{self, TenantText};
use crate::config::{Config, ConfigError, Document, Problem, StoredTenantsConfig, tenant};
use crate::installation::allowed::AllowedComponents;
use crate::installation::named;
use crate::locations::Locations;

/// The warning about a component that the config does not list.
const NOT_HERE: &str = "is not a component of the config; the server accepts the text only if this component was \
                        uploaded (`annex component push`)";

/// The mistake in the config of a server that does not accept the texts of tenants.
const NO_TENANTS: &str = "is missing; without this table a server takes no tenants, so add [tenants]";

/// A config for checking a text without the config of the server. Under this config a text may have every key. Its
/// header for API keys is `authorization`, which a text may never forward.
const ANY_SERVER: &str = "[auth.api_key_header]\nname = \"authorization\"\n[auth.jwt]\nissuer = \"any\"\naudience = []\n\
                          [tasks]\npostgres_env = \"ANY\"\n";

/// The server for which a text is checked.
struct Server {
    config: Arc<Config>,
    /// The secrets, hosts and components that the config lends to tenants. `None` if the config is unknown.
    lent: Option<StoredTenantsConfig>,
    /// The mistakes in the config.
    problems: Vec<Problem>,
}

/// Checks the text of a tenant as the admin API does before it loads components. The report has all mistakes in the
/// text and in the config. Without `config`, the secrets, hosts and uploaded components in the text are not checked,
/// because only the config lists the allowed ones.
pub async fn check_tenant_text(file: &Path, config: Option<&Path>, locations: &Locations) -> CheckReport {
    let Server { config, lent, mut problems } = Server::read(config);
    let (mut warnings, mut extensions) = (Vec::new(), 0);
    match tenant::text(file) {
        Ok(text) => {
            let mut document = Document::parse(file, &text);
            warnings.extend(served::warnings(file, &text));
            let named = match tenant_text::check_length(&text) {
                Ok(()) => check_text(&mut document, &config, lent.as_ref(), locations).await,
                Err(reason) => {
                    document.wrong("", reason);
                    Vec::new()
                }
            };
            extensions = named.len();
            if lent.is_some() {
                let uploaded = named.iter().enumerate().filter(|(_, component)| component.starts_with("sha256:"));
                let remark = |(number, component): (usize, &String)| {
                    document.remark(&format!("extension[{number}].component"), format!("{component} {NOT_HERE}"))
                };
                warnings.extend(uploaded.filter_map(remark));
            }
            problems.extend(tenant_text::with_hint(document.into_problems()));
        }
        Err(error) => problems.extend(error.into_problems()),
    }
    let counts = Counts { extensions, tenants: 0 };
    CheckReport { warnings, outcome: ConfigError::unless_none(problems).map(|()| counts) }
}

/// Notes all mistakes of a text in `document`. Returns the components of the text's extensions. A digest is replaced by
/// the path of the server's file with this digest, if the config lists such a file.
async fn check_text(
    document: &mut Document<'_>,
    config: &Arc<Config>,
    lent: Option<&StoredTenantsConfig>,
    locations: &Locations,
) -> Vec<String> {
    let Some(text) = document.decode::<TenantText>() else { return Vec::new() };
    let (mut checked, wrong) = text.check(lent);
    if lent.is_some() {
        AllowedComponents::of_config(config, locations).replace_digests(&mut checked.extensions);
    }
    let components: Vec<String> = checked.extensions.iter().map(|extension| extension.component.clone()).collect();
    let numbered = components.iter().enumerate().filter(|(_, component)| is_reference(component));
    let references: Vec<String> = numbered.map(|(number, _)| format!("extension[{number}].component")).collect();
    let more = match checked.complete() {
        Ok(admitted) => {
            let tenant = ServedConfig::of_added(admitted, config);
            let wrong = tenant.wrong_as_added().into_iter().map(|(key, reason)| (key.to_owned(), reason.to_owned()));
            wrong.chain(wrong_in_served(&tenant, locations, true).await).collect()
        }
        Err(extensions) => named::wrong(&extensions, locations, config, None),
    };
    // Only the config says which references are locked.
    let is_unknown = |key: &str| lent.is_none() && references.iter().any(|reference| reference == key);
    for (key, reason) in wrong.into_iter().chain(more).filter(|(key, _)| !is_unknown(key)) {
        document.wrong(&tenant_text::key_in_text(&key), reason);
    }
    components
}

impl Server {
    fn read(config: Option<&Path>) -> Self {
        let unknown = |problems| Self { config: Arc::new(any_server()), lent: None, problems };
        let Some(path) = config else { return unknown(Vec::new()) };
        match Config::read(path) {
            Ok(config) => {
                let lent = config.stored_tenants.clone();
                let missing = || {
                    let (path, key, reason) = (path.to_owned(), "tenants".to_owned(), NO_TENANTS.to_owned());
                    Problem { path, place: None, key, reason, example: None }
                };
                let problems = if lent.is_some() { Vec::new() } else { vec![missing()] };
                Self { config: Arc::new(config), lent, problems }
            }
            Err(error) => unknown(error.into_problems()),
        }
    }
}

fn any_server() -> Config {
    toml::from_str(ANY_SERVER).unwrap_or_else(|_| Config::default())
}
