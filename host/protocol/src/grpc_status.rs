//! The canonical status codes that A2A errors map to.

/// A gRPC status code. The HTTP+JSON binding writes its name into `error.status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GrpcStatus {
    /// The client's request is wrong, regardless of the server's state.
    InvalidArgument,
    /// The requested entity does not exist.
    NotFound,
    /// The server, or a task, is not in the state that the operation needs.
    FailedPrecondition,
    /// The server does not have the operation, or not for this request.
    Unimplemented,
    /// A quota or rate limit of the caller or its tenant is used up.
    ResourceExhausted,
    /// A fault of the server.
    Internal,
    /// The server cannot answer now but may later.
    Unavailable,
    /// The request has no valid credentials.
    Unauthenticated,
}

impl GrpcStatus {
    /// The name in the proto file of `google.rpc.Code`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::NotFound => "NOT_FOUND",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
            Self::Unauthenticated => "UNAUTHENTICATED",
        }
    }

    /// The number in the proto file of `google.rpc.Code`.
    pub const fn number(self) -> i32 {
        match self {
            Self::InvalidArgument => 3,
            Self::NotFound => 5,
            Self::FailedPrecondition => 9,
            Self::Unimplemented => 12,
            Self::ResourceExhausted => 8,
            Self::Internal => 13,
            Self::Unavailable => 14,
            Self::Unauthenticated => 16,
        }
    }
}
