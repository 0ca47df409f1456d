//! Every message type with all of its fields set, written as the crate writes it.

use annex_protocol::{
    AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider, AgentSkill,
    ApiKeySecurityScheme, Artifact, AuthenticationInfo, AuthorizationCodeOAuthFlow, CancelTaskRequest,
    ClientCredentialsOAuthFlow, DeleteTaskPushNotificationConfigRequest, DeviceCodeOAuthFlow,
    GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest, HttpAuthSecurityScheme,
    ImplicitOAuthFlow, ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse,
    ListTasksRequest, ListTasksResponse, Message, MutualTlsSecurityScheme, OAuth2SecurityScheme, OAuthFlows,
    OpenIdConnectSecurityScheme, Part, PasswordOAuthFlow, SecurityRequirement, SecurityScheme,
    SendMessageConfiguration, SendMessageRequest, SendMessageResponse, StreamResponse, StringList,
    SubscribeToTaskRequest, Task, TaskArtifactUpdateEvent, TaskPushNotificationConfig, TaskStatus,
    TaskStatusUpdateEvent,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) struct Sample {
    pub(crate) type_name: &'static str,
    pub(crate) json: &'static str,
    /// Decodes a text as the type of the sample and encodes it again.
    pub(crate) recode: fn(&str) -> Result<String, serde_json::Error>,
}

fn sample<T: DeserializeOwned + Serialize>(type_name: &'static str, json: &'static str) -> Sample {
    let recode = |text: &str| serde_json::to_string(&serde_json::from_str::<T>(text)?);
    Sample { type_name, json, recode }
}

macro_rules! samples {
    ($($type:ident: $json:literal,)+) => { vec![$(sample::<$type>(stringify!($type), $json)),+] };
}

/// Types whose JSON object may have exactly one of several fields.
pub(crate) fn one_ofs() -> Vec<Sample> {
    samples! {
        SendMessageResponse: r#"{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING"}}}"#,
        SendMessageResponse: r#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}}"#,
        StreamResponse: r#"{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING"}}}"#,
        StreamResponse: r#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}}"#,
        StreamResponse: r#"{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_FAILED"}}}"#,
        StreamResponse: r#"{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[]}}}"#,
        SecurityScheme: r#"{"apiKeySecurityScheme":{"location":"header","name":"X-Key"}}"#,
        SecurityScheme: r#"{"httpAuthSecurityScheme":{"scheme":"Bearer"}}"#,
        SecurityScheme: r#"{"oauth2SecurityScheme":{"flows":{"implicit":{}}}}"#,
        SecurityScheme: r#"{"openIdConnectSecurityScheme":{"openIdConnectUrl":"https://u"}}"#,
        SecurityScheme: r#"{"mtlsSecurityScheme":{}}"#,
        OAuthFlows: r#"{"authorizationCode":{"authorizationUrl":"https://a","tokenUrl":"https://t","scopes":{}}}"#,
        OAuthFlows: r#"{"clientCredentials":{"tokenUrl":"https://t","scopes":{}}}"#,
        OAuthFlows: r#"{"implicit":{}}"#,
        OAuthFlows: r#"{"password":{}}"#,
        OAuthFlows: r#"{"deviceCode":{"deviceAuthorizationUrl":"https://d","tokenUrl":"https://t","scopes":{}}}"#,
        Part: r#"{"text":""}"#,
        Part: r#"{"raw":"aGk="}"#,
        Part: r#"{"url":"https://u"}"#,
        Part: r#"{"data":[1.0]}"#,
    }
}

/// Types whose fields are independent of each other.
pub(crate) fn messages() -> Vec<Sample> {
    let mut samples = conversation();
    samples.extend(operations());
    samples.extend(push());
    samples.extend(card());
    samples.extend(security());
    samples
}

fn conversation() -> Vec<Sample> {
    samples! {
        Message: r#"{"messageId":"m","contextId":"c","taskId":"t","role":"ROLE_USER","parts":[{"text":"x"}],"metadata":{"k":1},"extensions":["urn:e"],"referenceTaskIds":["r"]}"#,
        Task: r#"{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"},"artifacts":[{"artifactId":"a","parts":[]}],"history":[{"messageId":"m","role":"ROLE_USER","parts":[]}],"metadata":{"k":1}}"#,
        TaskStatus: r#"{"state":"TASK_STATE_WORKING","message":{"messageId":"m","role":"ROLE_AGENT","parts":[]},"timestamp":"2026-11-20T12:00:00.000Z"}"#,
        Artifact: r#"{"artifactId":"a","name":"n","description":"d","parts":[{"text":"x"}],"metadata":{"k":1},"extensions":["urn:e"]}"#,
        TaskStatusUpdateEvent: r#"{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"},"metadata":{"k":1}}"#,
        TaskArtifactUpdateEvent: r#"{"taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[]},"append":true,"lastChunk":true,"metadata":{"k":1}}"#,
    }
}

fn operations() -> Vec<Sample> {
    samples! {
        SendMessageRequest: r#"{"tenant":"acme","message":{"messageId":"m","role":"ROLE_USER","parts":[]},"configuration":{"returnImmediately":true},"metadata":{"k":1}}"#,
        SendMessageConfiguration: r#"{"acceptedOutputModes":["text/plain"],"taskPushNotificationConfig":{"url":"https://u"},"historyLength":0,"returnImmediately":true}"#,
        GetTaskRequest: r#"{"tenant":"acme","id":"t","historyLength":0}"#,
        ListTasksRequest: r#"{"tenant":"acme","contextId":"c","status":"TASK_STATE_WORKING","pageSize":5,"pageToken":"p","historyLength":0,"statusTimestampAfter":"2026-11-20T12:00:00.000Z","includeArtifacts":false}"#,
        ListTasksResponse: r#"{"tasks":[{"id":"t","status":{"state":"TASK_STATE_WORKING"}}],"nextPageToken":"p","pageSize":1,"totalSize":2}"#,
        CancelTaskRequest: r#"{"tenant":"acme","id":"t","metadata":{"k":1}}"#,
        SubscribeToTaskRequest: r#"{"tenant":"acme","id":"t"}"#,
        GetExtendedAgentCardRequest: r#"{"tenant":"acme"}"#,
    }
}

fn push() -> Vec<Sample> {
    samples! {
        TaskPushNotificationConfig: r#"{"tenant":"acme","id":"p","taskId":"t","url":"https://u","token":"s","authentication":{"scheme":"Bearer"}}"#,
        AuthenticationInfo: r#"{"scheme":"Bearer","credentials":"s"}"#,
        GetTaskPushNotificationConfigRequest: r#"{"tenant":"acme","taskId":"t","id":"p"}"#,
        ListTaskPushNotificationConfigsRequest: r#"{"tenant":"acme","taskId":"t","pageSize":5,"pageToken":"p"}"#,
        ListTaskPushNotificationConfigsResponse: r#"{"configs":[{"url":"https://u"}],"nextPageToken":"p"}"#,
        DeleteTaskPushNotificationConfigRequest: r#"{"tenant":"acme","taskId":"t","id":"p"}"#,
    }
}

fn card() -> Vec<Sample> {
    samples! {
        AgentCard: r#"{"name":"n","description":"d","supportedInterfaces":[{"url":"https://u","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"provider":{"url":"https://u","organization":"o"},"version":"1","documentationUrl":"https://d","capabilities":{"streaming":true},"securitySchemes":{"s":{"mtlsSecurityScheme":{}}},"securityRequirements":[{"schemes":{"s":{"list":["x"]}}}],"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{"id":"s","name":"n","description":"d","tags":["t"]}],"signatures":[{"protected":"p","signature":"s"}],"iconUrl":"https://i"}"#,
        AgentInterface: r#"{"url":"https://u","protocolBinding":"HTTP+JSON","tenant":"acme","protocolVersion":"1.0"}"#,
        AgentProvider: r#"{"url":"https://u","organization":"o"}"#,
        AgentCapabilities: r#"{"streaming":false,"pushNotifications":true,"extensions":[{"uri":"urn:e"}],"extendedAgentCard":false}"#,
        AgentExtension: r#"{"uri":"urn:e","description":"d","required":true,"params":{"k":1}}"#,
        AgentSkill: r#"{"id":"s","name":"n","description":"d","tags":["t"],"examples":["e"],"inputModes":["i"],"outputModes":["o"],"securityRequirements":[{"schemes":{"s":{}}}]}"#,
        AgentCardSignature: r#"{"protected":"p","signature":"s","header":{"kid":"k"}}"#,
    }
}

fn security() -> Vec<Sample> {
    samples! {
        SecurityRequirement: r#"{"schemes":{"s":{"list":["x"]}}}"#,
        StringList: r#"{"list":["x"]}"#,
        ApiKeySecurityScheme: r#"{"description":"d","location":"query","name":"n"}"#,
        HttpAuthSecurityScheme: r#"{"description":"d","scheme":"Bearer","bearerFormat":"JWT"}"#,
        OAuth2SecurityScheme: r#"{"description":"d","flows":{"password":{}},"oauth2MetadataUrl":"https://m"}"#,
        OpenIdConnectSecurityScheme: r#"{"description":"d","openIdConnectUrl":"https://o"}"#,
        MutualTlsSecurityScheme: r#"{"description":"d"}"#,
        AuthorizationCodeOAuthFlow: r#"{"authorizationUrl":"https://a","tokenUrl":"https://t","refreshUrl":"https://r","scopes":{"s":"d"},"pkceRequired":true}"#,
        ClientCredentialsOAuthFlow: r#"{"tokenUrl":"https://t","refreshUrl":"https://r","scopes":{"s":"d"}}"#,
        ImplicitOAuthFlow: r#"{"authorizationUrl":"https://a","refreshUrl":"https://r","scopes":{"s":"d"}}"#,
        PasswordOAuthFlow: r#"{"tokenUrl":"https://t","refreshUrl":"https://r","scopes":{"s":"d"}}"#,
        DeviceCodeOAuthFlow: r#"{"deviceAuthorizationUrl":"https://d","tokenUrl":"https://t","refreshUrl":"https://r","scopes":{"s":"d"}}"#,
    }
}
