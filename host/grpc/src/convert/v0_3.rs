//! Converts the messages of `a2a.v1`, the package of A2A 0.3, to the types of the protocol and back. Only a server's half: reads
//! requests and writes answers.
//!
//! The gaps of 0.3 are filled as on the other bindings of 0.3 (`annex_protocol::v0_3`).

mod answer;
mod card;
mod message;
mod push;
mod request;
mod security;
