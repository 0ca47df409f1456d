//! Connects the generated bindings with an author's traits. Used by [`export!`](crate::export) only.

use std::marker::PhantomData;
use std::sync::OnceLock;

use crate::bindings::{
    activation, card, client, descriptor, extended_card, live_card, message, method, output, reads, reply, response,
    state, steering, transition,
};
use crate::{
    Activation, Addition, Answer, Beginning, Card, Client, Config, Content, Decision, Declaration, Descriptor, Entry,
    EntryChange, Event, ExtendedCard, Extension, ExtensionError, FromConfig, Incoming, Json, LiveCard, LiveDeclaration,
    Message, MetadataEntry, Method, MethodDeclaration, ModelCall, ModelVerdict, Outgoing, Output, Patch, Reads,
    ReadyAnswer, Rejection, Remark, Reply, Request, Response, Rewrite, Ruling, ShownEntry, ShownTask, State,
    StateChange, Steering, ToolCall, ToolResult, ToolVerdict, Transition, Verdict, View, panics,
};

/// Facts about an extension that `export!` adds.
pub trait ExportFacts: Extension {
    /// The crate's name.
    const NAME: &'static str;
    /// The crate's version.
    const VERSION: &'static str;

    /// The cell for the parameters, filled on the first read.
    fn parameters() -> &'static OnceLock<Result<Self::Parameters, String>>;
}

/// The component of an extension.
#[derive(Debug)]
pub struct Component<E>(PhantomData<E>);

impl<E: ExportFacts> descriptor::exports::annex::extension::descriptor::Guest for Component<E> {
    fn describe() -> Result<Descriptor, String> {
        let mut descriptor = match enter::<E>() {
            Ok(parameters) => E::descriptor(parameters)?,
            // The host validates the parameters against the schema, and its error names the wrong one.
            Err(reason) if E::PARAMETER_SCHEMA.is_some() => Descriptor::new("", reason),
            Err(reason) => return Err(reason),
        };
        if descriptor.parameter_schema.is_none() {
            descriptor.parameter_schema = E::PARAMETER_SCHEMA.map(str::to_owned);
        }
        if descriptor.name.is_empty() {
            E::NAME.clone_into(&mut descriptor.name);
        }
        if descriptor.version.is_empty() {
            E::VERSION.clone_into(&mut descriptor.version);
        }
        Ok(descriptor)
    }
}

impl<E: ExportFacts + Card> card::exports::annex::extension::card::Guest for Component<E> {
    fn declare() -> Result<Declaration, String> {
        E::declare(enter::<E>()?)
    }
}

impl<E: ExportFacts + LiveCard> live_card::exports::annex::extension::live_card::Guest for Component<E> {
    fn declare_live() -> Result<LiveDeclaration, String> {
        E::declare_live(enter::<E>()?)
    }
}

impl<E: ExportFacts + Activation> activation::exports::annex::extension::activation::Guest for Component<E> {
    fn activate(request: Request) -> Result<Decision, ExtensionError> {
        E::activate(enter_checked::<E>(), request)
    }
}

impl<E: ExportFacts + State> state::exports::annex::extension::state::Guest for Component<E> {
    fn validate(request: Request, metadata: Vec<MetadataEntry>) -> Result<Option<Json>, Rejection> {
        E::validate(enter_checked::<E>(), request, metadata)
    }
}

impl<E: ExportFacts + Response> response::exports::annex::extension::response::Guest for Component<E> {
    fn respond(event: Event) -> Result<Option<Patch>, String> {
        E::respond(enter::<E>()?, event)
    }
}

impl<E: ExportFacts + Message> message::exports::annex::extension::message::Guest for Component<E> {
    fn check(request: Request, message: Json) -> Result<Vec<Rewrite>, Rejection> {
        E::check(enter_checked::<E>(), request, message)
    }
}

impl<E: ExportFacts + Transition> transition::exports::annex::extension::transition::Guest for Component<E> {
    fn begin(request: Request, beginning: Beginning) -> Result<Entry, String> {
        E::begin(enter::<E>()?, request, beginning)
    }

    fn change(change: StateChange) -> Result<Ruling, String> {
        E::change(enter::<E>()?, change)
    }
}

impl<E: ExportFacts + Reply> reply::exports::annex::extension::reply::Guest for Component<E> {
    fn before_agent(request: Request, message: Json) -> Result<Option<ReadyAnswer>, String> {
        E::before_agent(enter::<E>()?, request, message)
    }
}

impl<E: ExportFacts + Steering> steering::exports::annex::extension::steering::Guest for Component<E> {
    fn before_model(call: ModelCall) -> Result<(ModelVerdict, Option<Remark>), String> {
        E::before_model(enter::<E>()?, call)
    }

    fn before_tool(call: ToolCall) -> Result<(ToolVerdict, Option<Remark>), String> {
        E::before_tool(enter::<E>()?, call)
    }

    fn after_tool(made: ToolResult) -> Result<(Option<Json>, Option<Remark>), String> {
        E::after_tool(enter::<E>()?, made)
    }
}

impl<E: ExportFacts + Output> output::exports::annex::extension::output::Guest for Component<E> {
    fn revise(content: Content) -> Result<Verdict, String> {
        E::revise(enter::<E>()?, content)
    }
}

impl<E: ExportFacts + Reads> reads::exports::annex::extension::reads::Guest for Component<E> {
    fn show(request: Request, tasks: Vec<ShownTask>) -> Result<Vec<View>, String> {
        E::show(enter::<E>()?, request, tasks)
    }
}

impl<E: ExportFacts + ExtendedCard> extended_card::exports::annex::extension::extended_card::Guest for Component<E> {
    fn show_entry(request: Request, entry: ShownEntry) -> Result<EntryChange, String> {
        E::show_entry(enter::<E>()?, request, entry)
    }
}

impl<E: ExportFacts + Method> method::exports::annex::extension::method::Guest for Component<E> {
    fn declare_methods() -> Result<Vec<MethodDeclaration>, String> {
        E::methods(enter::<E>()?)
    }

    fn call(request: Request, name: String, params: Json) -> Result<Answer, Rejection> {
        E::call(enter_checked::<E>(), request, &name, params)
    }

    fn next() -> Result<Option<Json>, Rejection> {
        E::next(enter_checked::<E>())
    }
}

impl<E: ExportFacts + Client> client::exports::annex::extension::client::Guest for Component<E> {
    fn before(call: Outgoing) -> Result<Addition, Rejection> {
        E::before(enter_checked::<E>(), call)
    }

    fn after(event: Incoming) -> Result<Option<Json>, String> {
        E::after(enter::<E>()?, event)
    }
}

/// Begins a call: installs the panic hook and returns the parameters. Fails if the parameters do not fit.
fn enter<E: ExportFacts>() -> Result<&'static E::Parameters, String> {
    // First, so that a panic while the parameters are read is reported too.
    panics::report_to_host();
    // Once per instance: parameters do not change within a turn.
    let read = || E::Parameters::from_config(&Config::HOST);
    E::parameters().get_or_init(read).as_ref().map_err(Clone::clone)
}

/// Like `enter`, for hooks whose errors go to the client. Parameters that do not fit fail the load before such a hook
/// runs. A later failure to read the parameters is a fault of the host or of `Deserialize`, so it traps, with a text.
#[expect(clippy::panic, reason = "a trap is how a component reports a fault that is not the client's")]
fn enter_checked<E: ExportFacts>() -> &'static E::Parameters {
    enter::<E>().unwrap_or_else(|error| panic!("{error}"))
}

/// Exports an [`Extension`] as a component: `annex_sdk::export!(MyExtension: card, response);`.
///
/// Name the hooks that the type implements; `descriptor` is always exported. An extension is one type in one crate.
#[macro_export]
macro_rules! export {
    ($extension:ident) => {
        $crate::export!($extension:);
    };
    ($extension:ident : $($hook:ident),* $(,)?) => {
        impl $crate::component::ExportFacts for $extension {
            const NAME: &'static str = ::core::env!("CARGO_PKG_NAME");
            const VERSION: &'static str = ::core::env!("CARGO_PKG_VERSION");

            fn parameters() -> &'static ::std::sync::OnceLock<
                ::core::result::Result<<$extension as $crate::Extension>::Parameters, ::std::string::String>,
            > {
                // A static cannot be generic, so each extension has one by its macro call.
                static PARAMETERS: ::std::sync::OnceLock<
                    ::core::result::Result<<$extension as $crate::Extension>::Parameters, ::std::string::String>,
                > = ::std::sync::OnceLock::new();
                &PARAMETERS
            }
        }

        const _: () = {
            type Component = $crate::component::Component<$extension>;
            $crate::export_hook!(descriptor, Component);
            $($crate::export_hook!($hook, Component);)*
        };
    };
}

/// One hook of [`export!`](crate::export).
#[doc(hidden)]
#[macro_export]
macro_rules! export_hook {
    (descriptor, $component:ident) => { $crate::export_hook!(descriptor, export_descriptor, $component); };
    (card, $component:ident) => { $crate::export_hook!(card, export_card, $component); };
    (live_card, $component:ident) => { $crate::export_hook!(live_card, export_live_card, $component); };
    (activation, $component:ident) => { $crate::export_hook!(activation, export_activation, $component); };
    (state, $component:ident) => { $crate::export_hook!(state, export_state, $component); };
    (response, $component:ident) => { $crate::export_hook!(response, export_response, $component); };
    (message, $component:ident) => { $crate::export_hook!(message, export_message, $component); };
    (transition, $component:ident) => { $crate::export_hook!(transition, export_transition, $component); };
    (reply, $component:ident) => { $crate::export_hook!(reply, export_reply, $component); };
    (steering, $component:ident) => { $crate::export_hook!(steering, export_steering, $component); };
    (output, $component:ident) => { $crate::export_hook!(output, export_output, $component); };
    (reads, $component:ident) => { $crate::export_hook!(reads, export_reads, $component); };
    (extended_card, $component:ident) => { $crate::export_hook!(extended_card, export_extended_card, $component); };
    (method, $component:ident) => { $crate::export_hook!(method, export_method, $component); };
    (client, $component:ident) => { $crate::export_hook!(client, export_client, $component); };
    ($hook:ident, $export:ident, $component:ident) => {
        #[cfg(target_arch = "wasm32")]
        $crate::bindings::$hook::$export!($component with_types_in $crate::bindings::$hook);

        // Other linkers do not accept the names of the exports, so outside of WebAssembly only the types are checked.
        #[cfg(not(target_arch = "wasm32"))]
        const _: () = {
            const fn implements<G: $crate::bindings::$hook::exports::annex::extension::$hook::Guest>() {}
            implements::<$component>()
        };
    };
    ($other:ident, $component:ident) => {
        ::core::compile_error!(::core::concat!(
            "no hook is called `",
            ::core::stringify!($other),
            "`: there are card, live_card, activation, message, state, transition, reply, steering, output, response, \
             reads, extended_card, method, client"
        ));
    };
}
