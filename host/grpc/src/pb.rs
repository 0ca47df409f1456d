//! The generated messages, the clients and the servers of `lf.a2a.v1`, `a2a.v1` and `annex.extension.v1`.

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

/// The generated code of `a2a.v1`, the service of A2A 0.3.
pub mod v0_3 {
    tonic::include_proto!("a2a.v1");
}

/// The descriptors of the services that are always served, and of their imports, for reflection.
pub(crate) const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("a2a");
/// The descriptors of the service of A2A 0.3 and of its imports, for reflection.
pub(crate) const FILE_DESCRIPTOR_SET_V0_3: &[u8] = tonic::include_file_descriptor_set!("a2a_v0_3");

/// Prints the config without its token.
impl fmt::Debug for TaskPushNotificationConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("TaskPushNotificationConfig");
        debug.field("tenant", &self.tenant).field("id", &self.id).field("task_id", &self.task_id);
        debug.field("url", &self.url).field("authentication", &self.authentication).finish_non_exhaustive()
    }
}

/// Prints the config without its token.
impl fmt::Debug for v0_3::PushNotificationConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("PushNotificationConfig");
        debug.field("id", &self.id).field("url", &self.url);
        debug.field("authentication", &self.authentication).finish_non_exhaustive()
    }
}

/// Prints the schemes without the credentials.
impl fmt::Debug for v0_3::AuthenticationInfo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AuthenticationInfo").field("schemes", &self.schemes).finish_non_exhaustive()
    }
}

/// Prints the scheme without its credentials.
impl fmt::Debug for AuthenticationInfo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AuthenticationInfo").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}
