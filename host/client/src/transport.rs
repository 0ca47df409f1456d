//! The transport of a call: its binding and its URL.

use reqwest::Url;

use crate::binding::{SupportedInterface, Version};
use crate::http::Http;
use crate::{Binding, ClientError};

mod answer;
mod grpc;
mod http_json;
mod json_rpc;
mod part_repair;
mod raw_answer;
mod v0_3;
mod v0_3_http_json;
mod wire;

pub(crate) use raw_answer::RawAnswer;
pub(crate) use wire::{Answers, Transport, WireCall};

/// Creates the transport for an interface at `url`.
pub(crate) fn open(spoken: &SupportedInterface<'_>, url: Url, http: &Http) -> Result<Box<dyn Transport>, ClientError> {
    http.check(&url)?;
    Ok(match (spoken.version, spoken.binding) {
        (Version::V0_3, Binding::HttpJson) => Box::new(v0_3_http_json::HttpJson::new(http.clone(), url)),
        (Version::V0_3, Binding::JsonRpc | Binding::Grpc) => Box::new(v0_3::JsonRpc::new(http.clone(), url)),
        (Version::Current, Binding::JsonRpc) => Box::new(json_rpc::JsonRpc::new(http.clone(), url)),
        (Version::Current, Binding::HttpJson) => Box::new(http_json::HttpJson::new(http.clone(), url)),
        (Version::Current, Binding::Grpc) => Box::new(grpc::Grpc::new(http, &url)?),
    })
}

/// Parses the URL of an interface. A gRPC interface is `host:port` and uses TLS if the card was read over TLS.
pub(crate) fn interface_url(binding: Binding, interface: &str, card: &Url) -> Result<Url, ClientError> {
    let unusable = || ClientError::InterfaceUrl { interface: interface.to_owned() };
    let has_scheme = interface.starts_with("http://") || interface.starts_with("https://");
    let text = match binding {
        Binding::Grpc if !has_scheme => format!("{}://{interface}", card.scheme()),
        Binding::Grpc | Binding::JsonRpc | Binding::HttpJson => interface.to_owned(),
    };
    let url = Url::parse(&text).map_err(|_| unusable())?;
    let is_usable = matches!(url.scheme(), "http" | "https") && url.has_host();
    if is_usable { Ok(url) } else { Err(unusable()) }
}

#[cfg(test)]
mod tests {
    use reqwest::Url;

    use super::interface_url;
    use crate::Binding;

    #[test]
    fn an_address_of_grpc_has_the_scheme_of_the_card() {
        let check = |card: &str, binding: Binding, interface: &str, expected: Option<&str>| {
            let url = interface_url(binding, interface, &Url::parse(card).unwrap()).ok();
            assert_eq!(url.as_ref().map(Url::as_str), expected, "{interface}");
        };
        let plain = "http://a.example/card.json";
        let tls = "https://a.example/card.json";
        check(plain, Binding::Grpc, "a.example:50051", Some("http://a.example:50051/"));
        check(tls, Binding::Grpc, "a.example:443", Some("https://a.example/"));
        check(tls, Binding::Grpc, "http://a.example:50051", Some("http://a.example:50051/"));
        check(plain, Binding::Grpc, "[::1]:50051", Some("http://[::1]:50051/"));
        check(plain, Binding::JsonRpc, "a.example/rpc", None);
        check(plain, Binding::HttpJson, "file:///etc/passwd", None);
        check(plain, Binding::Grpc, "", None);
    }
}
