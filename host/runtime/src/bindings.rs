//! The only module that distinguishes versions of the WIT contract.
//!
//! Each supported version has one module. Only that module names the generated types, and it converts them from and
//! to the types of `contract`. The rest of the crate calls [`Hooks`]. A breaking change of the contract adds a module
//! here and a variant to each type below. At most two versions are supported at a time (`wit/README.md`).

use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

use crate::confinement::imports::offer::Offer;
use crate::confinement::store::HostState;
use crate::contract::{
    BeginRuling, Beginning, CardEntry, ChangeRuling, ClientAddition, ClientEvent, ClientRequest, Decision, Description,
    Entries, Event, ExtensionError, LiveCardEntry, MetadataEntry, MethodDeclaration, MethodReply, ModelCall,
    ModelVerdict, OutputContent, OutputVerdict, Rejection, Remarked, ReplyAnswer, Request, Rewrite, ShownEntry,
    ShownTask, StateChange, TaskVisibility, ToolCall, ToolResult, ToolVerdict,
};
use crate::hook::Hook;

pub(crate) mod v0_1;

/// The WIT package of the contract. Its interfaces are the hooks, and the imports that Annex itself defines.
pub(crate) const PACKAGE: &str = "annex:extension";

/// Supported versions of [`PACKAGE`], newest first.
pub(crate) const SUPPORTED: &[&str] = &["0.1.0"];

/// True if a component built against `version` can be linked. A supported version must have the same major and minor
/// number, and the same or a newer patch.
pub(crate) fn is_supported(version: &str) -> bool {
    let Some(wanted) = parts(version) else { return false };
    // A patch version only adds to the contract, so a component may use an older patch than the host's, but not a
    // newer one.
    SUPPORTED
        .iter()
        .filter_map(|ours| parts(ours))
        .any(|ours| (ours.0, ours.1) == (wanted.0, wanted.1) && ours.2 >= wanted.2)
}

fn parts(version: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next()??))
}

/// The interfaces of all supported contract versions, and the WASI interfaces that Annex implements itself.
pub(crate) fn offers() -> impl Iterator<Item = &'static Offer> {
    v0_1::imports::OFFERS.iter()
}

/// The request of a turn in the form that hooks get. It is converted once, for all hooks of the turn. A second contract
/// version would add a field here.
pub(crate) struct SeenRequest {
    v0_1: v0_1::convert::Request,
}

impl From<Request> for SeenRequest {
    fn from(request: Request) -> Self {
        Self { v0_1: request.into() }
    }
}

/// The beginning of a turn in the form that the hook `transition` gets. It is converted once, for all extensions of the
/// turn.
pub(crate) struct SeenBeginning {
    v0_1: v0_1::convert::Beginning,
}

impl From<Beginning> for SeenBeginning {
    fn from(beginning: Beginning) -> Self {
        Self { v0_1: beginning.into() }
    }
}

/// The result of calling a hook. The outer error is a trap or an exceeded limit. The inner result is the hook's own
/// result.
type CallResult<T, E> = wasmtime::Result<Result<T, E>>;

/// The hooks of a component. Each contract version has a variant.
pub(crate) enum Hooks {
    V0_1(v0_1::exports::Exports),
}

impl Hooks {
    /// Looks up the functions of the exported hooks.
    pub(crate) fn of(component: &InstancePre<HostState>, exported: &[Hook]) -> wasmtime::Result<Self> {
        v0_1::exports::Exports::of(component, exported).map(Self::V0_1)
    }

    /// Compares the types of all exported functions with the contract.
    ///
    /// # Errors
    /// Returns the first hook whose type differs, and the position of the difference in the type.
    pub(crate) fn check_types(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
    ) -> Result<(), (Hook, wasmtime::Error)> {
        match self {
            Self::V0_1(exports) => exports.check_types(store, instance),
        }
    }

    /// True if the component exports the hook. Calling a hook that is not exported is an error.
    pub(crate) fn has(&self, hook: Hook) -> bool {
        match self {
            Self::V0_1(exports) => exports.has(hook),
        }
    }

    /// Calls `descriptor.describe`.
    pub(crate) async fn describe(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
    ) -> CallResult<Description, String> {
        match self {
            Self::V0_1(exports) => exports.describe(store, instance).await,
        }
    }

    /// Calls `card.declare`.
    pub(crate) async fn declare(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
    ) -> CallResult<CardEntry, String> {
        match self {
            Self::V0_1(exports) => exports.declare(store, instance).await,
        }
    }

    /// Calls `live-card.declare-live`.
    pub(crate) async fn declare_live(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
    ) -> CallResult<LiveCardEntry, String> {
        match self {
            Self::V0_1(exports) => exports.declare_live(store, instance).await,
        }
    }

    /// Calls `activation.activate`.
    pub(crate) async fn activate(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &SeenRequest,
    ) -> CallResult<Decision, ExtensionError> {
        match self {
            Self::V0_1(exports) => exports.activate(store, instance, &request.v0_1).await,
        }
    }

    /// Calls `message.check`.
    pub(crate) async fn check(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &SeenRequest,
        message: String,
    ) -> CallResult<Vec<Rewrite>, Rejection> {
        match self {
            Self::V0_1(exports) => exports.check(store, instance, &request.v0_1, message).await,
        }
    }

    /// Calls `state.validate`.
    pub(crate) async fn validate(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &SeenRequest,
        metadata: Vec<MetadataEntry>,
    ) -> CallResult<Option<String>, Rejection> {
        match self {
            Self::V0_1(exports) => exports.validate(store, instance, &request.v0_1, metadata).await,
        }
    }

    /// Calls `transition.begin`.
    pub(crate) async fn begin(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &SeenRequest,
        beginning: &SeenBeginning,
    ) -> CallResult<BeginRuling, String> {
        match self {
            Self::V0_1(exports) => exports.begin(store, instance, &request.v0_1, &beginning.v0_1).await,
        }
    }

    /// Calls `transition.change`.
    pub(crate) async fn change(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        change: StateChange,
    ) -> CallResult<ChangeRuling, String> {
        match self {
            Self::V0_1(exports) => exports.change(store, instance, change).await,
        }
    }

    /// Calls `reply.before-agent`.
    pub(crate) async fn before_agent(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &SeenRequest,
        message: String,
    ) -> CallResult<Option<ReplyAnswer>, String> {
        match self {
            Self::V0_1(exports) => exports.before_agent(store, instance, &request.v0_1, message).await,
        }
    }

    /// Calls `steering.before-model`.
    pub(crate) async fn before_model(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        call: ModelCall,
    ) -> CallResult<Remarked<ModelVerdict>, String> {
        match self {
            Self::V0_1(exports) => exports.before_model(store, instance, call).await,
        }
    }

    /// Calls `steering.before-tool`.
    pub(crate) async fn before_tool(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        call: ToolCall,
    ) -> CallResult<Remarked<ToolVerdict>, String> {
        match self {
            Self::V0_1(exports) => exports.before_tool(store, instance, call).await,
        }
    }

    /// Calls `steering.after-tool`.
    pub(crate) async fn after_tool(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        made: ToolResult,
    ) -> CallResult<Remarked<Option<String>>, String> {
        match self {
            Self::V0_1(exports) => exports.after_tool(store, instance, made).await,
        }
    }

    /// Calls `output.revise`.
    pub(crate) async fn revise(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        content: OutputContent,
    ) -> CallResult<OutputVerdict, String> {
        match self {
            Self::V0_1(exports) => exports.revise(store, instance, content).await,
        }
    }

    /// Calls `response.respond`.
    pub(crate) async fn respond(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        event: Event,
    ) -> CallResult<Option<Entries>, String> {
        match self {
            Self::V0_1(exports) => exports.respond(store, instance, event).await,
        }
    }

    /// Calls `reads.show`.
    pub(crate) async fn show(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &SeenRequest,
        tasks: Vec<ShownTask>,
    ) -> CallResult<Vec<TaskVisibility>, String> {
        match self {
            Self::V0_1(exports) => exports.show(store, instance, &request.v0_1, tasks).await,
        }
    }

    /// Calls `extended-card.show-entry`.
    pub(crate) async fn show_entry(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &SeenRequest,
        entry: ShownEntry,
    ) -> CallResult<CardEntry, String> {
        match self {
            Self::V0_1(exports) => exports.show_entry(store, instance, &request.v0_1, entry).await,
        }
    }

    /// Calls `method.declare-methods`.
    pub(crate) async fn declare_methods(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
    ) -> CallResult<Vec<MethodDeclaration>, String> {
        match self {
            Self::V0_1(exports) => exports.declare_methods(store, instance).await,
        }
    }

    /// Calls `method.call`.
    pub(crate) async fn call(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &SeenRequest,
        name: &str,
        params: String,
    ) -> CallResult<MethodReply, Rejection> {
        match self {
            Self::V0_1(exports) => exports.call(store, instance, &request.v0_1, name, params).await,
        }
    }

    /// Calls `method.next`.
    pub(crate) async fn next(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
    ) -> CallResult<Option<String>, Rejection> {
        match self {
            Self::V0_1(exports) => exports.next(store, instance).await,
        }
    }

    /// Calls `client.before`.
    pub(crate) async fn before(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        call: ClientRequest,
    ) -> CallResult<ClientAddition, Rejection> {
        match self {
            Self::V0_1(exports) => exports.before(store, instance, call).await,
        }
    }

    /// Calls `client.after`.
    pub(crate) async fn after(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        event: ClientEvent,
    ) -> CallResult<Option<String>, String> {
        match self {
            Self::V0_1(exports) => exports.after(store, instance, event).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_supported;

    #[test]
    fn a_component_links_when_its_contract_is_not_newer_and_not_broken() {
        let expected = [("0.1.0", true), ("0.1.1", false), ("0.2.0", false), ("1.0.0", false), ("draft", false)];
        for (version, supported) in expected {
            assert_eq!(is_supported(version), supported, "{version}");
        }
    }
}
