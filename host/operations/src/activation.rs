//! Decides which extensions are active for a request (A2A 1.0 section 4.6, topic "Extensions").
//!
//! The decision is made before any task, session or guest exists. A URI includes the version of an extension and must
//! match exactly.

use std::cell::LazyCell;
use std::collections::HashSet;
use std::sync::Arc;

use annex_protocol::service::format_extensions;
use annex_protocol::{A2aError, AgentExtension, ExtensionUri, JsonObject, SendMessageRequest};
use annex_runtime::{Activate, Extension, Hook, Installed};
use annex_telemetry::timeline::Work;
use annex_telemetry::traces::SpanKind;

use crate::service_parameters::ServiceParameters;
use crate::unknown_extensions::unknown_here;

/// The facts that decide which extensions are active for a request.
pub(crate) struct Occasion<'a> {
    /// The URIs that the client requested. For a turn that runs again, the URIs that [`to_ask_again`] returned.
    requested: &'a [ExtensionUri],
    /// The message with its metadata. `None` for a call of a method and for a read.
    sent: Option<&'a SendMessageRequest>,
    caller: Caller<'a>,
}

/// The caller of a request. Some extensions apply only to some callers.
#[derive(Clone, Copy)]
enum Caller<'a> {
    /// The sender of the request.
    Known { principal: &'a str, claims: &'a JsonObject },
    /// The sender of an earlier message, whose turn runs again. The claims of the sender were not stored. The
    /// extensions that applied to the sender are in the requested URIs.
    OfEarlierTurn,
}

impl<'a> Occasion<'a> {
    /// The facts about a message that a client has just sent.
    pub(crate) fn message(call: &'a ServiceParameters, sent: &'a SendMessageRequest) -> Self {
        Self { sent: Some(sent), ..Self::method(call) }
    }

    /// The facts about a call of an extension's method.
    pub(crate) fn method(call: &'a ServiceParameters) -> Self {
        let caller = Caller::Known { principal: &call.owner.principal, claims: &call.claims };
        Self { requested: &call.requested, sent: None, caller }
    }

    /// The facts about a read of tasks or of the extended card, which has no message either.
    pub(crate) fn read(call: &'a ServiceParameters) -> Self {
        Self::method(call)
    }

    /// The facts about a message whose turn is made again. `requested` is the earlier result of [`to_ask_again`].
    pub(crate) fn again(requested: &'a [ExtensionUri], sent: &'a SendMessageRequest) -> Self {
        Self { requested, sent: Some(sent), caller: Caller::OfEarlierTurn }
    }

    /// The URIs that the client requested.
    pub(crate) fn requested(&self) -> &'a [ExtensionUri] {
        self.requested
    }

    /// True if the client requested the URI.
    pub(crate) fn requests(&self, uri: &ExtensionUri) -> bool {
        self.requested.contains(uri)
    }

    /// True if the extension applies to the caller. An extension that does not apply is treated as not installed.
    pub(crate) fn allows(&self, installed: &Installed, extension: &Extension) -> bool {
        let selection = installed.selection_of(extension);
        match self.caller {
            Caller::Known { principal, claims } => selection.allows(principal, claims),
            Caller::OfEarlierTurn => selection.allow.is_none() || self.requests(extension.uri()),
        }
    }

    /// The extensions that are active without a request by the client. All dependencies of these extensions are included.
    pub(crate) fn unasked<'i>(&self, installed: &'i Installed) -> Vec<&'i ExtensionUri> {
        let mut unasked = Vec::new();
        // Collected lazily, because few extensions are activated by metadata.
        let mentions = LazyCell::new(|| self.sent.map(Mentions::of).unwrap_or_default());
        let activates = |extension: &Extension| match installed.selection_of(extension).activate {
            Activate::Requested => false,
            Activate::Metadata => mentions.are_of(extension),
            Activate::Always => true,
        };
        // An extension comes after its dependencies, so one pass from the end is enough.
        for extension in installed.iter().rev() {
            let is_active = unasked.contains(&extension.uri()) || activates(extension);
            if is_active && self.allows(installed, extension) {
                for uri in extension.descriptor().depends_on.iter().chain([extension.uri()]) {
                    if !unasked.contains(&uri) {
                        unasked.push(uri);
                    }
                }
            }
        }
        unasked
    }
}

/// The metadata keys and the extension URIs that a message contains. An extension with `activate = "metadata"` is active if the
/// message contains the URI or a metadata key of the extension.
#[derive(Default)]
struct Mentions<'a> {
    /// The metadata keys of the message, of its parts and of the request.
    keys: HashSet<&'a str>,
    /// The extensions that the message lists.
    uris: HashSet<&'a ExtensionUri>,
}

impl<'a> Mentions<'a> {
    fn of(sent: &'a SendMessageRequest) -> Self {
        let message = &sent.message;
        let of_parts = message.parts.iter().map(|part| &part.metadata);
        let metadata = [&message.metadata, &sent.metadata].into_iter().chain(of_parts);
        Self { keys: metadata.flat_map(JsonObject::keys).collect(), uris: message.extensions.iter().collect() }
    }

    fn are_of(&self, extension: &Extension) -> bool {
        let keys = &extension.descriptor().metadata_keys;
        self.uris.contains(extension.uri()) || keys.iter().any(|key| self.keys.contains(key.as_str()))
    }
}

/// Returns the installed extensions that are active for the request, in the order of the config. Adds these extensions
/// to the request's log line.
///
/// An extension is active if all of these conditions hold:
///
/// - The client requested the extension, or the extension is active without a request.
/// - The extension applies to the caller.
/// - All dependencies of the extension are active.
///
/// Unknown URIs are ignored. The `passed_on` extensions are activated by the remote agent and are not in the result.
///
/// # Errors
/// [`A2aError::ExtensionSupportRequired`] if a required extension or one of its dependencies is not active.
pub(crate) fn negotiate(
    installed: &Installed,
    passed_on: &[AgentExtension],
    occasion: &Occasion<'_>,
) -> Result<Vec<Arc<Extension>>, A2aError> {
    let mut span = annex_telemetry::span(SpanKind::Internal, "activation");
    let mut measured = annex_telemetry::measure(Work::Activation, "");
    let negotiated = active_for(installed, passed_on, occasion);
    match &negotiated {
        Ok(active) if span.is_recording() => {
            span.set_number("annex.extensions.count", active.len());
            span.set_text("annex.extensions.active", &format_extensions(active.iter().map(|active| active.uri())));
        }
        Ok(_) => {}
        Err(_) => {
            span.fail("required_extension");
            measured.ends_as("required_extension");
        }
    }
    negotiated
}

fn active_for(
    installed: &Installed,
    passed_on: &[AgentExtension],
    occasion: &Occasion<'_>,
) -> Result<Vec<Arc<Extension>>, A2aError> {
    let unasked = occasion.unasked(installed);
    let asked = |uri: &ExtensionUri| occasion.requests(uri) || unasked.contains(&uri);
    let (active, mut missing) = among(installed, occasion, asked);
    // The extensions that an upstream requires are checked here as well, before anything is sent to the upstream.
    missing.extend(passed_on.iter().filter(|other| other.required && !asked(&other.uri)).map(|other| &other.uri));
    if missing.is_empty() {
        tell(&active);
        return Ok(active);
    }
    let missing = missing.into_iter().cloned().collect();
    Err(A2aError::ExtensionSupportRequired {
        missing,
        unknown: unknown_here(installed, passed_on, occasion.requested()),
    })
}

/// Returns the installed extensions that are active, and the URIs that required extensions lack. `asked` tells whether an
/// extension is requested, or is active without a request.
fn among<'i>(
    installed: &'i Installed,
    occasion: &Occasion<'_>,
    asked: impl Fn(&ExtensionUri) -> bool,
) -> (Vec<Arc<Extension>>, Vec<&'i ExtensionUri>) {
    let mut active: Vec<Arc<Extension>> = Vec::new();
    let mut missing = Vec::new();
    // Each inactive extension, with the URI that the client has to request first.
    let mut lacking: Vec<(&ExtensionUri, Option<&ExtensionUri>)> = Vec::new();
    // An extension comes after its dependencies, so one pass is enough.
    for extension in installed.iter().filter(|extension| occasion.allows(installed, extension)) {
        let lack_of = |uri| lacking.iter().find(|(other, _)| *other == uri).map_or(Some(uri), |(_, lack)| *lack);
        let lack = if asked(extension.uri()) {
            extension.descriptor().depends_on.iter().find_map(lack_of)
        } else {
            Some(extension.uri())
        };
        match lack {
            None => active.push(Arc::clone(extension)),
            Some(uri) if extension.is_required() && !missing.contains(&uri) => missing.push(uri),
            Some(_) => {}
        }
        lacking.push((extension.uri(), lack));
    }
    (active, missing)
}

/// Returns the extensions with `hook` that are active for a read of tasks or of the extended card, in the order of the
/// config. A read is never refused for a missing extension.
pub(crate) fn for_read(installed: &Installed, occasion: &Occasion<'_>, hook: Hook) -> Vec<Arc<Extension>> {
    let unasked = occasion.unasked(installed);
    let asked = |uri: &ExtensionUri| occasion.requests(uri) || unasked.contains(&uri);
    let (mut active, _) = among(installed, occasion, asked);
    active.retain(|extension| extension.hooks().contains(&hook));
    active
}

/// Adds the active extensions to the request's log line.
fn tell(active: &[Arc<Extension>]) {
    annex_telemetry::with(|request| {
        if request.is_measured() && !active.is_empty() {
            let _ = request.extensions.set(format_extensions(active.iter().map(|extension| extension.uri())).into());
        }
    });
}

/// Returns the URIs to store for a turn that may run again: the active extensions, and the requested extensions of a
/// remote agent. When the turn runs again, these URIs activate the same extensions, as far as they are installed. The
/// claims of the caller are not stored and not needed.
pub(crate) fn to_ask_again(
    requested: &[ExtensionUri],
    passed_on: &[AgentExtension],
    active: &[Arc<Extension>],
) -> Vec<ExtensionUri> {
    let is_active = |uri: &ExtensionUri| active.iter().any(|extension| extension.uri() == uri);
    let is_passed_on = |uri: &ExtensionUri| passed_on.iter().any(|other| other.uri == *uri);
    let mut again: Vec<ExtensionUri> =
        requested.iter().filter(|uri| is_active(uri) || is_passed_on(uri)).cloned().collect();
    for extension in active {
        if !again.contains(extension.uri()) {
            again.push(extension.uri().clone());
        }
    }
    again
}
