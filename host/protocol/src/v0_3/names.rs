//! The names of 0.3 on the wire: its versions and its header.

/// The version in the header `A2A-Version` and in an interface's `protocolVersion`. A request without the header has
/// this version.
pub const VERSION: &str = "0.3";

/// The version in the field `protocolVersion` of a 0.3 card.
pub const CARD_VERSION: &str = "0.3.0";

/// The header of 0.3 that lists extensions: in a request those that the client requests, and in a response those that
/// were active. In 1.0 the header is [`A2A_EXTENSIONS`](crate::service::A2A_EXTENSIONS).
pub const X_A2A_EXTENSIONS: &str = "x-a2a-extensions";
