//! Agents that a tenant chose: a screen checks each address.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use annex_client::{Binding, ClientConfig, ClientError};
use annex_egress::{Resolver, Screen, ScreenConfig};
use async_trait::async_trait;

use crate::support::{Foreign, by, chain, client, no_parameters, ok, text};

/// Resolves every name to this machine.
struct Loopback;

#[async_trait]
impl Resolver for Loopback {
    async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    }
}

fn behind(binding: Binding, allow: &[&str]) -> ClientConfig {
    let allow = allow.iter().map(|text| text.parse().expect("a host")).collect();
    let screen = Screen::with_resolver(ScreenConfig { allow, https_only: false }, Arc::new(Loopback));
    // Like a server that calls plain HTTP without a task for each connection.
    ClientConfig { screen: Some(screen), follow_redirects: false, ..by(binding) }
}

#[tokio::test]
async fn a_card_at_a_private_address_is_not_asked_for_by_name_or_written_out() {
    let interface = r#"{"url":"http://agent.example/","protocolBinding":"JSONRPC","protocolVersion":"1.0"}"#;
    let card = ok("application/json", &format!(r#"{{"name":"Foreign","supportedInterfaces":[{interface}]}}"#));
    let server = Foreign::start(&[&card]).await;
    let by_name = server.url.replace("127.0.0.1", "agent.example");
    for url in [&server.url, &by_name] {
        let error = client(behind(Binding::JsonRpc, &[])).agent(url).await.err().expect("refused");
        assert!(matches!(error, ClientError::Screened { .. }), "{}", chain(&error));
    }
    assert!(server.requests().is_empty());
    client(behind(Binding::JsonRpc, &["agent.example"])).agent(&by_name).await.expect("an agent");
}

#[tokio::test]
async fn an_interface_at_a_private_address_is_not_called_on_any_binding() {
    for binding in Binding::ALL {
        for host in ["127.0.0.1", "inner.example"] {
            let inner = Foreign::start(&[&ok("application/json", "{}")]).await;
            let url = inner.url.replace("127.0.0.1", host);
            let name = match binding {
                Binding::JsonRpc => "JSONRPC",
                Binding::HttpJson => "HTTP+JSON",
                Binding::Grpc => "GRPC",
            };
            let interface = format!(r#"{{"url":"{url}","protocolBinding":"{name}","protocolVersion":"1.0"}}"#);
            let card = ok("application/json", &format!(r#"{{"name":"Foreign","supportedInterfaces":[{interface}]}}"#));
            let server = Foreign::start(&[&card]).await;
            let at = server.url.replace("127.0.0.1", "agent.example");
            let agent = client(behind(binding, &["agent.example"])).agent(&at).await;
            let error = match agent {
                Ok(agent) => agent.send_message(no_parameters(), text("x")).await.expect_err("refused"),
                Err(error) => error,
            };
            assert!(matches!(error, ClientError::Screened { .. }), "{binding} {host}: {}", chain(&error));
            assert!(inner.requests().is_empty(), "{binding} {host}");
        }
    }
}
