//! The tools for authors of extensions: create a project, build its component, run its cases. The Annex repository is
//! not needed.
//!
//! The crate contains everything of Annex that a project needs: the contract, the SDK for Rust, and the templates.
//! Authors install the toolchain of their language themselves.

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

pub use annex_manifest::{Bindings, Build, FILE, Manifest, Parameters};
pub use build::{BuiltComponent, build};
pub use case::{
    CaseError, CaseRun, Cost, Measurement, NewCase, NewCases, ReadSettings, Runner, Verdict, Words, cases_in,
    runtime_config,
};
pub use choice::{Capability, Choice, EXAMPLE_URI, HOOKS, Language, ProjectName, parse_hook};
pub use contract::{VERSION, write as write_contract};
pub use error::ProjectError;
pub use manifest::{Project, Sources};
pub use recording::{MAX_RECORDING_LINE, Recording, RecordingError};
pub use replay::{Replay, recorded_settings};
pub use scaffold::create;
