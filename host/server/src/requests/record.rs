//! One finished request.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use annex_telemetry::timeline::Timeline;
use annex_telemetry::{Outcome, Request, StageTimes};

/// The maximum size of a text of a request, in bytes. A longer text is cut and ends with `…`.
const MAX_TEXT: usize = 200;
/// The maximum size of a list of extensions, in bytes.
const MAX_LIST: usize = 300;
/// The maximum size of an error id, in bytes.
const MAX_ID: usize = 64;

/// A finished request, as the access log has measured it. Its texts are those of clients and authors: they are neither
/// escaped nor trusted. Nothing of the message or the answer is kept.
#[derive(Debug)]
pub(crate) struct RequestRecord {
    /// The number of the request in this process. Later requests have higher numbers.
    pub(crate) number: u64,
    /// The end of the request.
    pub(crate) ended: SystemTime,
    pub(crate) took: Duration,
    pub(crate) stages: StageTimes,
    pub(crate) operation: &'static str,
    pub(crate) outcome: Outcome,
    /// The reason of the outcome in one word.
    pub(crate) reason: Option<&'static str>,
    pub(crate) address: IpAddr,
    pub(crate) status: Option<u16>,
    pub(crate) binding: Option<&'static str>,
    pub(crate) version: Option<&'static str>,
    pub(crate) quota: Option<&'static str>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// The tenant that the request names.
    pub(crate) tenant: Option<Arc<str>>,
    /// The principal of the caller.
    pub(crate) caller: Option<Arc<str>>,
    /// The method of an extension.
    pub(crate) method: Option<Arc<str>>,
    pub(crate) context: Option<Arc<str>>,
    pub(crate) task: Option<Arc<str>>,
    /// The active extensions, separated by commas.
    pub(crate) extensions: Option<Box<str>>,
    /// The extensions that refused the request, failed in it or were missing, separated by commas.
    pub(crate) blamed: Option<Box<str>>,
    pub(crate) error_id: Option<Box<str>>,
    /// The id of the trace in hexadecimal digits.
    pub(crate) trace_id: Option<Box<str>>,
    /// The work for the request. A turn that continues after the answer adds its work here.
    pub(crate) timeline: Option<Arc<Timeline>>,
}

/// The end of a request, as the access log has found it.
pub(crate) struct End {
    pub(crate) operation: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) reason: Option<&'static str>,
    pub(crate) address: IpAddr,
    pub(crate) status: Option<u16>,
    pub(crate) bytes_out: u64,
    pub(crate) took: Duration,
    pub(crate) stages: StageTimes,
}

impl RequestRecord {
    /// The record of a request. The ring sets the number.
    pub(crate) fn new(request: &Request, end: &End) -> Self {
        let list = |text: &str| cut(text, MAX_LIST).into_boxed_str();
        Self {
            number: 0,
            ended: SystemTime::now(),
            took: end.took,
            stages: end.stages,
            operation: end.operation,
            outcome: end.outcome,
            reason: end.reason,
            address: end.address,
            status: end.status,
            binding: request.binding.get().copied(),
            version: request.version.get().copied(),
            quota: request.quota.get().copied(),
            bytes_in: request.received(),
            bytes_out: end.bytes_out,
            tenant: request.tenant.get().map(bounded),
            caller: request.caller.get().map(bounded),
            method: request.method.get().map(bounded),
            context: request.context.get().map(bounded),
            task: request.task.get().map(bounded),
            extensions: request.extensions.get().map(|uris| list(uris)),
            blamed: request.blamed.get().map(|uris| list(uris)),
            error_id: request.error_id.get().map(|id| cut(id, MAX_ID).into_boxed_str()),
            trace_id: request.sampled_span().map(|span| span.trace_id().to_string().into_boxed_str()),
            timeline: request.timeline().cloned(),
        }
    }

    /// The error id of the request's fault. A turn that fails after the answer sets it late.
    pub(crate) fn error_id(&self) -> Option<&str> {
        let late = || Some(&*self.timeline.as_ref()?.fault()?.error_id);
        self.error_id.as_deref().or_else(late)
    }

    /// The text that the log has under the request's error id.
    pub(crate) fn cause(&self) -> Option<&str> {
        let fault = self.timeline.as_ref()?.fault()?;
        // The request may have failed in two ways. The client was told the id of one of them.
        (self.error_id() == Some(&*fault.error_id)).then_some(&*fault.cause)
    }

    /// True if this extension was active, refused the request, failed in it, or was missing.
    pub(crate) fn names_extension(&self, uri: &str) -> bool {
        let lists = [self.extensions.as_deref(), self.blamed.as_deref()];
        lists.into_iter().flatten().any(|list| list.split(',').any(|other| other.trim() == uri))
    }
}

/// The text itself, if it is short enough, and a copy of its beginning otherwise.
fn bounded(text: &Arc<str>) -> Arc<str> {
    if text.len() <= MAX_TEXT { Arc::clone(text) } else { cut(text, MAX_TEXT).into() }
}

/// A copy of at most `limit` bytes, which ends with `…` if something is missing.
fn cut(text: &str, limit: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= limit {
        return text.to_owned();
    }
    let beginning = text.get(..text.floor_char_boundary(limit - MARK.len())).unwrap_or_default();
    format!("{beginning}{MARK}")
}
