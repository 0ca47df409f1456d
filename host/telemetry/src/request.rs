//! The facts about one request.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::outcome::{Outcome, OutcomeCounts};
use crate::stages::{StageTimes, Stages};

/// A request, or a turn that continues without one. Each fact is set by the first code that learns it; later values
/// are ignored.
pub struct Request {
    stages: Stages,
    is_logged: bool,
    received: AtomicU64,
    is_over: AtomicBool,
    /// Tenant named in the request, whether it exists or not.
    pub tenant: OnceLock<Arc<str>>,
    /// Authenticated principal, if any.
    pub caller: OnceLock<Arc<str>>,
    /// Binding, such as JSON-RPC or gRPC.
    pub binding: OnceLock<&'static str>,
    /// Protocol version of the request.
    pub version: OnceLock<&'static str>,
    /// Requested operation.
    pub operation: OnceLock<&'static str>,
    /// Extension method that the request calls.
    pub method: OnceLock<Arc<str>>,
    /// Id of the conversation.
    pub context: OnceLock<Arc<str>>,
    /// Id of the task.
    pub task: OnceLock<Arc<str>>,
    /// Active extensions, in the format of the header `A2A-Extensions`.
    pub extensions: OnceLock<Box<str>>,
    /// Outcome other than `Ok`, and the reason in one word.
    pub verdict: OnceLock<(Outcome, &'static str)>,
    /// Extensions that refused or failed the request, or were missing.
    pub blamed: OnceLock<Box<str>>,
    /// Name of the quota that the request exceeded, if any.
    pub quota: OnceLock<&'static str>,
    /// Error id that the log has for the fault.
    pub error_id: OnceLock<Box<str>>,
    /// Request counters of the tenant.
    pub counts: OnceLock<Arc<OutcomeCounts>>,
}

impl Request {
    /// Begins a request now. With `is_logged`, the time per stage is measured for its log line.
    #[must_use]
    pub fn begin(is_logged: bool) -> Arc<Self> {
        Arc::new(Self {
            stages: Stages::new(Instant::now()),
            is_logged,
            received: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            tenant: OnceLock::new(),
            caller: OnceLock::new(),
            binding: OnceLock::new(),
            version: OnceLock::new(),
            operation: OnceLock::new(),
            method: OnceLock::new(),
            context: OnceLock::new(),
            task: OnceLock::new(),
            extensions: OnceLock::new(),
            verdict: OnceLock::new(),
            blamed: OnceLock::new(),
            quota: OnceLock::new(),
            error_id: OnceLock::new(),
            counts: OnceLock::new(),
        })
    }

    /// True if the request gets a log line.
    #[must_use]
    pub fn is_logged(&self) -> bool {
        self.is_logged
    }

    /// Marks the request as ended: its log line gets no further fields. Returns true for the first call.
    pub fn end(&self) -> bool {
        !self.is_over.swap(true, Ordering::Relaxed)
    }

    /// True once the request has ended. Its turn may still run.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Adds to the received bytes of the body.
    pub fn add_received(&self, bytes: usize) {
        self.received.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Received bytes of the body.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Time since the beginning, and time per stage. The latter is zero if the request gets no log line.
    #[must_use]
    pub fn spent(&self) -> (Duration, StageTimes) {
        let now = Instant::now();
        let all = now.saturating_duration_since(self.stages.began());
        (all, if self.is_logged { self.stages.spent(now) } else { StageTimes::default() })
    }

    /// Sets the conversation and the task.
    pub fn is_about(&self, context: Option<Arc<str>>, task: Option<Arc<str>>) {
        // The first value stays, here and below.
        if let Some(context) = context {
            let _ = self.context.set(context);
        }
        if let Some(task) = task {
            let _ = self.task.set(task);
        }
    }

    /// Sets the outcome to `Refused` with a reason in one word.
    pub fn refuse(&self, reason: &'static str) {
        let _ = self.verdict.set((Outcome::Refused, reason));
    }

    /// Sets the extensions that caused the failure.
    pub fn blame(&self, extensions: impl Into<Box<str>>) {
        let _ = self.blamed.set(extensions.into());
    }

    pub(crate) fn stages(&self) -> &Stages {
        &self.stages
    }
}
