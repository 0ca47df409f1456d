//! The operations that a client can call.

use std::fmt;

use annex_protocol::Method;

/// An operation of A2A, or a method of an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// An operation of A2A (specification section 3.1).
    A2a(Method),
    /// A method of an extension.
    Extension(ExtensionMethod),
}

/// A JSON-RPC method that an extension declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionMethod {
    /// The extension's short name, which is part of the path on HTTP+JSON.
    pub extension: String,
    /// The name of the JSON-RPC method.
    pub name: String,
}

impl Operation {
    /// The name of the operation in JSON-RPC and gRPC requests.
    pub fn name(&self) -> &str {
        match self {
            Self::A2a(method) => method.name(),
            Self::Extension(method) => &method.name,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
