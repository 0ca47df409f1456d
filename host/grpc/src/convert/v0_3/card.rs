//! The Agent Card.

use annex_protocol::v0_3::{Interfaces, interfaces};
use annex_protocol::{
    AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider, AgentSkill,
};

use crate::convert::{FieldError, IntoProto, text, write, write_all, write_map, write_optional};
use crate::pb::v0_3 as pb;

/// The first interface of the card that speaks 0.3 becomes the main interface. Without such an interface the card names none.
impl IntoProto<pb::AgentCard> for AgentCard {
    fn into_proto(self) -> Result<pb::AgentCard, FieldError> {
        let offered = interfaces(&self).map(CardInterfaces::from).unwrap_or_default();
        Ok(pb::AgentCard {
            protocol_version: offered.protocol_version,
            name: self.name,
            description: self.description,
            url: offered.main.url,
            preferred_transport: offered.main.transport,
            additional_interfaces: offered.additional,
            provider: write_optional("provider", self.provider)?,
            version: self.version,
            documentation_url: text(self.documentation_url),
            supports_authenticated_extended_card: self.capabilities.extended_agent_card.unwrap_or_default(),
            capabilities: Some(write("capabilities", self.capabilities)?),
            security_schemes: write_map("securitySchemes", self.security_schemes)?,
            security: write_all("security", self.security_requirements)?,
            default_input_modes: self.default_input_modes,
            default_output_modes: self.default_output_modes,
            skills: write_all("skills", self.skills)?,
            signatures: write_all("signatures", self.signatures)?,
            icon_url: text(self.icon_url),
        })
    }
}

/// The interfaces of a card, in protobuf.
#[derive(Default)]
struct CardInterfaces {
    protocol_version: String,
    main: pb::AgentInterface,
    additional: Vec<pb::AgentInterface>,
}

impl From<Interfaces<'_>> for CardInterfaces {
    fn from(interfaces: Interfaces<'_>) -> Self {
        Self {
            protocol_version: interfaces.protocol_version.to_owned(),
            main: interface(interfaces.main),
            additional: interfaces.additional.into_iter().map(interface).collect(),
        }
    }
}

fn interface(interface: &AgentInterface) -> pb::AgentInterface {
    pb::AgentInterface { url: interface.url.clone(), transport: interface.protocol_binding.clone() }
}

impl IntoProto<pb::AgentProvider> for AgentProvider {
    fn into_proto(self) -> Result<pb::AgentProvider, FieldError> {
        Ok(pb::AgentProvider { url: self.url, organization: self.organization })
    }
}

impl IntoProto<pb::AgentCapabilities> for AgentCapabilities {
    fn into_proto(self) -> Result<pb::AgentCapabilities, FieldError> {
        Ok(pb::AgentCapabilities {
            streaming: self.streaming.unwrap_or_default(),
            push_notifications: self.push_notifications.unwrap_or_default(),
            extensions: write_all("extensions", self.extensions)?,
        })
    }
}

impl IntoProto<pb::AgentExtension> for AgentExtension {
    fn into_proto(self) -> Result<pb::AgentExtension, FieldError> {
        Ok(pb::AgentExtension {
            uri: self.uri.into(),
            description: self.description,
            required: self.required,
            params: write_optional("params", self.params)?,
        })
    }
}

impl IntoProto<pb::AgentSkill> for AgentSkill {
    fn into_proto(self) -> Result<pb::AgentSkill, FieldError> {
        Ok(pb::AgentSkill {
            id: self.id,
            name: self.name,
            description: self.description,
            tags: self.tags,
            examples: self.examples,
            input_modes: self.input_modes,
            output_modes: self.output_modes,
            security: write_all("security", self.security_requirements)?,
        })
    }
}

impl IntoProto<pb::AgentCardSignature> for AgentCardSignature {
    fn into_proto(self) -> Result<pb::AgentCardSignature, FieldError> {
        Ok(pb::AgentCardSignature {
            protected: self.protected,
            signature: self.signature,
            header: write_optional("header", self.header)?,
        })
    }
}
