//! The only place that matches on versions of the WIT contract.
//!
//! Each live version has one module, which alone names its generated types and converts them to those of `contract`.
//! The rest of the crate calls [`Hooks`]. A broken contract becomes one more module here and one more variant of each
//! type below, and at most two versions live at a time (`wit/README.md`).

use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

use crate::confinement::imports::offer::Offer;
use crate::confinement::store::HostState;
use crate::contract::{
    BeginRuling, Beginning, CardEntry, ChangeRuling, ClientAddition, ClientEvent, ClientRequest, Decision, Description,
    Entries, Event, ExtensionError, MetadataEntry, MethodDeclaration, MethodReply, Rejection, Request, Rewrite,
    StateChange,
};
use crate::hook::Hook;

pub(crate) mod v0_1;

/// The package whose interfaces are hooks and own capabilities.
pub(crate) const PACKAGE: &str = "annex:extension";

/// Versions of [`PACKAGE`] that this host runs, newest first.
pub(crate) const SUPPORTED: &[&str] = &["0.1.0"];

/// True when a component built against `version` links here: the same major and minor below 1.0, no newer patch.
pub(crate) fn is_supported(version: &str) -> bool {
    let Some(wanted) = parts(version) else { return false };
    // A patch of the contract only adds, so a component may use less than this host has, and never more.
    SUPPORTED
        .iter()
        .filter_map(|ours| parts(ours))
        .any(|ours| (ours.0, ours.1) == (wanted.0, wanted.1) && ours.2 >= wanted.2)
}

fn parts(version: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next()??))
}

/// The interfaces of the contract, and those of WASI that Annex implements itself, of every version.
pub(crate) fn offers() -> impl Iterator<Item = &'static Offer> {
    v0_1::imports::OFFERS.iter()
}

/// The request of a turn, in the form in which its hooks are shown it. It is the same for all of them, so it is
/// converted once. A second version adds a form, to be made when a component of that version takes part.
pub(crate) struct SeenRequest {
    v0_1: v0_1::convert::Request,
}

impl From<Request> for SeenRequest {
    fn from(request: Request) -> Self {
        Self { v0_1: request.into() }
    }
}

/// The beginning of a turn, in the form in which its hooks are shown it; as [`SeenRequest`].
pub(crate) struct SeenBeginning {
    v0_1: v0_1::convert::Beginning,
}

impl From<Beginning> for SeenBeginning {
    fn from(beginning: Beginning) -> Self {
        Self { v0_1: beginning.into() }
    }
}

/// The result of a call: the hook's own result within that of the call, which fails by a trap or a limit.
type Called<T, E> = wasmtime::Result<Result<T, E>>;

/// The hooks of one component, by the version of the contract that it was built against.
pub(crate) enum Hooks {
    V0_1(v0_1::exports::Exports),
}

impl Hooks {
    /// Looks the hooks up.
    pub(crate) fn of(component: &InstancePre<HostState>, exported: &[Hook]) -> wasmtime::Result<Self> {
        v0_1::exports::Exports::of(component, exported).map(Self::V0_1)
    }

    /// Compares the types of all exported functions with the contract's.
    ///
    /// # Errors
    /// The hook whose type is another one, and the place in the type.
    pub(crate) fn check_types(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
    ) -> Result<(), (Hook, wasmtime::Error)> {
        match self {
            Self::V0_1(exports) => exports.check_types(store, instance),
        }
    }

    /// True when the component has the hook. One that it does not have must not be called.
    pub(crate) fn has(&self, hook: Hook) -> bool {
        match self {
            Self::V0_1(exports) => exports.has(hook),
        }
    }

    /// `descriptor.describe`
    pub(crate) async fn describe(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
    ) -> Called<Description, String> {
        match self {
            Self::V0_1(exports) => exports.describe(store, instance).await,
        }
    }

    /// `card.declare`
    pub(crate) async fn declare(&self, store: &mut Store<HostState>, instance: &Instance) -> Called<CardEntry, String> {
        match self {
            Self::V0_1(exports) => exports.declare(store, instance).await,
        }
    }

    /// `activation.activate`
    pub(crate) async fn activate(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &SeenRequest,
    ) -> Called<Decision, ExtensionError> {
        match self {
            Self::V0_1(exports) => exports.activate(store, instance, &request.v0_1).await,
        }
    }

    /// `message.check`
    pub(crate) async fn check(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &SeenRequest,
        message: String,
    ) -> Called<Vec<Rewrite>, Rejection> {
        match self {
            Self::V0_1(exports) => exports.check(store, instance, &request.v0_1, message).await,
        }
    }

    /// `state.validate`
    pub(crate) async fn validate(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &SeenRequest,
        metadata: Vec<MetadataEntry>,
    ) -> Called<Option<String>, Rejection> {
        match self {
            Self::V0_1(exports) => exports.validate(store, instance, &request.v0_1, metadata).await,
        }
    }

    /// `transition.begin`
    pub(crate) async fn begin(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &SeenRequest,
        beginning: &SeenBeginning,
    ) -> Called<BeginRuling, String> {
        match self {
            Self::V0_1(exports) => exports.begin(store, instance, &request.v0_1, &beginning.v0_1).await,
        }
    }

    /// `transition.change`
    pub(crate) async fn change(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        change: StateChange,
    ) -> Called<ChangeRuling, String> {
        match self {
            Self::V0_1(exports) => exports.change(store, instance, change).await,
        }
    }

    /// `response.respond`
    pub(crate) async fn respond(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        event: Event,
    ) -> Called<Option<Entries>, String> {
        match self {
            Self::V0_1(exports) => exports.respond(store, instance, event).await,
        }
    }

    /// `method.declare-methods`
    pub(crate) async fn declare_methods(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
    ) -> Called<Vec<MethodDeclaration>, String> {
        match self {
            Self::V0_1(exports) => exports.declare_methods(store, instance).await,
        }
    }

    /// `method.call`
    pub(crate) async fn call(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        request: &SeenRequest,
        name: &str,
        params: String,
    ) -> Called<MethodReply, Rejection> {
        match self {
            Self::V0_1(exports) => exports.call(store, instance, &request.v0_1, name, params).await,
        }
    }

    /// `method.next`
    pub(crate) async fn next(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
    ) -> Called<Option<String>, Rejection> {
        match self {
            Self::V0_1(exports) => exports.next(store, instance).await,
        }
    }

    /// `client.before`
    pub(crate) async fn before(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        call: ClientRequest,
    ) -> Called<ClientAddition, Rejection> {
        match self {
            Self::V0_1(exports) => exports.before(store, instance, call).await,
        }
    }

    /// `client.after`
    pub(crate) async fn after(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
        event: ClientEvent,
    ) -> Called<Option<String>, String> {
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
