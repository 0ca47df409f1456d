//! One request, as far as it is known.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::outcome::{Outcome, OutcomeCounts};
use crate::stages::{Spent, Stages};

/// A request, or a turn that goes on without one. What is known of it is written by whoever learns it first.
pub struct Request {
    stages: Stages,
    is_logged: bool,
    received: AtomicU64,
    is_over: AtomicBool,
    /// The tenant that it names, known here or not.
    pub tenant: OnceLock<Arc<str>>,
    /// The principal that sent it; none where nobody is authenticated.
    pub caller: OnceLock<Arc<str>>,
    /// The binding that it came by.
    pub binding: OnceLock<&'static str>,
    /// The version of the protocol that it speaks.
    pub version: OnceLock<&'static str>,
    /// The operation that it asks for.
    pub operation: OnceLock<&'static str>,
    /// The method of an extension that it calls.
    pub method: OnceLock<Arc<str>>,
    /// The conversation.
    pub context: OnceLock<Arc<str>>,
    /// The task.
    pub task: OnceLock<Arc<str>>,
    /// The extensions that are active, as the header names them.
    pub extensions: OnceLock<Box<str>>,
    /// How it ends, unless that is well, and the reason in a word.
    pub verdict: OnceLock<(Outcome, &'static str)>,
    /// The extensions that refused it, failed it, or were missing.
    pub blamed: OnceLock<Box<str>>,
    /// The quota that is used up.
    pub quota: OnceLock<&'static str>,
    /// The id under which the log has the fault.
    pub error_id: OnceLock<Box<str>>,
    /// Where its tenant's requests are counted.
    pub counts: OnceLock<Arc<OutcomeCounts>>,
}

impl Request {
    /// A request that begins now. `is_logged` says whether a line of the log is wanted, for which its stages are measured.
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

    /// True if a line of the log is wanted.
    #[must_use]
    pub fn is_logged(&self) -> bool {
        self.is_logged
    }

    /// Ends it, and with it what its line of the log can say. True for whoever does so first.
    pub fn end(&self) -> bool {
        !self.is_over.swap(true, Ordering::Relaxed)
    }

    /// True once it has ended. A turn may go on.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Counts bytes of its body.
    pub fn add_received(&self, bytes: usize) {
        self.received.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The bytes of its body so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// The time since it began, and the parts of it; these are zero where no line is wanted.
    #[must_use]
    pub fn spent(&self) -> (Duration, Spent) {
        let now = Instant::now();
        let all = now.saturating_duration_since(self.stages.began());
        (all, if self.is_logged { self.stages.spent(now) } else { Spent::default() })
    }

    /// Notes the conversation and the task.
    pub fn is_about(&self, context: Option<Arc<str>>, task: Option<Arc<str>>) {
        // Whoever learned it first stays, here and below.
        if let Some(context) = context {
            let _ = self.context.set(context);
        }
        if let Some(task) = task {
            let _ = self.task.set(task);
        }
    }

    /// Notes that it is refused, for a reason in a word.
    pub fn refuse(&self, reason: &'static str) {
        let _ = self.verdict.set((Outcome::Refused, reason));
    }

    /// Notes the extensions that are to blame.
    pub fn blame(&self, extensions: impl Into<Box<str>>) {
        let _ = self.blamed.set(extensions.into());
    }

    pub(crate) fn stages(&self) -> &Stages {
        &self.stages
    }
}
