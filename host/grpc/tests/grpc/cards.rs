//! GetExtendedAgentCard, with every field of a card.

use std::collections::BTreeMap;

use annex_grpc::pb::o_auth_flows::Flow;
use annex_grpc::pb::security_scheme::Scheme;
use annex_grpc::pb::{
    AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider, AgentSkill,
    ApiKeySecurityScheme, AuthorizationCodeOAuthFlow, ClientCredentialsOAuthFlow, DeviceCodeOAuthFlow,
    GetExtendedAgentCardRequest, HttpAuthSecurityScheme, ImplicitOAuthFlow, MutualTlsSecurityScheme,
    OAuth2SecurityScheme, OAuthFlows, OpenIdConnectSecurityScheme, PasswordOAuthFlow, SecurityRequirement,
    SecurityScheme, StringList,
};
use prost_types::value::Kind;
use tonic::Code;

use crate::support::{Script, object, start, string, value};

pub(crate) const CARD_JSON: &str = r#"{"name":"n","description":"d",
"supportedInterfaces":[{"url":"h:1","protocolBinding":"GRPC","tenant":"acme","protocolVersion":"1.0"}],
"provider":{"url":"https://p","organization":"o"},"version":"1.2","documentationUrl":"https://d",
"capabilities":{"streaming":true,"pushNotifications":false,"extensions":[{"uri":"urn:x","description":"e","required":true,"params":{"n":1}},{"uri":"urn:y"}],"extendedAgentCard":true},
"securitySchemes":{
 "key":{"apiKeySecurityScheme":{"description":"k","location":"header","name":"x-key"}},
 "http":{"httpAuthSecurityScheme":{"description":"h","scheme":"Bearer","bearerFormat":"JWT"}},
 "oidc":{"openIdConnectSecurityScheme":{"description":"i","openIdConnectUrl":"https://i"}},
 "mtls":{"mtlsSecurityScheme":{"description":"m"}},
 "code":{"oauth2SecurityScheme":{"description":"c","flows":{"authorizationCode":{"authorizationUrl":"https://a","tokenUrl":"https://t","refreshUrl":"https://r","scopes":{"s":"S"},"pkceRequired":true}},"oauth2MetadataUrl":"https://o"}},
 "client":{"oauth2SecurityScheme":{"flows":{"clientCredentials":{"tokenUrl":"https://t","refreshUrl":"https://r","scopes":{"s":"S"}}}}},
 "implicit":{"oauth2SecurityScheme":{"flows":{"implicit":{"authorizationUrl":"https://a","refreshUrl":"https://r","scopes":{"s":"S"}}}}},
 "password":{"oauth2SecurityScheme":{"flows":{"password":{"tokenUrl":"https://t","refreshUrl":"https://r","scopes":{"s":"S"}}}}},
 "device":{"oauth2SecurityScheme":{"flows":{"deviceCode":{"deviceAuthorizationUrl":"https://v","tokenUrl":"https://t","refreshUrl":"https://r","scopes":{"s":"S"}}}}}},
"securityRequirements":[{"schemes":{"code":{"list":["s"]}}}],
"defaultInputModes":["a/b"],"defaultOutputModes":["c/d"],
"skills":[{"id":"k","name":"sn","description":"sd","tags":["t"],"examples":["x"],"inputModes":["e/f"],"outputModes":["g/h"],"securityRequirements":[{"schemes":{"key":{}}}]}],
"signatures":[{"protected":"pp","signature":"ss","header":{"kid":"1"}}],"iconUrl":"https://icon"}"#;

fn requirement(scheme: &str, scopes: &[&str]) -> SecurityRequirement {
    let list = StringList { list: scopes.iter().map(ToString::to_string).collect() };
    SecurityRequirement { schemes: [(scheme.to_owned(), list)].into() }
}

fn oauth2(flow: Flow) -> Scheme {
    let flows = Some(OAuthFlows { flow: Some(flow) });
    Scheme::Oauth2SecurityScheme(OAuth2SecurityScheme { flows, ..OAuth2SecurityScheme::default() })
}

#[expect(deprecated, reason = "a card may still declare a deprecated flow")]
fn schemes() -> BTreeMap<String, SecurityScheme> {
    let authorization_url = "https://a".to_owned();
    let token_url = "https://t".to_owned();
    let refresh_url = "https://r";
    let refresh_url = refresh_url.to_owned();
    let scopes: BTreeMap<String, String> = [("s".to_owned(), "S".to_owned())].into();
    let code = AuthorizationCodeOAuthFlow {
        authorization_url: authorization_url.clone(),
        token_url: token_url.clone(),
        refresh_url: refresh_url.clone(),
        scopes: scopes.clone(),
        pkce_required: true,
    };
    let code = Scheme::Oauth2SecurityScheme(OAuth2SecurityScheme {
        description: "c".into(),
        flows: Some(OAuthFlows { flow: Some(Flow::AuthorizationCode(code)) }),
        oauth2_metadata_url: "https://o".into(),
    });
    let client = ClientCredentialsOAuthFlow {
        token_url: token_url.clone(),
        refresh_url: refresh_url.clone(),
        scopes: scopes.clone(),
    };
    let implicit = ImplicitOAuthFlow { authorization_url, refresh_url: refresh_url.clone(), scopes: scopes.clone() };
    let password =
        PasswordOAuthFlow { token_url: token_url.clone(), refresh_url: refresh_url.clone(), scopes: scopes.clone() };
    let device = DeviceCodeOAuthFlow { device_authorization_url: "https://v".into(), token_url, refresh_url, scopes };
    let key = ApiKeySecurityScheme { description: "k".into(), location: "header".into(), name: "x-key".into() };
    let http = HttpAuthSecurityScheme { description: "h".into(), scheme: "Bearer".into(), bearer_format: "JWT".into() };
    let oidc = OpenIdConnectSecurityScheme { description: "i".into(), open_id_connect_url: "https://i".into() };
    let mtls = MutualTlsSecurityScheme { description: "m".into() };
    let schemes = [
        ("key", Scheme::ApiKeySecurityScheme(key)),
        ("http", Scheme::HttpAuthSecurityScheme(http)),
        ("oidc", Scheme::OpenIdConnectSecurityScheme(oidc)),
        ("mtls", Scheme::MtlsSecurityScheme(mtls)),
        ("code", code),
        ("client", oauth2(Flow::ClientCredentials(client))),
        ("implicit", oauth2(Flow::Implicit(implicit))),
        ("password", oauth2(Flow::Password(password))),
        ("device", oauth2(Flow::DeviceCode(device))),
    ];
    schemes.into_iter().map(|(name, scheme)| (name.to_owned(), SecurityScheme { scheme: Some(scheme) })).collect()
}

fn capabilities() -> AgentCapabilities {
    let full = AgentExtension {
        uri: "urn:x".into(),
        description: "e".into(),
        required: true,
        params: Some(object([("n", value(Kind::NumberValue(1.0)))])),
    };
    let bare = AgentExtension { uri: "urn:y".into(), ..AgentExtension::default() };
    AgentCapabilities {
        streaming: Some(true),
        push_notifications: Some(false),
        extensions: vec![full, bare],
        extended_agent_card: Some(true),
    }
}

fn card() -> AgentCard {
    let interface = AgentInterface {
        url: "h:1".into(),
        protocol_binding: "GRPC".into(),
        tenant: "acme".into(),
        protocol_version: "1.0".into(),
    };
    let skill = AgentSkill {
        id: "k".into(),
        name: "sn".into(),
        description: "sd".into(),
        tags: vec!["t".into()],
        examples: vec!["x".into()],
        input_modes: vec!["e/f".into()],
        output_modes: vec!["g/h".into()],
        security_requirements: vec![requirement("key", &[])],
    };
    let signature = AgentCardSignature {
        protected: "pp".into(),
        signature: "ss".into(),
        header: Some(object([("kid", string("1"))])),
    };
    AgentCard {
        name: "n".into(),
        description: "d".into(),
        supported_interfaces: vec![interface],
        provider: Some(AgentProvider { url: "https://p".into(), organization: "o".into() }),
        version: "1.2".into(),
        documentation_url: Some("https://d".into()),
        capabilities: Some(capabilities()),
        security_schemes: schemes(),
        security_requirements: vec![requirement("code", &["s"])],
        default_input_modes: vec!["a/b".into()],
        default_output_modes: vec!["c/d".into()],
        skills: vec![skill],
        signatures: vec![signature],
        icon_url: Some("https://icon".into()),
    }
}

#[tokio::test]
async fn the_extended_card_carries_every_field() {
    let (mut client, script) = start(Script::answering(CARD_JSON)).await;
    let request = GetExtendedAgentCardRequest { tenant: "acme".into() };
    assert_eq!(client.get_extended_agent_card(request).await.unwrap().into_inner(), card());
    script.check("GetExtendedAgentCard", r#"{"tenant":"acme"}"#);
}

#[tokio::test]
async fn a_card_with_a_number_that_no_double_is_equal_to_is_refused() {
    let card = CARD_JSON.replace(r#""params":{"n":1}"#, r#""params":{"n":9007199254740993}"#);
    let (mut client, _script) = start(Script::answering(&card)).await;
    let status = client.get_extended_agent_card(GetExtendedAgentCardRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    let place = "capabilities.extensions[0].params.n: 9007199254740993 is";
    assert!(status.message().contains(place), "{}", status.message());
}
