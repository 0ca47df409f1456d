//! The config of one agent that the process serves, either the config's own agent or a tenant's.

use std::path::Path;
use std::sync::Arc;

use annex_auth::AuthConfig;
use annex_operations::on_lost_turn::OnLostTurn;
use annex_operations::quota::TenantQuota;
use annex_trust::TrustConfig;

use super::tenant::{self, TenantFile};
use super::tenant_text::AdmittedTenant;
use super::{
    AgentConfig, CardConfig, Config, ConfigError, ConfigFile, Document, ExtensionConfig, ReceiptsConfig, TenantConfig,
    credentials, receipts,
};

/// The tables of one agent, and the config of the process. All agents share the config of the process, so an agent
/// costs only the memory for its own tables.
#[derive(Clone, Debug)]
pub(crate) struct ServedConfig {
    pub(crate) process: Arc<Config>,
    pub(crate) card: CardConfig,
    /// The agent. Always set for a tenant.
    pub(super) agent: Option<AgentConfig>,
    pub(crate) extensions: Vec<ExtensionConfig>,
    pub(crate) receipts: Option<ReceiptsConfig>,
    /// The table `[trust]` of a tenant's file, which adds to that of the process.
    pub(crate) trust: Option<TrustConfig>,
    pub(crate) file: Option<ConfigFile>,
    /// The quota of the tenant. `None` for the config's own agent.
    pub(crate) quota: Option<TenantQuota>,
    pub(super) is_tenant: bool,
}

impl ServedConfig {
    /// The tables of the config's own agent.
    pub(crate) fn own(process: &Arc<Config>) -> Self {
        Self {
            card: process.card.clone(),
            agent: process.agent.clone(),
            extensions: process.extensions.clone(),
            receipts: process.receipts,
            trust: None,
            file: process.file.clone(),
            quota: None,
            is_tenant: false,
            process: Arc::clone(process),
        }
    }

    /// Reads a tenant's file. A relative path in `tenant` starts at `folder`.
    ///
    /// # Errors
    /// The file cannot be read, or a key or value is wrong.
    pub(crate) fn of_tenant(tenant: &TenantConfig, process: &Arc<Config>, folder: &Path) -> Result<Self, ConfigError> {
        let path = folder.join(&tenant.config);
        let text = tenant::text(&path)?;
        let mut document = Document::parse(&path, &text);
        let served = Self::decode_tenant(tenant, process, &mut document);
        let served = document.into_checked(served)?;
        Ok(Self { file: Some(ConfigFile::of_tenant(&path, &text)), ..served })
    }

    /// Decodes the text of a tenant's file and notes all mistakes. Keys, tables and list elements with a mistake are
    /// left out. `None` if the rest cannot be decoded.
    pub(crate) fn decode_tenant(
        tenant: &TenantConfig,
        process: &Arc<Config>,
        document: &mut Document<'_>,
    ) -> Option<Self> {
        let TenantFile { card, agent, extensions, receipts, trust } = tenant::decode(document)?;
        for (key, reason) in process.check_card(&card, Some(&agent)) {
            document.wrong(key, reason);
        }
        let checks = [
            agent.check_lost_turn(&process.tasks),
            agent.check_exchange(process.auth.as_ref()),
            receipts::check(receipts.as_ref(), &card),
        ];
        for (key, reason) in checks.into_iter().filter_map(Result::err) {
            document.wrong(key, reason);
        }
        Some(Self {
            process: Arc::clone(process),
            card,
            agent: Some(agent),
            extensions,
            receipts,
            trust,
            file: None,
            quota: Some(tenant.quota.clone()),
            is_tenant: true,
        })
    }

    /// The config of an added tenant. [`wrong_as_added`](Self::wrong_as_added) must check it before use.
    pub(crate) fn of_added(tenant: AdmittedTenant, process: &Arc<Config>) -> Self {
        let AdmittedTenant { quota, card, agent, extensions, receipts } = tenant;
        Self {
            process: Arc::clone(process),
            card,
            agent: Some(agent),
            extensions,
            receipts,
            trust: None,
            file: None,
            quota: Some(quota),
            is_tenant: true,
        }
    }

    /// Checks an added tenant against the config of the process. Returns each mistake as a pair of key and reason.
    pub(crate) fn wrong_as_added(&self) -> Vec<(&'static str, &'static str)> {
        let mut wrong = self.process.check_card(&self.card, self.agent.as_ref());
        wrong.extend(receipts::check(self.receipts.as_ref(), &self.card).err());
        if let Some(agent) = &self.agent {
            wrong.extend(agent.check_lost_turn(&self.process.tasks).err());
            wrong.extend(check_exchanged(agent).err());
            wrong.extend(check_forwarded(agent, self.process.auth.as_ref()).err());
        }
        wrong
    }

    /// The agent that is served.
    ///
    /// # Errors
    /// The config has no `[agent]`.
    pub(crate) fn agent(&self) -> Result<&AgentConfig, ConfigError> {
        self.agent.as_ref().map_or_else(|| self.process.agent(), Ok)
    }

    /// The handling of turns whose process has died. The turns of an agent that is compiled into the program fail.
    pub(crate) fn on_lost_turn(&self) -> OnLostTurn {
        self.agent().map(AgentConfig::on_lost_turn).unwrap_or_default()
    }

    /// The metadata keys of messages that only an upstream agent gets, and that are not stored.
    pub(crate) fn forgotten_keys(&self) -> Vec<String> {
        self.agent().map(AgentConfig::forgotten_keys).unwrap_or_default()
    }

    /// True if clients of A2A 0.3 are served.
    pub(crate) fn speaks_v0_3(&self) -> bool {
        self.process.server.a2a_0_3
    }

    /// The folder of managed extensions. `None` for a tenant.
    pub(crate) fn extensions_dir(&self) -> Option<&Path> {
        self.process.runtime.extensions_dir.as_deref().filter(|_| !self.is_tenant)
    }
}

/// Checks that the upstream agent of an added tenant gets no credentials of callers. With such credentials the upstream
/// agent could call any other tenant in the name of the caller.
fn check_forwarded(agent: &AgentConfig, auth: Option<&AuthConfig>) -> Result<(), (&'static str, &'static str)> {
    let AgentConfig::Upstream { upstream, .. } = agent else { return Ok(()) };
    if upstream.headers_forward.iter().any(|name| credentials::is_credential(name, auth)) {
        return Err((
            "agent.headers_forward",
            "has a field with the credentials of callers for this server; leave it out",
        ));
    }
    Ok(())
}

/// Checks that the authorization server of an added tenant gets no tokens of callers.
fn check_exchanged(agent: &AgentConfig) -> Result<(), (&'static str, &'static str)> {
    let reason = "is \"token_exchange\", which would send the tokens of callers for this server to the tenant's authorization \
                  server; take \"client_credentials\"";
    if agent.exchanges_tokens() { Err(("agent.oauth.grant", reason)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use super::ServedConfig;
    use crate::config::Config;

    #[test]
    fn all_tenants_share_the_config_of_the_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let agent = "[card]\nname = \"n\"\ndescription = \"d\"\n[agent]\nkind = \"script\"\nname = \"a\"\nrule = []\n";
        fs::write(folder.path().join("a.toml"), agent).expect("a file");
        let tenants = "[[tenant]]\nname = \"one\"\nconfig = \"a.toml\"\n[tenant.quota]\nturns = 7\n\
                       [[tenant]]\nname = \"other\"\nconfig = \"a.toml\"\n";
        let server = "[runtime]\nextensions_dir = \"e\"\n";
        let config = Config::parse(Path::new("annex.toml"), &format!("{agent}{server}{tenants}")).expect("a config");
        let config = Arc::new(config);
        let served = config
            .tenants
            .iter()
            .map(|tenant| ServedConfig::of_tenant(tenant, &config, folder.path()).expect("a tenant"));
        let [one, other] = served.collect::<Vec<_>>().try_into().expect("two tenants");
        assert!(Arc::ptr_eq(&one.process, &config) && Arc::ptr_eq(&other.process, &config));
        let turns = |served: &ServedConfig| served.quota.as_ref().expect("a tenant has one").turns;
        assert_eq!((turns(&one), turns(&other)), (Some(7), None));
        assert!(one.speaks_v0_3());
        assert!(one.extensions_dir().is_none(), "the folder is for the config itself");
    }
}
