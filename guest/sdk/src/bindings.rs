//! The contract in Rust, one module per world; `tests/bindings.rs` generates the files.
//!
//! Outside of WebAssembly the imports compile but must not be called.

#![expect(unsafe_code, reason = "generated: the canonical ABI passes pointers")]
#![expect(
    unreachable_pub,
    clippy::allow_attributes_without_reason,
    clippy::panic,
    clippy::too_many_lines,
    clippy::unwrap_used,
    reason = "generated"
)]

#[rustfmt::skip]
pub mod activation;
#[rustfmt::skip]
pub mod capabilities;
#[rustfmt::skip]
pub mod card;
#[rustfmt::skip]
pub mod client;
#[rustfmt::skip]
pub mod descriptor;
#[rustfmt::skip]
pub mod extended_card;
#[rustfmt::skip]
pub mod live_card;
#[rustfmt::skip]
pub mod message;
#[rustfmt::skip]
pub mod method;
#[rustfmt::skip]
pub mod output;
#[rustfmt::skip]
pub mod reads;
#[rustfmt::skip]
pub mod reply;
#[rustfmt::skip]
pub mod response;
#[rustfmt::skip]
pub mod state;
#[rustfmt::skip]
pub mod steering;
#[rustfmt::skip]
pub mod transition;
