//! The Agent Card of 0.3 (A2A 0.3 section 5.5), alone and merged with the card of 1.0.

use indexmap::IndexMap;
use serde::Serialize;

use super::names::{CARD_VERSION, VERSION};
use super::security::{Requirement, SecurityScheme, requirements};
use crate::{
    AgentCapabilities, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider, AgentSkill,
    SecurityRequirement,
};

/// A card in the form of 0.3 only: the result of `agent/getAuthenticatedExtendedCard` and of `GET /v1/card`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCard<'a> {
    // `flatten` is safe in a type that is only written. Only reading with it loses the text of free-form JSON.
    #[serde(flatten)]
    common: Common<'a>,
    #[serde(flatten)]
    own: Own<'a>,
    capabilities: Capabilities<'a>,
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    security_schemes: IndexMap<&'a str, SecurityScheme<'a>>,
    skills: Vec<Skill<'a>>,
}

impl<'a> AgentCard<'a> {
    /// The 0.3 form of `card`. The first interface on `card` that speaks 0.3 becomes the main interface. `None` if no
    /// interface speaks 0.3.
    pub fn of(card: &'a crate::AgentCard) -> Option<Self> {
        Some(Self {
            common: card.into(),
            own: Own::of(card)?,
            capabilities: (&card.capabilities).into(),
            security_schemes: card
                .security_schemes
                .iter()
                .map(|(name, scheme)| (name.as_str(), scheme.into()))
                .collect(),
            skills: card.skills.iter().map(Skill::from).collect(),
        })
    }
}

/// A card for clients of both versions: the 1.0 card with all fields of 0.3 added. If no interface of the card speaks 0.3, the
/// fields of 0.3 are missing.
///
/// The merged card has the signatures of `card`, which do not cover the added fields. A client that verifies the whole JSON
/// needs a signature over the merged card.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MergedAgentCard<'a> {
    #[serde(flatten)]
    common: Common<'a>,
    supported_interfaces: &'a [AgentInterface],
    capabilities: &'a AgentCapabilities,
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    security_schemes: IndexMap<&'a str, MergedScheme<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    security_requirements: &'a [SecurityRequirement],
    skills: Vec<MergedSkill<'a>>,
    #[serde(flatten)]
    own: Option<Own<'a>>,
}

impl<'a> From<&'a crate::AgentCard> for MergedAgentCard<'a> {
    fn from(card: &'a crate::AgentCard) -> Self {
        // A card without an interface of 0.3 is the one of 1.0 alone, so nothing of 0.3 is added to schemes and skills
        // either.
        let own = Own::of(card);
        let merge = own.is_some();
        let scheme =
            |scheme: &'a crate::SecurityScheme| MergedScheme { of_1_0: scheme, of_0_3: merge.then(|| scheme.into()) };
        let skill = |skill: &'a AgentSkill| {
            let security = if merge { requirements(&skill.security_requirements) } else { Vec::new() };
            MergedSkill { of_1_0: skill, security }
        };
        Self {
            common: card.into(),
            supported_interfaces: &card.supported_interfaces,
            capabilities: &card.capabilities,
            security_schemes: card
                .security_schemes
                .iter()
                .map(|(name, value)| (name.as_str(), scheme(value)))
                .collect(),
            security_requirements: &card.security_requirements,
            skills: card.skills.iter().map(skill).collect(),
            own,
        }
    }
}

/// The fields that are the same in both versions.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Common<'a> {
    name: &'a str,
    description: &'a str,
    version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'a AgentProvider>,
    #[serde(skip_serializing_if = "Option::is_none")]
    documentation_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icon_url: Option<&'a str>,
    default_input_modes: &'a [String],
    default_output_modes: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    signatures: &'a [AgentCardSignature],
}

impl<'a> From<&'a crate::AgentCard> for Common<'a> {
    fn from(card: &'a crate::AgentCard) -> Self {
        Self {
            name: &card.name,
            description: &card.description,
            version: &card.version,
            provider: card.provider.as_ref(),
            documentation_url: card.documentation_url.as_deref(),
            icon_url: card.icon_url.as_deref(),
            default_input_modes: &card.default_input_modes,
            default_output_modes: &card.default_output_modes,
            signatures: &card.signatures,
        }
    }
}

/// The fields that only 0.3 has.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Own<'a> {
    protocol_version: &'a str,
    url: &'a str,
    preferred_transport: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    additional_interfaces: Vec<Interface<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    supports_authenticated_extended_card: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    security: Vec<Requirement<'a>>,
}

#[derive(Clone, Debug, Serialize)]
struct Interface<'a> {
    transport: &'a str,
    url: &'a str,
}

/// The interfaces of a card that speak 0.3.
#[derive(Clone, Debug)]
pub struct Interfaces<'a> {
    /// The version of A2A on a card of 0.3, such as `0.3.0`.
    pub protocol_version: &'a str,
    /// The first interface, which is the main interface of a card of 0.3.
    pub main: &'a AgentInterface,
    /// The other interfaces, in the order of the card.
    pub additional: Vec<&'a AgentInterface>,
}

/// The interfaces of a card that speak 0.3. `None` if the card has no such interface.
pub fn interfaces(card: &crate::AgentCard) -> Option<Interfaces<'_>> {
    // Clients of 0.3 would call an interface of 1.0 in vain, so only those of 0.3 are listed.
    let mut interfaces = card.supported_interfaces.iter().filter(|interface| speaks_0_3(interface));
    let main = interfaces.next()?;
    let version = main.protocol_version.as_str();
    let protocol_version = if version == VERSION { CARD_VERSION } else { version };
    Some(Interfaces { protocol_version, main, additional: interfaces.collect() })
}

impl<'a> Own<'a> {
    fn of(card: &'a crate::AgentCard) -> Option<Self> {
        let Interfaces { protocol_version, main, additional } = interfaces(card)?;
        Some(Self {
            protocol_version,
            url: &main.url,
            preferred_transport: &main.protocol_binding,
            additional_interfaces: additional
                .into_iter()
                .map(|interface| Interface { transport: &interface.protocol_binding, url: &interface.url })
                .collect(),
            supports_authenticated_extended_card: card.capabilities.extended_agent_card.unwrap_or_default(),
            security: requirements(&card.security_requirements),
        })
    }
}

/// True for `0.3` and its patch releases.
fn speaks_0_3(interface: &AgentInterface) -> bool {
    let patch = interface.protocol_version.strip_prefix(VERSION);
    // `0.3.1` is a patch release of 0.3, and `0.30` is not.
    patch.is_some_and(|patch| patch.is_empty() || patch.starts_with('.'))
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Capabilities<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    streaming: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    push_notifications: Option<bool>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    extensions: &'a [AgentExtension],
}

impl<'a> From<&'a AgentCapabilities> for Capabilities<'a> {
    fn from(capabilities: &'a AgentCapabilities) -> Self {
        Self {
            streaming: capabilities.streaming,
            push_notifications: capabilities.push_notifications,
            extensions: &capabilities.extensions,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Skill<'a> {
    id: &'a str,
    name: &'a str,
    description: &'a str,
    tags: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    examples: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    input_modes: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    output_modes: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    security: Vec<Requirement<'a>>,
}

impl<'a> From<&'a AgentSkill> for Skill<'a> {
    fn from(skill: &'a AgentSkill) -> Self {
        Self {
            id: &skill.id,
            name: &skill.name,
            description: &skill.description,
            tags: &skill.tags,
            examples: &skill.examples,
            input_modes: &skill.input_modes,
            output_modes: &skill.output_modes,
            security: requirements(&skill.security_requirements),
        }
    }
}

/// A security scheme with the fields of both versions. No field name occurs in both.
#[derive(Clone, Debug, Serialize)]
struct MergedScheme<'a> {
    #[serde(flatten)]
    of_1_0: &'a crate::SecurityScheme,
    #[serde(flatten)]
    of_0_3: Option<SecurityScheme<'a>>,
}

#[derive(Clone, Debug, Serialize)]
struct MergedSkill<'a> {
    #[serde(flatten)]
    of_1_0: &'a AgentSkill,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    security: Vec<Requirement<'a>>,
}
