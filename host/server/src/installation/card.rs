//! Assembles the Agent Card from the config and the server's own capabilities. `issuer.rs` adds the installed
//! extensions.

use annex_auth::Authenticator;
use annex_protocol::service::VERSION;
use annex_protocol::v0_3;
use annex_protocol::{AgentCapabilities, AgentCard, AgentInterface, AgentProvider, AgentSkill};

use crate::config::served::ServedConfig;
use crate::config::{BindingConfig, CardConfig, ExtendedCardConfig, SkillConfig};
use crate::paths::{JSONRPC_PATH, REST_PATH};

const GRPC: &str = "GRPC";
const JSONRPC: &str = "JSONRPC";
/// The version of an agent whose config sets none.
const FIRST_VERSION: &str = "1.0.0";

/// Assembles the card of a tenant, without its extensions. If `tenant` is empty, assembles the card of the agent of the
/// config itself.
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
    // Clients copy the tenant of the chosen interface into every request (A2A 1.0 section 8.3.2).
    let current = current.map(|interface| AgentInterface { tenant: tenant.clone(), ..interface });
    let current: Vec<AgentInterface> = current.collect();
    let older = if speaks_v0_3 { interfaces_of_0_3(&current, base_url) } else { Vec::new() };
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
        // The first interface is the preferred one, so the interfaces of 1.0 come first.
        supported_interfaces: current.into_iter().chain(older).collect(),
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

/// The media types that messages may have if the config sets none.
pub(crate) fn default_input_modes() -> Vec<String> {
    vec!["text/plain".to_owned(), "application/json".to_owned()]
}

/// Makes the card of this server in front of a remote agent. Name, description, version, skills and the like come from
/// the remote card, unless the config overrides them. Interfaces and security always describe this server. `own` is the
/// result of [`assemble`].
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
        // The requirements name security schemes of the remote server, which clients do not reach.
        card.skills.iter_mut().for_each(|skill| skill.security_requirements.clear());
    }
    card
}

/// Makes the card for authenticated callers (A2A 1.0 section 3.1.11).
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

/// The interfaces for clients of 0.3, in the order of those of 1.0. gRPC comes last, because the first interface is the main
/// address on a card of 0.3, and some clients of 0.3 call that address without reading its transport.
fn interfaces_of_0_3(current: &[AgentInterface], base_url: &str) -> Vec<AgentInterface> {
    let (grpc, json): (Vec<_>, Vec<_>) =
        current.iter().cloned().partition(|interface| interface.protocol_binding == GRPC);
    json.into_iter().chain(grpc).filter_map(|interface| interface_of_0_3(interface, base_url)).collect()
}

/// The interface for clients of 0.3 that has the binding of `interface`. A request of 0.3 has no field for a tenant, so the
/// URL must name the tenant. `None` if `interface` is a tenant's and the binding has no such URL: only JSON-RPC has one.
fn interface_of_0_3(interface: AgentInterface, base_url: &str) -> Option<AgentInterface> {
    let url = match (interface.protocol_binding.as_str(), &interface.tenant) {
        (_, None) => Some(interface.url),
        (JSONRPC, Some(tenant)) => Some(format!("{}/{tenant}{JSONRPC_PATH}", base_url.trim_end_matches('/'))),
        (_, Some(_)) => None,
    };
    Some(AgentInterface { url: url?, tenant: None, protocol_version: v0_3::VERSION.to_owned(), ..interface })
}

/// The gRPC interface. Its URL is an authority, such as `127.0.0.1:9999` (A2A 1.0 section 4.4.6). All bindings share
/// one port.
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
