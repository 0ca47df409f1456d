//! The Agent Card: an agent's description of itself (specification section 4.4).

use indexmap::IndexMap;

use crate::proto_json::message;
use crate::{ExtensionUri, JsonObject, SecurityRequirement, SecurityScheme};

message! {
    /// An agent's description of itself.
    pub struct AgentCard {
        /// The name of the agent, for people to read.
        pub name: String => "name" required,
        /// The purpose of the agent.
        pub description: String => "description" lenient,
        /// The addresses of the agent, the preferred interface first.
        pub supported_interfaces: Vec<AgentInterface> => "supportedInterfaces" lenient,
        /// The organization that runs the agent.
        pub provider: Option<AgentProvider> => "provider" optional,
        /// The version of the agent, not of the protocol.
        pub version: String => "version" lenient,
        /// The page where people can read more.
        pub documentation_url: Option<String> => "documentationUrl" optional,
        /// The abilities of the agent beyond the minimum.
        pub capabilities: AgentCapabilities => "capabilities" required,
        /// The security schemes by name.
        pub security_schemes: IndexMap<String, SecurityScheme> => "securitySchemes" optional,
        /// The alternatives for authentication. A request must satisfy one of them, which means all the schemes that
        /// this alternative lists.
        pub security_requirements: Vec<SecurityRequirement> => "securityRequirements" optional,
        /// Media types that all skills accept, unless a skill has media types of its own.
        pub default_input_modes: Vec<String> => "defaultInputModes" lenient,
        /// Media types that all skills can produce, unless a skill has media types of its own.
        pub default_output_modes: Vec<String> => "defaultOutputModes" lenient,
        /// The skills of the agent.
        pub skills: Vec<AgentSkill> => "skills" lenient,
        /// Signatures over the card.
        pub signatures: Vec<AgentCardSignature> => "signatures" optional,
        /// The URL of an icon that clients may show.
        pub icon_url: Option<String> => "iconUrl" optional,
    }

    /// One address of an agent.
    pub struct AgentInterface {
        /// The URL; for gRPC `host:port`.
        pub url: String => "url" required,
        /// `JSONRPC`, `GRPC`, `HTTP+JSON`, or the URI of another binding.
        pub protocol_binding: String => "protocolBinding" required,
        /// The value of `tenant` that clients send with every request to this interface.
        pub tenant: Option<String> => "tenant",
        /// The version of A2A that the interface speaks, such as `1.0`.
        pub protocol_version: String => "protocolVersion" required,
    }

    /// The organization that runs an agent.
    pub struct AgentProvider {
        /// The provider's site.
        pub url: String => "url" required,
        /// The provider's name.
        pub organization: String => "organization" required,
    }

    /// The abilities of an agent beyond the minimum.
    pub struct AgentCapabilities {
        /// True if the agent answers SendStreamingMessage and SubscribeToTask.
        pub streaming: Option<bool> => "streaming" optional,
        /// True if the agent sends push notifications: it posts updates of a task to a URL that the client has registered.
        pub push_notifications: Option<bool> => "pushNotifications" optional,
        /// The extensions that the agent supports.
        pub extensions: Vec<AgentExtension> => "extensions" optional,
        /// True if authenticated clients get a larger card.
        pub extended_agent_card: Option<bool> => "extendedAgentCard" optional,
    }

    /// The declaration of one extension.
    pub struct AgentExtension {
        /// The URI, which names the extension and its version.
        pub uri: ExtensionUri => "uri",
        /// How this agent uses the extension.
        pub description: String => "description",
        /// True if a client must activate the extension.
        pub required: bool => "required",
        /// The extension's own parameters.
        pub params: Option<JsonObject> => "params" optional,
    }

    /// An ability of an agent, such as translation.
    pub struct AgentSkill {
        /// The id of the skill, unique within the card.
        pub id: String => "id" required,
        /// The name of the skill, for people to read.
        pub name: String => "name" lenient,
        /// A description of the skill.
        pub description: String => "description" lenient,
        /// Keywords that describe the skill.
        pub tags: Vec<String> => "tags" lenient,
        /// Example prompts for the skill.
        pub examples: Vec<String> => "examples" optional,
        /// Media types that the skill accepts, instead of the card's defaults.
        pub input_modes: Vec<String> => "inputModes" optional,
        /// Media types that the skill produces, instead of the card's defaults.
        pub output_modes: Vec<String> => "outputModes" optional,
        /// Security requirements of this skill.
        pub security_requirements: Vec<SecurityRequirement> => "securityRequirements" optional,
    }

    /// A JSON Web Signature over the card without its signatures.
    pub struct AgentCardSignature {
        /// The protected header, in base64url.
        pub protected: String => "protected" required,
        /// The signature, in base64url.
        pub signature: String => "signature" required,
        /// The unprotected header.
        pub header: Option<JsonObject> => "header" optional,
    }
}

impl AgentCard {
    /// The declaration of the extension with exactly this URI.
    pub fn extension(&self, uri: &str) -> Option<&AgentExtension> {
        self.capabilities.extensions.iter().find(|extension| extension.uri.as_str() == uri)
    }
}
