//! The agent at the other end: finds its card and calls it by JSON-RPC (A2A 1.0 sections 8.2 and 9).

use std::time::Duration;

use annex_protocol::service::{A2A_EXTENSIONS, A2A_VERSION, VERSION, format_extensions};
use annex_protocol::{AgentCard, AgentExtension, AgentInterface, ExtensionUri, SendMessageRequest};
use anyhow::{Context, anyhow, bail, ensure};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Client, Url};
use serde::Serialize;

mod answer;
mod sse;

pub(crate) use answer::{Answer, RpcError};

const CARD_PATH: &str = "/.well-known/agent-card.json";
const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";

const CONNECT_TIME: Duration = Duration::from_secs(5);
/// From the request for the card to its last byte.
const CARD_TIME: Duration = Duration::from_secs(10);
const MAX_REDIRECTS: usize = 10;
/// How long an agent may think without sending a byte.
const SILENCE: Duration = Duration::from_secs(300);

/// A method whose parameters are a SendMessageRequest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    SendMessage,
    SendStreamingMessage,
}

#[derive(Serialize)]
struct Envelope<'a> {
    jsonrpc: &'static str,
    id: u32,
    method: &'static str,
    params: &'a SendMessageRequest,
}

/// An agent whose card was read.
pub(crate) struct Agent {
    http: Client,
    /// Where the card was asked for.
    card_url: Url,
    card: AgentCard,
    card_text: String,
}

impl Agent {
    /// Reads the card. `address` is the agent's base URL, or the URL of the card when it ends in `.json`.
    ///
    /// # Errors
    /// When the address is no URL, cannot be reached, or gives no card.
    pub(crate) async fn discover(address: &str) -> anyhow::Result<Self> {
        let url = card_url(address)?;
        let http = Client::builder().connect_timeout(CONNECT_TIME).read_timeout(SILENCE).redirect(Policy::custom(same));
        let http = http.build()?;
        let request = http.get(url.clone()).header(ACCEPT, JSON).header(A2A_VERSION, VERSION).timeout(CARD_TIME);
        let response = request.send().await.map_err(|error| unreachable(&url, error))?;
        let status = response.status();
        ensure!(
            status.is_success(),
            "{url} answered {status}, so this is not an A2A agent or its card is elsewhere; if you know where, give \
             the URL of the card itself, which ends in .json"
        );
        let card_text = answer::text(response).await.with_context(|| format!("cannot read the agent card {url}"))?;
        let card = serde_json::from_str(&card_text)
            .with_context(|| format!("{url} is not an agent card, so this is not an A2A agent"))?;
        Ok(Self { http, card_url: url, card, card_text })
    }

    pub(crate) fn card(&self) -> &AgentCard {
        &self.card
    }

    /// The card as it was sent.
    pub(crate) fn card_text(&self) -> &str {
        &self.card_text
    }

    /// Sends `request` with further header fields and waits for the head of the answer.
    ///
    /// # Errors
    /// When the card names no interface that this client speaks, or the agent cannot be reached there; when there are
    /// `fields`, which may be credentials, and the interface is at another place than the card.
    pub(crate) async fn call(
        &self,
        method: Method,
        mut request: SendMessageRequest,
        extensions: &[ExtensionUri],
        fields: &HeaderMap,
    ) -> anyhow::Result<Answer> {
        let interface = interface(&self.card)?;
        let url = Url::parse(&interface.url)
            .with_context(|| format!("the agent card's interface URL {:?} is not a URL", interface.url))?;
        ensure!(
            fields.is_empty() || url.origin() == self.card_url.origin(),
            "the agent card is at {} and names an interface at {}; --header sends nothing there, because whoever made \
             the card would get it",
            self.card_url.origin().ascii_serialization(),
            url.origin().ascii_serialization()
        );
        request.tenant.clone_from(&interface.tenant);
        let envelope = Envelope { jsonrpc: "2.0", id: 1, method: method.name(), params: &request };
        let mut post = self.http.post(url.clone()).header(A2A_VERSION, VERSION).header(CONTENT_TYPE, JSON);
        post = post.header(ACCEPT, method.answer_type()).headers(fields.clone());
        post = post.body(serde_json::to_string(&envelope)?);
        if !extensions.is_empty() {
            post = post.header(A2A_EXTENSIONS, format_extensions(extensions));
        }
        let response = post.send().await.map_err(|error| unreachable(&url, error))?;
        Ok(Answer::new(url, response))
    }
}

/// Redirects are followed within one place, so that header fields reach nobody else.
fn same(attempt: Attempt<'_>) -> Action {
    let is_same = attempt.previous().first().is_none_or(|first| first.origin() == attempt.url().origin());
    match (is_same, attempt.previous().len() < MAX_REDIRECTS) {
        (true, true) => attempt.follow(),
        (true, false) => attempt.error("too many redirects"),
        (false, _) => attempt.stop(),
    }
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::SendMessage => "SendMessage",
            Self::SendStreamingMessage => "SendStreamingMessage",
        }
    }

    fn answer_type(self) -> &'static str {
        match self {
            Self::SendMessage => JSON,
            Self::SendStreamingMessage => EVENT_STREAM,
        }
    }
}

/// Whether an extension takes session state from the client, as its declaration tells.
pub(crate) fn takes_state(extension: &AgentExtension) -> bool {
    extension.params.as_ref().is_some_and(|params| params.contains_key("state_schema"))
}

fn card_url(address: &str) -> anyhow::Result<Url> {
    let url = Url::parse(address).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let Some(mut url) = url else {
        bail!("{address:?} is not the URL of an agent; write it with its scheme, such as http://127.0.0.1:9999");
    };
    if !url.path().ends_with(".json") {
        url.set_path(&format!("{}{CARD_PATH}", url.path().trim_end_matches('/')));
    }
    Ok(url)
}

/// The preferred one among the interfaces that this client speaks. Some agents do not say which version theirs
/// has; those are taken at their word that they speak A2A.
fn interface(card: &AgentCard) -> anyhow::Result<&AgentInterface> {
    let interfaces = &card.supported_interfaces;
    let speaks = |interface: &&AgentInterface| {
        let version = interface.protocol_version.as_str();
        let is_current = version.strip_prefix(VERSION).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        interface.protocol_binding == "JSONRPC" && (is_current || version.is_empty())
    };
    interfaces.iter().find(speaks).ok_or_else(|| {
        let offered = interfaces.iter().map(|interface| {
            format!("{} {} at {}", interface.protocol_binding, interface.protocol_version, interface.url)
        });
        let offered = offered.collect::<Vec<_>>().join(", ");
        let offered = if offered.is_empty() { "none" } else { &offered };
        anyhow!("the agent has no JSONRPC interface of A2A version {VERSION}; its card lists: {offered}")
    })
}

fn unreachable(url: &Url, error: reqwest::Error) -> anyhow::Error {
    let problem = if error.is_connect() {
        format!("cannot connect to {url}, check that the agent runs there")
    } else if error.is_timeout() {
        format!("{url} did not answer in time")
    } else {
        format!("the request to {url} failed")
    };
    anyhow::Error::new(error.without_url()).context(problem)
}

#[cfg(test)]
mod tests {
    use annex_protocol::{AgentCard, AgentInterface};

    use super::{card_url, interface};

    fn card(interfaces: &[(&str, &str)]) -> AgentCard {
        let interfaces = interfaces.iter().enumerate().map(|(index, (binding, version))| AgentInterface {
            url: format!("http://a.example/{index}"),
            protocol_binding: (*binding).to_owned(),
            protocol_version: (*version).to_owned(),
            tenant: None,
        });
        AgentCard { supported_interfaces: interfaces.collect(), ..AgentCard::default() }
    }

    #[test]
    fn the_first_json_rpc_interface_of_the_version_is_taken() {
        let check = |interfaces: &[(&str, &str)], expected: &str| {
            assert_eq!(interface(&card(interfaces)).unwrap().url, expected);
        };
        check(&[("GRPC", "1.0"), ("JSONRPC", "0.3"), ("JSONRPC", "1.0"), ("JSONRPC", "1.0")], "http://a.example/2");
        check(&[("JSONRPC", "1.0.1")], "http://a.example/0");
        check(&[("JSONRPC", "")], "http://a.example/0");
    }

    #[test]
    fn without_such_an_interface_the_error_lists_those_on_the_card() {
        let check = |interfaces: &[(&str, &str)], expected: &str| {
            let error = interface(&card(interfaces)).unwrap_err().to_string();
            assert!(error.contains("JSONRPC interface of A2A version 1.0") && error.contains(expected), "{error}");
        };
        check(&[], "none");
        check(
            &[("JSONRPC", "1.01"), ("GRPC", "1.0")],
            "JSONRPC 1.01 at http://a.example/0, GRPC 1.0 at http://a.example/1",
        );
    }

    #[test]
    fn the_card_is_at_the_well_known_path_below_the_base_url() {
        let check = |address: &str, expected: &str| assert_eq!(card_url(address).unwrap().as_str(), expected);
        check("http://a.example", "http://a.example/.well-known/agent-card.json");
        check("https://a.example:8080/tenants/b/", "https://a.example:8080/tenants/b/.well-known/agent-card.json");
    }

    #[test]
    fn a_url_that_ends_in_json_is_the_card_itself() {
        assert_eq!(
            card_url("http://a.example/my/card.json?v=1").unwrap().as_str(),
            "http://a.example/my/card.json?v=1"
        );
    }

    #[test]
    fn an_address_without_a_scheme_is_refused_with_an_example() {
        for address in ["localhost:9999", "a.example", "", "ftp://a.example"] {
            let error = card_url(address).unwrap_err().to_string();
            assert!(error.contains("http://127.0.0.1:9999"), "{address}: {error}");
        }
    }
}
