//! The generated messages, the client and the server of `lf.a2a.v1` and `annex.extension.v1`.

#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]

use std::fmt;

tonic::include_proto!("lf.a2a.v1");

/// The generated code of `annex.extension.v1`, the service for methods of extensions.
pub mod extension {
    tonic::include_proto!("annex.extension.v1");
}

/// The descriptors of the services and of their imports, for reflection.
pub(crate) const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("a2a");

/// Prints the config without its token.
impl fmt::Debug for TaskPushNotificationConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("TaskPushNotificationConfig");
        debug.field("tenant", &self.tenant).field("id", &self.id).field("task_id", &self.task_id);
        debug.field("url", &self.url).field("authentication", &self.authentication).finish_non_exhaustive()
    }
}

/// Prints the scheme without its credentials.
impl fmt::Debug for AuthenticationInfo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AuthenticationInfo").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}
