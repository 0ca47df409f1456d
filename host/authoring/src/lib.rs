//! What authors of extensions do without the repository: begin a project, build its component, run its cases.
//!
//! All that a project needs of Annex is in this crate: the contract, the SDK for Rust, and the templates. The toolchain of
//! the language comes from its own makers.

mod build;
mod case;
mod choice;
mod contract;
mod error;
mod manifest;
mod recording;
mod replay;
mod scaffold;
mod sdk;

pub use build::{Built, build};
pub use case::{
    CaseError, CaseRun, Cost, Measurement, NewCase, NewCases, ReadSettings, Runner, Verdict, Words, cases_in,
    runtime_config,
};
pub use choice::{Capability, Choice, EXAMPLE_URI, HOOKS, Language, ProjectName, parse_hook};
pub use contract::{VERSION, write as write_contract};
pub use error::ProjectError;
pub use manifest::{Bindings, Build, FILE, Manifest, Project, Sources};
pub use recording::{MAX_RECORDING_LINE, Recording, RecordingError};
pub use replay::{Replay, recorded_settings};
pub use scaffold::create;
