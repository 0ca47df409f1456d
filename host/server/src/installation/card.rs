//! The Agent Card: what the config says and what the server can do; `issuer.rs` adds the installed extensions.

use annex_auth::Authenticator;
use annex_protocol::service::VERSION;
use annex_protocol::v0_3;
use annex_protocol::{AgentCapabilities, AgentCard, AgentInterface, AgentProvider, AgentSkill};

use crate::config::served::ServedConfig;
use crate::config::{BindingConfig, CardConfig, ExtendedCardConfig, SkillConfig};
use crate::paths::{JSONRPC_PATH, REST_PATH};

/// The binding that 0.3 is not served by.
const GRPC: &str = "GRPC";
const JSONRPC: &str = "JSONRPC";
/// The version of an agent that the config gives none.
const FIRST_VERSION: &str = "1.0.0";

/// The card of a tenant without extensions; without a name that of the agent of the config itself.
pub(crate) fn assemble(
    config: &ServedConfig,
    tenant: &str,
    base_url: &str,
    authenticator: Option<&Authenticator>,
) -> AgentCard {
    let pushes = config.process.push.is_some();
    let speaks_v0_3 = config.speaks_v0_3();
    let config = &config.card;
    let security = authenticator.map(Authenticator::security_schemes).unwrap_or_default();
    let bindings = config.bindings();
    let current = bindings.iter().map(|binding| match binding {
        BindingConfig::JsonRpc => interface(base_url, JSONRPC_PATH, JSONRPC),
        BindingConfig::HttpJson => interface(base_url, REST_PATH, "HTTP+JSON"),
        BindingConfig::Grpc => grpc_interface(base_url),
    });
    let tenant = (!tenant.is_empty()).then(|| tenant.to_owned());
    // Clients copy the tenant of the interface that they choose into every request (A2A 1.0 section 8.3.2).
    let current = current.map(|interface| AgentInterface { tenant: tenant.clone(), ..interface });
    let older = current.clone().filter(|_| speaks_v0_3).filter_map(|interface| interface_of_0_3(interface, base_url));
    AgentCard {
        name: config.name.clone().unwrap_or_default(),
        description: config.description.clone().unwrap_or_default(),
        version: config.version.clone().unwrap_or_else(|| FIRST_VERSION.to_owned()),
        documentation_url: config.documentation_url.clone(),
        icon_url: config.icon_url.clone(),
        provider: config
            .provider
            .as_ref()
            .map(|provider| AgentProvider { url: provider.url.clone(), organization: provider.organization.clone() }),
        // The first interface is the preferred one, so those of 1.0 stand first.
        supported_interfaces: current.chain(older).collect(),
        capabilities: AgentCapabilities {
            streaming: Some(true),
            push_notifications: Some(pushes),
            extensions: Vec::new(),
            extended_agent_card: config.extended.as_ref().map(|_| true),
        },
        default_input_modes: config.input_modes.clone().unwrap_or_else(default_input_modes),
        default_output_modes: vec!["text/plain".to_owned()],
        skills: config.skills.iter().map(skill).collect(),
        security_schemes: security.schemes,
        security_requirements: security.requirements,
        ..AgentCard::default()
    }
}

/// The media types that messages may have where the config does not say.
pub(crate) fn default_input_modes() -> Vec<String> {
    vec!["text/plain".to_owned(), "application/json".to_owned()]
}

/// The card of an agent that lives elsewhere, decorated: what is its own is its own unless the config says otherwise,
/// how it is reached and by whom is this server's. `own` is the card that [`assemble`] makes without it.
pub(crate) fn decorate(own: &AgentCard, config: &CardConfig, remote: &AgentCard) -> AgentCard {
    let mut card = own.clone();
    let texts = [
        (&mut card.name, config.name.is_none(), &remote.name),
        (&mut card.description, config.description.is_none(), &remote.description),
        (&mut card.version, config.version.is_none(), &remote.version),
    ];
    for (text, is_left_out, of_remote) in texts {
        if is_left_out {
            text.clone_from(of_remote);
        }
    }
    card.documentation_url = card.documentation_url.or_else(|| remote.documentation_url.clone());
    card.icon_url = card.icon_url.or_else(|| remote.icon_url.clone());
    card.provider = card.provider.or_else(|| remote.provider.clone());
    if config.input_modes.is_none() {
        card.default_input_modes.clone_from(&remote.default_input_modes);
    }
    card.default_output_modes.clone_from(&remote.default_output_modes);
    if config.skills.is_empty() {
        card.skills.clone_from(&remote.skills);
        // They name schemes of a server that clients do not reach.
        card.skills.iter_mut().for_each(|skill| skill.security_requirements.clear());
    }
    card
}

/// The card for authenticated callers (section 3.1.11).
pub(crate) fn extend(card: &AgentCard, extended: &ExtendedCardConfig) -> AgentCard {
    let mut card = card.clone();
    if let Some(description) = &extended.description {
        card.description.clone_from(description);
    }
    card.skills.extend(extended.skills.iter().map(skill));
    card
}

fn interface(base_url: &str, path: &str, binding: &str) -> AgentInterface {
    AgentInterface {
        url: format!("{}{path}", base_url.trim_end_matches('/')),
        protocol_binding: binding.to_owned(),
        tenant: None,
        protocol_version: VERSION.to_owned(),
    }
}

/// The interface for clients of 0.3 beside one of 1.0; `None` where 0.3 is not served. A request of 0.3 has no field for a
/// tenant, so its URL names the tenant: JSON-RPC has such a URL.
fn interface_of_0_3(interface: AgentInterface, base_url: &str) -> Option<AgentInterface> {
    let url = match (interface.protocol_binding.as_str(), &interface.tenant) {
        (GRPC, _) => None,
        (_, None) => Some(interface.url),
        (JSONRPC, Some(tenant)) => Some(format!("{}/{tenant}{JSONRPC_PATH}", base_url.trim_end_matches('/'))),
        (_, Some(_)) => None,
    };
    Some(AgentInterface { url: url?, tenant: None, protocol_version: v0_3::VERSION.to_owned(), ..interface })
}

/// For gRPC the URL is an authority (section 4.4.6); all bindings share the port.
fn grpc_interface(base_url: &str) -> AgentInterface {
    let authority = base_url.split_once("://").map_or(base_url, |(_, rest)| rest);
    let authority = authority.split('/').next().unwrap_or_default();
    AgentInterface { url: authority.to_owned(), ..interface(base_url, "", GRPC) }
}

fn skill(config: &SkillConfig) -> AgentSkill {
    AgentSkill {
        id: config.id.clone(),
        name: config.name.clone(),
        description: config.description.clone(),
        tags: config.tags.clone(),
        examples: config.examples.clone(),
        ..AgentSkill::default()
    }
}
