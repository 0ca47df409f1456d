//! The names of 0.3 on the wire: its versions and its header.

/// The version as it stands in `A2A-Version` and in `protocolVersion` of an interface. A request without the header has
/// this version.
pub const VERSION: &str = "0.3";

/// The version as it stands in `protocolVersion` of a 0.3 card.
pub const CARD_VERSION: &str = "0.3.0";

/// Carries the extensions that a client of 0.3 asks for, and in the answer those that were active; what
/// [`A2A_EXTENSIONS`](crate::service::A2A_EXTENSIONS) is in 1.0.
pub const X_A2A_EXTENSIONS: &str = "x-a2a-extensions";
