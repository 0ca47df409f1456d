//! The reasons why a call has no answer.

use annex_auth::signature::VerifyError;
use annex_egress::UrlRefusal;
use annex_protocol::A2aError;
use annex_protocol::service::VERSION;
use http::StatusCode;
use serde::Deserialize;

use crate::stream_room::NoRoom;
use crate::{InterceptorError, ParameterError, RemoteError};

/// The reason why a card could not be read, or a call has no answer. URLs appear as they were requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The text is not the address of an agent.
    #[error("{address:?} is not the URL of an agent; write it with its scheme, such as http://127.0.0.1:9999")]
    Address {
        /// The text that is not an address.
        address: String,
    },
    /// The HTTP client does not start, for instance without root certificates.
    #[error("the HTTP client cannot be set up")]
    Setup(#[source] reqwest::Error),
    /// No connection: nothing listens at the address, or the name does not resolve.
    #[error("cannot connect to {url}; check that the agent is running")]
    Unreachable {
        /// The URL of the request.
        url: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The screen of the [`ClientConfig`](crate::ClientConfig) refused the address. Nothing was sent.
    #[error("{url} may not be called")]
    Screened {
        /// The URL of the request.
        url: String,
        /// The reason why the screen refused the address.
        #[source]
        source: UrlRefusal,
    },
    /// The answer, or its next byte, did not arrive within the timeout in the [`ClientConfig`](crate::ClientConfig).
    #[error("{url} did not answer in time")]
    TimedOut {
        /// The URL of the request.
        url: String,
    },
    /// The request failed, or the connection broke off before the end of the answer.
    #[error("the request to {url} failed")]
    Broken {
        /// The URL of the request.
        url: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server answered the request for the card with an error status.
    #[error(
        "{url} answered {status}{}, so this is not an A2A agent or its card is elsewhere; if you know where, give the \
         URL of the card itself, which ends in .json",
        in_brackets(.words)
    )]
    NoCard {
        /// The URL of the card.
        url: String,
        /// The status of the response.
        status: StatusCode,
        /// The server's error text, shortened to one line; empty without one.
        words: String,
    },
    /// The server answered the request for the card with status 429 or 503. A later request may get the card.
    #[error("{url} answered {status}: {}", not_served(.words))]
    NotServed {
        /// The URL of the card.
        url: String,
        /// The status of the response.
        status: StatusCode,
        /// The server's error text, shortened to one line; empty without one.
        words: String,
    },
    /// The text at the URL is not a card.
    #[error("{url} is not an agent card, so this is not an A2A agent")]
    NotACard {
        /// The URL of the card.
        url: String,
        /// The reason why the text is not a card.
        #[source]
        source: serde_json::Error,
    },
    /// None of the trusted keys has signed the card.
    #[error("the signature of the agent card {url} is not valid")]
    Untrusted {
        /// The URL of the card.
        url: String,
        /// The cause.
        #[source]
        source: VerifyError,
    },
    /// The card has no interface that may be used.
    #[error("the agent has no {wanted} interface of A2A version {VERSION} that may be used; its card lists: {offered}")]
    NoInterface {
        /// The allowed bindings.
        wanted: String,
        /// The interfaces on the card.
        offered: String,
    },
    /// The URL of an interface is invalid.
    #[error("the agent card's interface URL {interface:?} is not a URL")]
    InterfaceUrl {
        /// The invalid URL, as the card has it.
        interface: String,
    },
    /// The card's only usable interfaces are at hosts that are not allowed.
    #[error(
        "the agent card at {card} names an interface at {interface}, which is not the card's own scheme, host and port, so it is \
         not used; correct the URL on the card, or name {host} in allow_hosts if the agent is really there (by the card's \
         scheme, or https)"
    )]
    NotAllowed {
        /// The URL of the card.
        card: String,
        /// The address of the first such interface.
        interface: String,
        /// The host, in the form for the list of allowed hosts.
        host: String,
    },
    /// The interface is at another origin than the card. Header fields, which may be credentials, are sent to the
    /// card's origin only.
    #[error(
        "the agent card is at {card} and names an interface at {interface}; header fields are not sent there, because \
         they may be credentials"
    )]
    OtherOrigin {
        /// The origin of the card.
        card: String,
        /// The origin of the interface.
        interface: String,
    },
    /// The request is invalid in A2A. Nothing was sent.
    #[error("the request was not sent")]
    InvalidRequest(#[source] A2aError),
    /// The request has a value that the binding cannot carry. Nothing was sent.
    #[error("{binding} cannot carry the request: {problem}")]
    NotCarried {
        /// The name of the binding.
        binding: &'static str,
        /// The value, and the reason why the binding cannot carry it.
        problem: String,
    },
    /// A service parameter cannot be sent. Nothing was sent.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// An interceptor refused the call. Nothing was sent.
    #[error("the call was refused before it was sent")]
    Refused(#[source] InterceptorError),
    /// An interceptor refused the agent's answer.
    #[error("the agent's answer was refused")]
    AnswerRefused(#[source] InterceptorError),
    /// The agent's error.
    #[error(transparent)]
    Agent(Box<RemoteError>),
    /// The response has an error status, and its body is not an A2A error.
    #[error("{url} answered {status}: {body}")]
    Status {
        /// The URL of the request.
        url: String,
        /// The status of the response.
        status: StatusCode,
        /// The beginning of the response's body.
        body: String,
        /// The seconds after which the request may be sent again, if known.
        retry_after: Option<u64>,
    },
    /// The agent broke the protocol.
    #[error("{url} answered something else than A2A: {body}")]
    Protocol {
        /// The URL of the request.
        url: String,
        /// The beginning of the answer, or of the event of a stream.
        body: String,
        /// The fault in the answer.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An answer, or an event of a stream, is larger than the [`ClientConfig`](crate::ClientConfig) allows.
    #[error("the answer of {url} exceeds {max_bytes} bytes")]
    TooLarge {
        /// The URL of the request.
        url: String,
        /// The largest allowed size, in bytes.
        max_bytes: usize,
    },
}

impl ClientError {
    /// The error for an answer from `url` that exceeds the limit on the bytes of streams.
    pub(crate) fn no_room(room: &NoRoom, url: &str) -> Self {
        Self::TooLarge { url: url.to_owned(), max_bytes: room.most }
    }

    /// The agent's error, if the agent answered with one.
    pub fn agent(&self) -> Option<&RemoteError> {
        match self {
            Self::Agent(error) => Some(error),
            _ => None,
        }
    }

    /// Tells whether this client refused the request before anything was sent.
    pub(crate) fn is_own_refusal(&self) -> bool {
        // `AnswerRefused` is not among them: the agent has got that request.
        matches!(
            self,
            Self::InvalidRequest(_)
                | Self::NotCarried { .. }
                | Self::Parameter(_)
                | Self::Refused(_)
                | Self::Screened { .. }
        )
    }

    /// An error about an answer whose text is `body`. The error contains the beginning of that text.
    pub(crate) fn protocol(url: &str, body: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Protocol { url: url.to_owned(), body: quoted(body), source: source.into() }
    }
}

impl From<RemoteError> for ClientError {
    fn from(error: RemoteError) -> Self {
        Self::Agent(Box::new(error))
    }
}

/// The maximum number of bytes that an error quotes from a server's text.
const MAX_WORDS: usize = 300;
/// The maximum number of characters that an error quotes from a body that is not A2A.
const QUOTED_CHARS: usize = 200;

/// The beginning of `body`, at most [`QUOTED_CHARS`] characters.
pub(crate) fn quoted(body: &str) -> String {
    let body = body.trim();
    let start: String = body.chars().take(QUOTED_CHARS).collect();
    match start.len() {
        0 => "(no body)".to_owned(),
        length if length < body.len() => format!("{start}..."),
        _ => start,
    }
}

/// A JSON body with an error: a text, or an object that contains one.
#[derive(Deserialize)]
struct Refusal {
    error: ErrorMember,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ErrorMember {
    Text(String),
    Object { message: String },
}

/// A server's error text: the error in a JSON object, or the body itself, shortened to one line. Empty for an HTML
/// page.
pub(crate) fn own_words(body: &str) -> String {
    let words = match serde_json::from_str(body) {
        Ok(Refusal { error: ErrorMember::Text(message) | ErrorMember::Object { message } }) => message,
        Err(_) => body.to_owned(),
    };
    let words = words.trim();
    if words.starts_with(['<', '{', '[']) { String::new() } else { annex_text::line_within(words, MAX_WORDS) }
}

fn in_brackets(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(" ({words})") }
}

fn not_served(words: &str) -> &str {
    let guess = "a server is there and does not serve this agent now: it starts, or the agent is suspended, cannot be \
                 loaded, or is asked too often";
    if words.is_empty() { guess } else { words }
}

#[cfg(test)]
mod tests {
    use super::{own_words, quoted};

    #[test]
    fn the_words_of_a_server_are_its_text_or_the_error_in_its_json() {
        let cases = [
            ("starting\n", "starting"),
            (r#"{"error":"tenant `nix` is not known here"}"#, "tenant `nix` is not known here"),
            (r#"{"error":{"code":404,"message":"no such agent"}}"#, "no such agent"),
            ("gone\u{1b}[2J", "gone\\u{1b}[2J"),
            ("<!DOCTYPE html><title>404</title>", ""),
            (r#"{"detail":"Not Found"}"#, ""),
            ("", ""),
        ];
        for (body, expected) in cases {
            assert_eq!(own_words(body), expected, "{body}");
        }
        assert_eq!(own_words(&"a".repeat(900)).len(), 300);
    }

    #[test]
    fn a_long_body_is_quoted_by_its_beginning() {
        assert_eq!(quoted("  \n"), "(no body)");
        assert_eq!(quoted(" short\n"), "short");
        assert_eq!(quoted(&"é".repeat(300)), format!("{}...", "é".repeat(200)));
    }
}
