//! The protocol bindings, and the choice of a card's interface.

use std::fmt;
use std::str::FromStr;

use annex_protocol::service::VERSION;
use annex_protocol::{AgentCard, AgentInterface, v0_3};

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

    /// The name of the binding on a card.
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

/// Parses the name that a binding has on cards, in upper or lower case.
impl FromStr for Binding {
    type Err = UnknownBinding;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|binding| binding.name().eq_ignore_ascii_case(text));
        named.ok_or_else(|| UnknownBinding { text: text.to_owned() })
    }
}

/// The error for a text that is not the name of a binding.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text:?} must be one of jsonrpc, http+json, grpc")]
pub struct UnknownBinding {
    text: String,
}

/// The version of A2A that an interface speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// Version 1.0.
    Current,
    /// Version 0.3, which this client speaks over JSON-RPC and HTTP+JSON.
    V0_3,
}

/// An interface that this client can use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SupportedInterface<'a> {
    pub(crate) binding: Binding,
    pub(crate) version: Version,
    pub(crate) interface: &'a AgentInterface,
}

/// Chooses an interface of the card that `may_use` accepts. Interfaces of A2A 1.0 come before interfaces of 0.3, and an
/// interface without a version counts as 1.0.
///
/// If `preferred` is empty, the first acceptable interface on the card is chosen. Otherwise the bindings in `preferred` are
/// tried in order, and the first binding with an acceptable interface decides. If no binding has such an interface, the choice
/// fails.
pub(crate) fn choose<'a>(
    card: &'a AgentCard,
    preferred: &[Binding],
    may_use: impl Fn(&SupportedInterface<'_>) -> bool,
) -> Result<SupportedInterface<'a>, ClientError> {
    let spoken = card.supported_interfaces.iter().filter_map(spoken);
    let offered: Vec<SupportedInterface<'a>> = spoken.filter(|spoken| may_use(spoken)).collect();
    let of = |version| offered.iter().filter(move |spoken| spoken.version == version);
    let first = |version| match preferred {
        [] => of(version).next(),
        _ => preferred.iter().find_map(|wanted| of(version).find(|spoken| spoken.binding == *wanted)),
    };
    // 1.0 goes before the caller's order of bindings, because 0.3 has fewer operations.
    let found = first(Version::Current).or_else(|| first(Version::V0_3));
    found.copied().ok_or_else(|| no_interface(card, preferred))
}

fn spoken(interface: &AgentInterface) -> Option<SupportedInterface<'_>> {
    let is = |version: &str| {
        // `1.0.1` is a patch release of 1.0, and `1.01` is not.
        let rest = interface.protocol_version.strip_prefix(version);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let binding = Binding::ALL.into_iter().find(|binding| binding.name() == interface.protocol_binding)?;
    // Some agents in use set no version, and official clients speak 1.0 to these agents.
    if is(VERSION) || interface.protocol_version.is_empty() {
        return Some(SupportedInterface { binding, version: Version::Current, interface });
    }
    let is_older = is(v0_3::VERSION) && binding != Binding::Grpc;
    is_older.then_some(SupportedInterface { binding, version: Version::V0_3, interface })
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
        let spoken = choose(&card, preferred, |_| true).unwrap();
        assert_eq!((spoken.binding, spoken.interface.url.as_str()), expected);
    }

    #[test]
    fn without_a_preference_the_first_interface_of_the_version_is_taken() {
        let card = [("urn:own", "1.0"), ("JSONRPC", "0.3"), ("GRPC", "1.0"), ("JSONRPC", "1.0")];
        check(&card, &[], (Binding::Grpc, "http://a.example/2"));
        check(&[("JSONRPC", "1.0.1")], &[], (Binding::JsonRpc, "http://a.example/0"));
        check(&[("JSONRPC", "")], &[], (Binding::JsonRpc, "http://a.example/0"));
    }

    #[test]
    fn an_interface_of_0_3_is_used_only_where_there_is_none_of_1_0() {
        check(&[("GRPC", "0.3"), ("JSONRPC", "0.3.0")], &[], (Binding::JsonRpc, "http://a.example/1"));
        check(&[("JSONRPC", "0.3"), ("HTTP+JSON", "1.0")], &[], (Binding::HttpJson, "http://a.example/1"));
        let older = [("GRPC", "0.3"), ("HTTP+JSON", "0.3"), ("JSONRPC", "0.3")];
        check(&older, &[], (Binding::HttpJson, "http://a.example/1"));
        check(&older, &[Binding::JsonRpc], (Binding::JsonRpc, "http://a.example/2"));
        let wanted = [Binding::JsonRpc, Binding::HttpJson];
        check(&[("JSONRPC", "0.3"), ("HTTP+JSON", "1.0")], &wanted, (Binding::HttpJson, "http://a.example/1"));
    }

    #[test]
    fn an_interface_that_may_not_be_used_is_passed_over() {
        let card = card(&[("GRPC", "1.0"), ("JSONRPC", "1.0")]);
        let spoken = choose(&card, &[], |spoken| spoken.binding != Binding::Grpc).unwrap();
        assert_eq!(spoken.binding, Binding::JsonRpc);
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
            let error = choose(&card(interfaces), preferred, |_| true).unwrap_err().to_string();
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
