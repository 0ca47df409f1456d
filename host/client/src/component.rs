//! Interceptors that run an extension's side in the client, from the component file of the extension.
//!
//! Compiled with the feature `components` only, because it needs the runtime.

use std::fmt;
use std::sync::Arc;

use annex_protocol::{ExtensionUri, Json, Metadata};
use annex_runtime::{Addition, ClientCall, ClientCallRequest, Extension, Hook};
use async_trait::async_trait;
use tokio::sync::Mutex;

use crate::{Incoming, Interceptor, InterceptorError, OutgoingCall};

/// A loaded component whose hook `client` runs before and after each call.
///
/// The component runs as in a server: confined, within its limits and grants, with a new instance for each call. A
/// fault or a refusal of the component fails the call.
pub struct ComponentInterceptor {
    extension: Arc<Extension>,
    input: Option<Json>,
    tell: Box<Tell>,
}

/// Receives values that an extension has for the program.
type Tell = dyn Fn(&ExtensionUri, Json) + Send + Sync;

/// The error for a component without the hook `client`.
#[derive(Clone, Debug, thiserror::Error)]
#[error("extension {uri} has no client's side: its component does not export the hook `client`")]
pub struct NoClientHook {
    /// The URI of the extension.
    pub uri: ExtensionUri,
}

/// The error for two extensions that set the same metadata key of a call.
#[derive(Debug, thiserror::Error)]
#[error("extension {uri} sets the metadata key {key:?}, which is set already")]
struct KeyTaken {
    uri: ExtensionUri,
    key: String,
}

/// The started calls of hooks, one for each component. The context of the outgoing call stores this list, so that each
/// component finds its call when an answer arrives.
#[derive(Clone, Default)]
struct UnderWay(Vec<(Arc<Extension>, Arc<Mutex<ClientCall>>)>);

impl ComponentInterceptor {
    /// Passes `input` to the hook at each call. `tell` is called with each value that the hook has for the program.
    ///
    /// The [`Runtime`](annex_runtime::Runtime) that loaded the extension must outlive the interceptor, because the
    /// runtime stops guests that loop.
    ///
    /// # Errors
    /// When the component does not export the hook.
    pub fn new(
        extension: Arc<Extension>,
        input: Option<Json>,
        tell: impl Fn(&ExtensionUri, Json) + Send + Sync + 'static,
    ) -> Result<Self, NoClientHook> {
        if !extension.hooks().contains(&Hook::Client) {
            return Err(NoClientHook { uri: extension.uri().clone() });
        }
        Ok(Self { extension, input, tell: Box::new(tell) })
    }

    /// Adds the hook's metadata and activation to the call.
    fn add(&self, addition: Addition, call: &mut OutgoingCall<'_>) -> Result<(), InterceptorError> {
        if addition.activate {
            call.parameters.activate(self.extension.uri().clone())?;
        }
        if let Some(message) = &mut call.message {
            self.merge(addition.message, &mut message.metadata)?;
        }
        if let Some(metadata) = &mut call.metadata {
            self.merge(addition.request, metadata)?;
        }
        Ok(())
    }

    fn merge(&self, added: Metadata, metadata: &mut Metadata) -> Result<(), KeyTaken> {
        for (key, value) in added {
            // The losing extension would not notice that its value was replaced, so the call fails before it is sent.
            if metadata.contains_key(&key) {
                return Err(KeyTaken { uri: self.extension.uri().clone(), key });
            }
            metadata.insert(key, value);
        }
        Ok(())
    }
}

#[async_trait]
impl Interceptor for ComponentInterceptor {
    async fn before(&self, call: &mut OutgoingCall<'_>) -> Result<(), InterceptorError> {
        let outgoing = ClientCallRequest {
            operation: call.operation.name(),
            agent: call.card_url,
            declaration: call.card.extension(self.extension.uri().as_str()),
            input: self.input.as_ref(),
            message: call.message.as_deref(),
        };
        let (started, addition) = ClientCall::start(&self.extension, &outgoing).await?;
        let UnderWay(under_way) = call.context.get_or_insert_default::<UnderWay>();
        // The context holds only what can be cloned, so the call is behind an Arc. It is dropped with the call, so the
        // instance is dropped even if no answer comes.
        under_way.push((Arc::clone(&self.extension), Arc::new(Mutex::new(started))));
        self.add(addition, call)
    }

    async fn after(&self, incoming: &mut Incoming<'_>) -> Result<(), InterceptorError> {
        let Some(event) = incoming.event else { return Ok(()) };
        let UnderWay(under_way) = incoming.context.get_or_insert_default::<UnderWay>();
        // By identity, because a call belongs to this very component and not to its URI.
        let own = under_way.iter().find(|(extension, _)| Arc::ptr_eq(extension, &self.extension));
        let Some((_, call)) = own else { return Ok(()) };
        let active = incoming.active.contains(self.extension.uri());
        if let Some(told) = call.lock().await.after(event, active).await? {
            (self.tell)(self.extension.uri(), told);
        }
        Ok(())
    }
}

impl fmt::Debug for ComponentInterceptor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ComponentInterceptor").field("uri", self.extension.uri()).finish_non_exhaustive()
    }
}
