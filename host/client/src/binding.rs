//! The protocol bindings, and which interface of a card is used.

use std::fmt;
use std::str::FromStr;

use annex_protocol::service::VERSION;
use annex_protocol::{AgentCard, AgentInterface};

use crate::ClientError;

/// A protocol binding that this client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binding {
    /// JSON-RPC (specification section 9).
    JsonRpc,
    /// HTTP+JSON (section 11).
    HttpJson,
    /// gRPC (section 10).
    Grpc,
}

impl Binding {
    /// All bindings.
    pub const ALL: [Self; 3] = [Self::JsonRpc, Self::HttpJson, Self::Grpc];

    /// The name on a card.
    pub fn name(self) -> &'static str {
        match self {
            Self::JsonRpc => "JSONRPC",
            Self::HttpJson => "HTTP+JSON",
            Self::Grpc => "GRPC",
        }
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Reads the name on a card, without regard to case.
impl FromStr for Binding {
    type Err = UnknownBinding;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|binding| binding.name().eq_ignore_ascii_case(text));
        named.ok_or_else(|| UnknownBinding { text: text.to_owned() })
    }
}

/// A text names no binding.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text:?} is none of jsonrpc, http+json, grpc")]
pub struct UnknownBinding {
    text: String,
}

/// The interface to use: of the first of `preferred` that the card has in this version of A2A, else nothing; without a
/// preference, the first on the card that this client speaks. Some agents do not say which version theirs has; those
/// are taken at their word that they speak A2A.
pub(crate) fn choose<'a>(
    card: &'a AgentCard,
    preferred: &[Binding],
) -> Result<(Binding, &'a AgentInterface), ClientError> {
    let spoken = |interface: &'a AgentInterface| Some((spoken_binding(interface)?, interface));
    let mut offered = card.supported_interfaces.iter().filter_map(spoken);
    let found = if preferred.is_empty() {
        offered.next()
    } else {
        let offered: Vec<_> = offered.collect();
        preferred.iter().find_map(|wanted| offered.iter().find(|(binding, _)| binding == wanted).copied())
    };
    found.ok_or_else(|| no_interface(card, preferred))
}

fn spoken_binding(interface: &AgentInterface) -> Option<Binding> {
    let version = interface.protocol_version.as_str();
    let is_current = version.strip_prefix(VERSION).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let binding = Binding::ALL.into_iter().find(|binding| binding.name() == interface.protocol_binding);
    binding.filter(|_| is_current || version.is_empty())
}

fn no_interface(card: &AgentCard, preferred: &[Binding]) -> ClientError {
    let wanted = if preferred.is_empty() { &Binding::ALL } else { preferred };
    let wanted: Vec<_> = wanted.iter().map(|binding| binding.name()).collect();
    let offered = card
        .supported_interfaces
        .iter()
        .map(|interface| format!("{} {} at {}", interface.protocol_binding, interface.protocol_version, interface.url));
    let offered = offered.collect::<Vec<_>>().join(", ");
    let offered = if offered.is_empty() { "none".to_owned() } else { offered };
    ClientError::NoInterface { wanted: wanted.join(" or "), offered }
}

#[cfg(test)]
mod tests {
    use annex_protocol::{AgentCard, AgentInterface};

    use super::{Binding, choose};

    fn card(interfaces: &[(&str, &str)]) -> AgentCard {
        let interfaces = interfaces.iter().enumerate().map(|(index, (binding, version))| AgentInterface {
            url: format!("http://a.example/{index}"),
            protocol_binding: (*binding).to_owned(),
            protocol_version: (*version).to_owned(),
            tenant: None,
        });
        AgentCard { supported_interfaces: interfaces.collect(), ..AgentCard::default() }
    }

    fn check(interfaces: &[(&str, &str)], preferred: &[Binding], expected: (Binding, &str)) {
        let card = card(interfaces);
        let (binding, interface) = choose(&card, preferred).unwrap();
        assert_eq!((binding, interface.url.as_str()), expected);
    }

    #[test]
    fn without_a_preference_the_first_interface_of_the_version_is_taken() {
        let card = [("urn:own", "1.0"), ("JSONRPC", "0.3"), ("GRPC", "1.0"), ("JSONRPC", "1.0")];
        check(&card, &[], (Binding::Grpc, "http://a.example/2"));
        check(&[("JSONRPC", "1.0.1")], &[], (Binding::JsonRpc, "http://a.example/0"));
        check(&[("JSONRPC", "")], &[], (Binding::JsonRpc, "http://a.example/0"));
    }

    #[test]
    fn a_preference_decides_before_the_order_of_the_card() {
        let card = [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("GRPC", "1.0"), ("HTTP+JSON", "1.0")];
        check(&card, &[Binding::HttpJson], (Binding::HttpJson, "http://a.example/1"));
        check(&card, &[Binding::Grpc, Binding::JsonRpc], (Binding::Grpc, "http://a.example/2"));
        check(&card[..2], &[Binding::Grpc, Binding::JsonRpc], (Binding::JsonRpc, "http://a.example/0"));
    }

    #[test]
    fn without_such_an_interface_the_error_lists_those_on_the_card() {
        let check = |interfaces: &[(&str, &str)], preferred: &[Binding], wanted: &str, offered: &str| {
            let error = choose(&card(interfaces), preferred).unwrap_err().to_string();
            assert!(error.contains(wanted) && error.contains(offered), "{error}");
        };
        check(&[], &[], "JSONRPC or HTTP+JSON or GRPC", "none");
        check(
            &[("JSONRPC", "1.01"), ("GRPC", "1.0")],
            &[Binding::JsonRpc],
            "no JSONRPC interface of A2A version 1.0",
            "JSONRPC 1.01 at http://a.example/0, GRPC 1.0 at http://a.example/1",
        );
    }

    #[test]
    fn a_binding_is_named_without_regard_to_case() {
        for (text, binding) in
            [("jsonrpc", Binding::JsonRpc), ("http+json", Binding::HttpJson), ("GRPC", Binding::Grpc)]
        {
            assert_eq!(text.parse::<Binding>().unwrap(), binding);
        }
        assert!("rest".parse::<Binding>().unwrap_err().to_string().contains("http+json"));
    }
}
