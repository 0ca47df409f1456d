//! The Agent Card.

use annex_protocol::{
    AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider, AgentSkill,
};

use super::{FieldError, IntoProto, text, write, write_all, write_map, write_optional};
use crate::pb;

impl IntoProto<pb::AgentCard> for AgentCard {
    fn into_proto(self) -> Result<pb::AgentCard, FieldError> {
        Ok(pb::AgentCard {
            name: self.name,
            description: self.description,
            supported_interfaces: write_all("supportedInterfaces", self.supported_interfaces)?,
            provider: write_optional("provider", self.provider)?,
            version: self.version,
            documentation_url: self.documentation_url,
            capabilities: Some(write("capabilities", self.capabilities)?),
            security_schemes: write_map("securitySchemes", self.security_schemes)?,
            security_requirements: write_all("securityRequirements", self.security_requirements)?,
            default_input_modes: self.default_input_modes,
            default_output_modes: self.default_output_modes,
            skills: write_all("skills", self.skills)?,
            signatures: write_all("signatures", self.signatures)?,
            icon_url: self.icon_url,
        })
    }
}

impl IntoProto<pb::AgentInterface> for AgentInterface {
    fn into_proto(self) -> Result<pb::AgentInterface, FieldError> {
        Ok(pb::AgentInterface {
            url: self.url,
            protocol_binding: self.protocol_binding,
            tenant: text(self.tenant),
            protocol_version: self.protocol_version,
        })
    }
}

impl IntoProto<pb::AgentProvider> for AgentProvider {
    fn into_proto(self) -> Result<pb::AgentProvider, FieldError> {
        Ok(pb::AgentProvider { url: self.url, organization: self.organization })
    }
}

impl IntoProto<pb::AgentCapabilities> for AgentCapabilities {
    fn into_proto(self) -> Result<pb::AgentCapabilities, FieldError> {
        Ok(pb::AgentCapabilities {
            streaming: self.streaming,
            push_notifications: self.push_notifications,
            extensions: write_all("extensions", self.extensions)?,
            extended_agent_card: self.extended_agent_card,
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
            security_requirements: write_all("securityRequirements", self.security_requirements)?,
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
