#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

pub mod caller;
pub mod clock;
#[cfg(feature = "http")]
pub mod http;
pub mod json;
pub mod keyvalue;
pub mod log;
pub mod members;
pub mod parts;
pub mod pointer;
pub mod schema;
pub mod secrets;
pub mod session;
pub mod steps;
pub mod task;
pub mod task_metadata;
pub mod tasks;
#[cfg(all(feature = "testing", not(target_arch = "wasm32")))]
pub mod testing;

#[doc(hidden)]
pub mod bindings;
#[doc(hidden)]
pub mod component;

#[cfg(all(target_arch = "wasm32", feature = "allocator"))]
#[expect(unsafe_code, reason = "an allocator hands out raw memory")]
mod allocator;
mod answers;
mod extension;
mod imports;
#[cfg(not(target_arch = "wasm32"))]
mod native;
mod output;
mod panics;
mod parameters;
mod steering;

pub use bindings::activation::exports::annex::extension::activation::Decision;
pub use bindings::capabilities::annex::extension::caller::{Identity, Presence};
pub use bindings::capabilities::annex::extension::session_state::Scopes;
pub use bindings::capabilities::annex::extension::types::{
    ExtensionError, Json, Location, MetadataEntry, Rejection, Request, Violation,
};
pub use bindings::card::exports::annex::extension::card::Declaration;
pub use bindings::client::exports::annex::extension::client::{Addition, Incoming, Outgoing};
pub use bindings::descriptor::exports::annex::extension::descriptor::{EventKinds, ExtensionDescriptor as Descriptor};
pub use bindings::extended_card::exports::annex::extension::extended_card::{EntryChange, ShownEntry};
pub use bindings::live_card::exports::annex::extension::live_card::LiveDeclaration;
pub use bindings::message::exports::annex::extension::message::Rewrite;
pub use bindings::method::exports::annex::extension::method::{Answer, Declaration as MethodDeclaration};
pub use bindings::output::exports::annex::extension::output::{Chunk, Content, Place, Replacement, Verdict};
pub use bindings::reads::exports::annex::extension::reads::{ShownTask, View};
pub use bindings::reply::exports::annex::extension::reply::{Outcome, ReadyAnswer};
pub use bindings::response::exports::annex::extension::response::{Event, EventKind, Patch};
pub use bindings::steering::exports::annex::extension::steering::{
    ModelCall, ModelChange, ModelVerdict, Pause, Remark, ToolCall, ToolResult, ToolVerdict,
};
pub use bindings::transition::exports::annex::extension::transition::{
    Beginning, Entry, Interruption, Ruling, StateChange, Waiting,
};
pub use extension::{
    Activation, Card, Client, ExtendedCard, Extension, LiveCard, Message, Method, Output, Reads, Reply, Response,
    State, Steering, Transition,
};
pub use parameters::{Config, FromConfig, NoParameters};
