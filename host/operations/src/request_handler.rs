//! [`RequestHandler`]: performs the operations for one agent, with its extensions and the parts of the process.
//!
//! Each operation has a module with an `impl` of [`RequestHandler`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use annex_agent::{AgentExecutor, Steps};
use annex_fairness::of_tenant;
use annex_protocol::{A2aError, TaskId};
use annex_telemetry::traces::RequestTrace;
use annex_telemetry::{Request, of_request};
use http::{HeaderMap, HeaderName};

use crate::answer::{self, EventStream, Until};
use crate::extension_set::ExtensionSets;
use crate::on_lost_turn::OnLostTurn;
use crate::permits::TurnLimiter;
use crate::process_parts::ProcessParts;
use crate::quota::TenantUse;
use crate::receipts::Receipts;
use crate::send_message::input_modes::InputModes;
use crate::tasks::log::{LogReader, LoggedEvent};

/// Performs the A2A operations for one agent. Each tenant has a handler.
pub struct RequestHandler {
    /// A reference to this handler, for work that continues after a request is answered.
    pub me: Weak<RequestHandler>,
    /// The parts that all handlers of the process share.
    pub process: Arc<ProcessParts>,
    /// The installed extensions.
    pub extensions: Arc<ExtensionSets>,
    /// The agent.
    pub agent: Arc<dyn AgentExecutor>,
    /// The agent's name, under which its conversations are stored.
    pub app: Arc<str>,
    /// True if the agent is remote.
    pub agent_is_remote: bool,
    /// The metadata keys of messages whose values only the remote agent gets, and which are not stored.
    pub forgotten_keys: Vec<String>,
    /// The operator's decision about turns whose process has ended.
    pub on_lost_turn: OnLostTurn,
    /// The accepted media types of messages.
    pub input_modes: InputModes,
    /// Limits concurrent turns.
    pub turn_limiter: Arc<TurnLimiter>,
    /// The tenant's usage and quota. `None` for the agent of the config itself, which has no quota.
    pub used: Option<Arc<TenantUse>>,
    /// Signs a receipt of each turn. `None` if the config asks for none.
    pub receipts: Option<Arc<Receipts>>,
    /// True once the tenant has been removed.
    pub removed: AtomicBool,
}

impl RequestHandler {
    /// Counts a request for the tenant and for the caller. Called before any work for the request.
    ///
    /// # Errors
    /// [`A2aError::QuotaExceeded`].
    pub fn admit(&self, principal: &str) -> Result<(), A2aError> {
        self.used.as_ref().map_or(Ok(()), |used| used.admit(principal))
    }

    /// Copies the header fields of a request that the agent or an extension may see. If the agent is remote, these are all
    /// fields. Otherwise they are the fields that the grants of extensions name. The field `key_header`, which carries API
    /// keys, is never among them: a grant may be older than the config that names the field. `None` if nobody may see any.
    pub fn visible_headers(&self, headers: &HeaderMap, key_header: Option<&HeaderName>) -> Option<Arc<HeaderMap>> {
        if self.agent_is_remote {
            return Some(Arc::new(without(headers.clone(), key_header)));
        }
        // Without a current set the request is refused later.
        let extensions = self.extensions.current().ok()?;
        let fields = without(named(headers, extensions.installed.shown_headers()), key_header);
        Some(fields).filter(|fields| !fields.is_empty()).map(Arc::new)
    }

    /// Runs the future `done` for the tenant. Instances and connections are shared fairly between tenants.
    pub(crate) fn for_tenant<F: Future>(&self, done: F) -> impl Future<Output = F::Output> {
        of_tenant(self.tenant(), done)
    }

    /// Runs the future `done` for the tenant, like [`Self::for_tenant`], and names the task in its log lines. Used for work on
    /// a task that no request waits for.
    pub(crate) fn for_task<F: Future>(&self, task: &TaskId, done: F) -> impl Future<Output = F::Output> {
        let trace = self.process.tracer.clone().map(RequestTrace::background);
        let request = Request::begin_traced(false, trace);
        let tenant = self.tenant();
        if !tenant.is_empty() {
            let _ = request.tenant.set(Arc::clone(&tenant));
        }
        request.is_about(None, Some(task.clone().into()));
        of_tenant(tenant, of_request(request, done))
    }

    /// Makes the stream of [`answer::events`] for this tenant. The stream ends at the latest when this server closes its
    /// streams.
    pub(crate) fn events(&self, first: Option<LoggedEvent>, reader: Option<LogReader>, until: Until) -> EventStream {
        answer::events(first, reader, (self.tenant(), self.process.closing.clone()), until)
    }

    fn tenant(&self) -> Arc<str> {
        self.used.as_ref().map(|used| used.tenant()).unwrap_or_default()
    }

    /// The tenant's name for log lines. `None` for the agent of the config itself.
    pub(crate) fn tenant_name(&self) -> Option<String> {
        Some(self.tenant().to_string()).filter(|tenant| !tenant.is_empty())
    }

    /// Calls [`TenantUse::check_work`], if the tenant has a quota.
    pub(crate) async fn check_work(&self, principal: &str) -> Result<(), A2aError> {
        match &self.used {
            Some(used) => used.check_work(principal).await,
            None => Ok(()),
        }
    }

    /// Calls [`TenantUse::check_new_session`], if the tenant has a quota.
    pub(crate) fn check_new_session(&self) -> Result<(), A2aError> {
        self.used.as_ref().map_or(Ok(()), |used| used.check_new_session())
    }

    /// Checks that new turns may begin: the server does not drain, and the tenant is still served. A turn that has
    /// waited checks this again.
    pub(crate) fn check_begins(&self) -> Result<(), A2aError> {
        if self.process.running.is_closed() {
            return Err(A2aError::Overloaded { reason: "the server is draining".to_owned() });
        }
        self.check_removed()
    }

    /// Checks that the tenant is still served.
    pub(crate) fn check_removed(&self) -> Result<(), A2aError> {
        // A turn that has begun just before the flag was set is cancelled by the tenant's name.
        if self.removed.load(Ordering::Relaxed) {
            return Err(A2aError::Overloaded { reason: "the tenant has been removed".to_owned() });
        }
        Ok(())
    }

    /// Makes `steps` count tokens and CPU time for the tenant and for the caller. The CPU time of extensions in the current
    /// request counts for the caller too.
    pub(crate) fn counted(&self, steps: Steps, principal: &str) -> Steps {
        let steps = steps.timed_in(Arc::clone(&self.process.counters.calls));
        let Some(used) = &self.used else { return steps };
        let caller = used.caller(principal);
        if let Some(caller) = &caller {
            // A turn without a request was not admitted, so its extensions are charged from here on.
            caller.charge_request();
        }
        steps.counting_in(Some(used.tokens(caller.as_deref()))).taking_time_of(Some(used.cpu(caller)))
    }
}

/// The fields with these names.
fn named(headers: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let fields = names.iter().flat_map(|name| headers.get_all(name).into_iter().map(move |value| (name, value)));
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn without(mut headers: HeaderMap, key_header: Option<&HeaderName>) -> HeaderMap {
    if let Some(name) = key_header {
        headers.remove(name);
    }
    headers
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{named, without};

    #[test]
    fn the_field_of_api_keys_is_removed_although_a_grant_names_it() {
        let names = ["x-scope", "x-client"].map(HeaderName::from_static);
        let mut headers = HeaderMap::new();
        for name in ["x-scope", "x-client", "x-client", "x-other"] {
            headers.append(name, HeaderValue::from_static("value"));
        }
        assert_eq!(named(&headers, &names).len(), 3);
        let [scope, client] = &names;
        let visible = without(named(&headers, &names), Some(client));
        assert_eq!(visible.keys().collect::<Vec<_>>(), [scope]);
    }
}
