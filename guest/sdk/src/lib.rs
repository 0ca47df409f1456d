//! Write an A2A extension as a WebAssembly component.
//!
//! An extension is a type that implements [`Extension`] and one trait per hook that it wants: [`Card`],
//! [`Activation`], [`Message`], [`State`], [`Transition`], [`Response`], [`Method`], [`Client`]. [`export!`] makes the
//! component. It exports the hooks that are named there and imports only what the code really calls, so that the import
//! list shows what the extension can do.
//!
//! ```
#![doc = include_str!("../../../examples/hello-extension/src/lib.rs")]
//! ```
//!
//! JSON crosses the boundary as text. Hand on what you were given instead of parsing and printing it, and numbers and
//! key order survive. Everything that calls the host ([`clock::now`], `http`, [`keyvalue`], [`log`], [`schema`],
//! [`secrets`], [`session`], [`steps`], [`task`], [`tasks`]) works only inside a component: keep the logic in functions
//! that take values, and test those natively.

#![warn(missing_docs)]

pub mod clock;
#[cfg(feature = "http")]
pub mod http;
pub mod json;
pub mod keyvalue;
pub mod log;
pub mod members;
pub mod pointer;
pub mod schema;
pub mod secrets;
pub mod session;
pub mod steps;
pub mod task;
pub mod tasks;

#[doc(hidden)]
pub mod bindings;
#[doc(hidden)]
pub mod component;

#[cfg(all(target_arch = "wasm32", feature = "allocator"))]
#[expect(unsafe_code, reason = "an allocator hands out raw memory")]
mod allocator;
mod answers;
mod extension;
mod panics;
mod parameters;

pub use bindings::activation::exports::annex::extension::activation::Decision;
pub use bindings::capabilities::annex::extension::session_state::Scopes;
pub use bindings::capabilities::annex::extension::types::{
    ExtensionError, Json, Location, MetadataEntry, Rejection, Request, Violation,
};
pub use bindings::card::exports::annex::extension::card::Declaration;
pub use bindings::client::exports::annex::extension::client::{Addition, Incoming, Outgoing};
pub use bindings::descriptor::exports::annex::extension::descriptor::{EventKinds, ExtensionDescriptor as Descriptor};
pub use bindings::message::exports::annex::extension::message::Rewrite;
pub use bindings::method::exports::annex::extension::method::{Answer, Declaration as MethodDeclaration};
pub use bindings::response::exports::annex::extension::response::{Event, EventKind, Patch};
pub use bindings::transition::exports::annex::extension::transition::{
    Beginning, Entry, Interruption, Ruling, StateChange, Waiting,
};
pub use extension::{Activation, Card, Client, Extension, Message, Method, Response, State, Transition};
pub use parameters::{Config, FromConfig, NoParameters};
