//! Converts the Agent Card from and to Protobuf.

use annex_protocol::{
    AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider, AgentSkill,
};

use super::{
    FieldError, FromProto, IntoProto, non_empty, read_all, read_map, read_optional, text, write, write_all, write_map,
    write_optional,
};
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
            // A card with an integer without an equal double fails here. JSON-RPC and HTTP+JSON still serve the card.
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

impl FromProto<pb::AgentCard> for AgentCard {
    fn from_proto(mut proto: pb::AgentCard) -> Result<Self, FieldError> {
        // An unknown security scheme must not make the whole agent unusable.
        proto.security_schemes.retain(|_, scheme| scheme.scheme.is_some());
        Ok(Self {
            name: proto.name,
            description: proto.description,
            supported_interfaces: read_all("supportedInterfaces", proto.supported_interfaces)?,
            provider: read_optional("provider", proto.provider)?,
            version: proto.version,
            documentation_url: proto.documentation_url,
            // A required message that is missing is read as an empty one, as the JSON bindings read it.
            capabilities: read_optional("capabilities", proto.capabilities)?.unwrap_or_default(),
            security_schemes: read_map("securitySchemes", proto.security_schemes)?,
            security_requirements: read_all("securityRequirements", proto.security_requirements)?,
            default_input_modes: proto.default_input_modes,
            default_output_modes: proto.default_output_modes,
            skills: read_all("skills", proto.skills)?,
            signatures: read_all("signatures", proto.signatures)?,
            icon_url: proto.icon_url,
        })
    }
}

impl FromProto<pb::AgentInterface> for AgentInterface {
    fn from_proto(proto: pb::AgentInterface) -> Result<Self, FieldError> {
        Ok(Self {
            url: proto.url,
            protocol_binding: proto.protocol_binding,
            tenant: non_empty(proto.tenant),
            protocol_version: proto.protocol_version,
        })
    }
}

impl FromProto<pb::AgentProvider> for AgentProvider {
    fn from_proto(proto: pb::AgentProvider) -> Result<Self, FieldError> {
        Ok(Self { url: proto.url, organization: proto.organization })
    }
}

impl FromProto<pb::AgentCapabilities> for AgentCapabilities {
    fn from_proto(proto: pb::AgentCapabilities) -> Result<Self, FieldError> {
        Ok(Self {
            streaming: proto.streaming,
            push_notifications: proto.push_notifications,
            extensions: read_all("extensions", proto.extensions)?,
            extended_agent_card: proto.extended_agent_card,
        })
    }
}

impl FromProto<pb::AgentExtension> for AgentExtension {
    fn from_proto(proto: pb::AgentExtension) -> Result<Self, FieldError> {
        Ok(Self {
            uri: proto.uri.into(),
            description: proto.description,
            required: proto.required,
            params: read_optional("params", proto.params)?,
        })
    }
}

impl FromProto<pb::AgentSkill> for AgentSkill {
    fn from_proto(proto: pb::AgentSkill) -> Result<Self, FieldError> {
        Ok(Self {
            id: proto.id,
            name: proto.name,
            description: proto.description,
            tags: proto.tags,
            examples: proto.examples,
            input_modes: proto.input_modes,
            output_modes: proto.output_modes,
            security_requirements: read_all("securityRequirements", proto.security_requirements)?,
        })
    }
}

impl FromProto<pb::AgentCardSignature> for AgentCardSignature {
    fn from_proto(proto: pb::AgentCardSignature) -> Result<Self, FieldError> {
        Ok(Self {
            protected: proto.protected,
            signature: proto.signature,
            header: read_optional("header", proto.header)?,
        })
    }
}
