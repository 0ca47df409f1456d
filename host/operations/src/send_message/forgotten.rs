//! Metadata of a message that this server forgets: by the grant `forget-metadata` for the hooks of the way in, and by the key
//! `agent.forget_metadata` for an agent behind this server. Both get it from the memory of this process.

use std::sync::Arc;

use annex_protocol::{A2aError, ContextId, Message, Metadata, SendMessageRequest};
use annex_runtime::Extension;

/// The metadata that was taken out of a request before anything of the request is stored.
#[derive(Default)]
pub(crate) struct ForgottenMetadata {
    for_extensions: TakenEntries,
    for_agent: TakenEntries,
}

/// Entries of metadata that were taken out of a request.
#[derive(Default)]
struct TakenEntries {
    message: Metadata,
    request: Metadata,
}

impl ForgottenMetadata {
    /// Takes the metadata of extensions with the grant `forget-metadata` out of the request, and then the metadata under
    /// `keys`, which is for the agent. The extensions do not have to be active: a client that does not activate them has
    /// sent its metadata nevertheless.
    pub(super) fn take<'a>(
        request: &mut SendMessageRequest,
        extensions: impl Iterator<Item = &'a Arc<Extension>>,
        keys: &'a [String],
    ) -> Self {
        let mut forgotten = Self::default();
        let forgetful = extensions.filter(|extension| extension.grants().forget_metadata);
        for key in forgetful.flat_map(|extension| &extension.descriptor().metadata_keys) {
            forgotten.for_extensions.take(key, request);
        }
        for key in keys {
            forgotten.for_agent.take(key, request);
        }
        forgotten
    }

    /// True if the request has no such metadata.
    pub(super) fn is_empty(&self) -> bool {
        self.for_extensions.is_empty() && self.for_agent.is_empty()
    }

    /// The message and the metadata of the request with the metadata for extensions. `None` if there is none.
    pub(super) fn put_back(&self, request: &SendMessageRequest) -> Option<Box<(Message, Metadata)>> {
        let TakenEntries { message: of_message, request: of_request } = &self.for_extensions;
        if self.for_extensions.is_empty() {
            return None;
        }
        let (mut message, mut metadata) = (request.message.clone(), request.metadata.clone());
        message.metadata.merge(of_message.clone());
        metadata.merge(of_request.clone());
        Some(Box::new((message, metadata)))
    }

    /// The metadata for an agent behind this server: of the message, and of the request.
    pub(crate) fn for_agent(&self) -> (Metadata, Metadata) {
        (self.for_agent.message.clone(), self.for_agent.request.clone())
    }
}

impl TakenEntries {
    fn take(&mut self, key: &str, request: &mut SendMessageRequest) {
        for (from, to) in
            [(&mut request.message.metadata, &mut self.message), (&mut request.metadata, &mut self.request)]
        {
            if let Some(value) = from.remove(key) {
                to.insert(key.to_owned(), value);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.message.is_empty() && self.request.is_empty()
    }
}

/// The error for a message with such metadata that would have to wait. A message that waits is stored, and its turn may run in
/// another process.
pub(super) fn cannot_wait(context_id: &ContextId) -> A2aError {
    let reason = format!(
        "another turn runs in context {context_id}, and this message has metadata that must not be stored while the message \
         waits; send the message again after that turn, or in another context"
    );
    A2aError::UnsupportedOperation { reason }
}
