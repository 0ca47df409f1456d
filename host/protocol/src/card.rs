//! The Agent Card: what an agent says about itself (specification section 4.4).

use indexmap::IndexMap;

use crate::proto_json::message;
use crate::{ExtensionUri, JsonObject, SecurityRequirement, SecurityScheme};

message! {
    /// What an agent says about itself.
    pub struct AgentCard {
        /// A name for people.
        pub name: String => "name" required,
        /// What the agent is for.
        pub description: String => "description" required,
        /// Where the agent can be reached, the preferred interface first.
        pub supported_interfaces: Vec<AgentInterface> => "supportedInterfaces" required,
        /// Who runs the agent.
        pub provider: Option<AgentProvider> => "provider",
        /// The version of the agent, not of the protocol.
        pub version: String => "version" required,
        /// Where people can read more.
        pub documentation_url: Option<String> => "documentationUrl",
        /// What the agent can do beyond the minimum.
        pub capabilities: AgentCapabilities => "capabilities" required,
        /// The security schemes by name.
        pub security_schemes: IndexMap<String, SecurityScheme> => "securitySchemes",
        /// The schemes that a request must satisfy: any one entry, all schemes of it.
        pub security_requirements: Vec<SecurityRequirement> => "securityRequirements",
        /// Media types that all skills take.
        pub default_input_modes: Vec<String> => "defaultInputModes" required,
        /// Media types that all skills give.
        pub default_output_modes: Vec<String> => "defaultOutputModes" required,
        /// What the agent is good at.
        pub skills: Vec<AgentSkill> => "skills" required,
        /// Signatures over the card.
        pub signatures: Vec<AgentCardSignature> => "signatures",
        /// A picture.
        pub icon_url: Option<String> => "iconUrl",
    }

    /// One address of an agent.
    pub struct AgentInterface {
        /// The URL; for gRPC `host:port`.
        pub url: String => "url" required,
        /// `JSONRPC`, `GRPC`, `HTTP+JSON`, or the URI of another binding.
        pub protocol_binding: String => "protocolBinding" required,
        /// What clients put into `tenant` of every request to this interface.
        pub tenant: Option<String> => "tenant",
        /// The version of A2A spoken here, such as `1.0`.
        pub protocol_version: String => "protocolVersion" required,
    }

    /// Who runs an agent.
    pub struct AgentProvider {
        /// The provider's site.
        pub url: String => "url" required,
        /// The provider's name.
        pub organization: String => "organization" required,
    }

    /// What an agent can do beyond the minimum.
    pub struct AgentCapabilities {
        /// Whether it answers SendStreamingMessage and SubscribeToTask.
        pub streaming: Option<bool> => "streaming",
        /// Whether it posts task updates.
        pub push_notifications: Option<bool> => "pushNotifications",
        /// The extensions that it speaks.
        pub extensions: Vec<AgentExtension> => "extensions",
        /// Whether authenticated clients get a larger card.
        pub extended_agent_card: Option<bool> => "extendedAgentCard",
    }

    /// The declaration of one extension.
    pub struct AgentExtension {
        /// Which extension, and which version of it.
        pub uri: ExtensionUri => "uri",
        /// How this agent uses the extension.
        pub description: String => "description",
        /// Whether a client must activate the extension.
        pub required: bool => "required",
        /// The extension's own parameters.
        pub params: Option<JsonObject> => "params",
    }

    /// Something that an agent is good at.
    pub struct AgentSkill {
        /// Unique within the card.
        pub id: String => "id" required,
        /// A name for people.
        pub name: String => "name" required,
        /// What the skill does.
        pub description: String => "description" required,
        /// Keywords.
        pub tags: Vec<String> => "tags" required,
        /// Prompts to try.
        pub examples: Vec<String> => "examples",
        /// Media types taken, instead of the card's defaults.
        pub input_modes: Vec<String> => "inputModes",
        /// Media types given, instead of the card's defaults.
        pub output_modes: Vec<String> => "outputModes",
        /// Security requirements of this skill.
        pub security_requirements: Vec<SecurityRequirement> => "securityRequirements",
    }

    /// A JSON Web Signature over the card without its signatures.
    pub struct AgentCardSignature {
        /// The protected header, base64url.
        pub protected: String => "protected" required,
        /// The signature, base64url.
        pub signature: String => "signature" required,
        /// The unprotected header.
        pub header: Option<JsonObject> => "header",
    }
}

impl AgentCard {
    /// The declaration of the extension with exactly this URI.
    pub fn extension(&self, uri: &str) -> Option<&AgentExtension> {
        self.capabilities.extensions.iter().find(|extension| extension.uri.as_str() == uri)
    }
}
