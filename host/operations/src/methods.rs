//! Calls the methods that extensions add to A2A. All bindings use this module.

use std::pin::Pin;
use std::sync::Arc;

use annex_protocol::{A2aError, ExtensionUri, Json, JsonObject, Message, Metadata};
use annex_runtime::{Extension, Installed, MethodAnswer, MethodCall, TurnRequest};
use annex_telemetry::of_same_request;
use futures::stream::{self, Stream};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use crate::activation::Occasion;
use crate::answer::Answer;
use crate::fault;
use crate::methods::method_view::MethodView;
use crate::methods::resumption::Resumptions;
use crate::permits::TurnPermit;
use crate::request_handler::RequestHandler;
use crate::service_parameters::ServiceParameters;
use crate::unknown_extensions::unknown_here;

mod method_view;
pub(crate) mod resumption;

/// The answer of an extension's method: one value or a stream of results.
pub enum MethodResult {
    Value(Json),
    Results(Results),
}

/// The results of a streaming method. An error is always the last item.
pub type Results = Pin<Box<dyn Stream<Item = Result<Json, A2aError>> + Send>>;

impl RequestHandler {
    /// Calls the method `name` of `extension`. Without `extension`, all extensions are searched for the method.
    ///
    /// # Errors
    /// [`A2aError::MethodNotFound`], [`A2aError::ExtensionSupportRequired`] if the extension is not active for the
    /// call, and the errors of the extension.
    pub(crate) async fn call_method(
        &self,
        call: &ServiceParameters,
        (extension, name): (Option<&str>, &str),
        params: &Json,
    ) -> Result<Answer<MethodResult>, A2aError> {
        self.for_tenant(self.call(call, (extension, name), params)).await
    }

    async fn call(
        &self,
        call: &ServiceParameters,
        (extension, name): (Option<&str>, &str),
        params: &Json,
    ) -> Result<Answer<MethodResult>, A2aError> {
        let extensions = self.extensions.current()?;
        let found = extensions.installed.method(name).map(|(extension, _)| Arc::clone(extension));
        let found = found.filter(|found| extension.is_none_or(|extension| found.descriptor().name == extension));
        let occasion = Occasion::method(call);
        let found = found.filter(|found| occasion.allows(&extensions.installed, found));
        let Some(extension) = found else {
            let method = extension.map_or_else(|| name.to_owned(), |extension| format!("{extension}/{name}"));
            return Err(A2aError::MethodNotFound { method });
        };
        tell(&extension, name);
        // The check comes before the permit and the instance, so that a caller without the extension takes no capacity.
        check_active(&extensions.installed, &extension, &occasion)?;
        check_object(params)?;
        self.check_work(&call.owner.principal).await?;
        // The token makes a draining server wait for the call.
        let _counted = self.process.running.token();
        self.check_begins()?;
        let permit = self.turn_limiter.take(&call.owner).await?;
        let resumptions = Resumptions::new(&call.owner.tenant, &self.process.tasks, &self.turn_limiter);
        let message = Message::default();
        let metadata = Metadata::new();
        let request = TurnRequest {
            operation: name,
            context_id: None,
            task_id: None,
            requested: &call.requested,
            message: &message,
            request: &metadata,
            view: Arc::new(MethodView {
                tasks: self.process.views.tasks_of(&call.owner),
                resumptions: Arc::clone(&resumptions),
                caller: extension.grants().caller.is_some().then(|| call.caller()),
            }),
            resumed: false,
        };
        let answered = MethodCall::start(&extension, &request, params).await.map_err(fault::of_hook)?;
        // A failed method has returned above, and resumes no task.
        self.take_up(resumptions.close());
        let value = match answered {
            MethodAnswer::Value(value) => MethodResult::Value(value),
            MethodAnswer::Results(call) => MethodResult::Results(self.results(*call, permit)),
        };
        Ok(Answer { value, active: vec![extension.uri().clone()] })
    }

    /// The results of a streaming method. The call keeps its permit, and the handler of its agent, until the end. All
    /// results together must arrive within the time limit of a turn.
    fn results(&self, call: MethodCall, permit: TurnPermit) -> Results {
        let longest = self.turn_limiter.bounds().longest;
        let deadline = Instant::now() + longest;
        let open = self.me.upgrade().map(|handler| (handler, call, permit));
        Box::pin(stream::unfold(open, move |open| async move {
            let (handler, mut call, permit) = open?;
            let running = Arc::clone(&handler);
            // A task of its own: otherwise a slow reader would suspend the guest, together with the instance that the
            // call occupies.
            let next = AbortOnDropHandle::new(tokio::spawn(of_same_request(async move {
                let next = running.for_tenant(call.next()).await;
                (call, next)
            })));
            let next = tokio::select! {
                biased;
                () = handler.process.closing.cancelled() => return None,
                () = sleep_until(deadline) => {
                    let reason = format!("the results took longer than {} seconds", longest.as_secs());
                    return Some((Err(A2aError::Overloaded { reason }), None));
                }
                next = next => next,
            };
            let (call, next) = match next {
                Ok(next) => next,
                Err(error) => return Some((Err(fault::internal(&error)), None)),
            };
            match next.map_err(fault::of_hook) {
                Ok(Some(value)) => Some((Ok(value), Some((handler, call, permit)))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        }))
    }
}

/// Adds the method to the request's log line.
fn tell(extension: &Extension, method: &str) {
    annex_telemetry::with(|request| {
        let _ = request.method.set(method.into());
        if request.is_measured() {
            let _ = request.extensions.set(extension.uri().as_str().into());
        }
    });
}

/// Checks that the extension of the method is active for the call, and that all its direct and indirect dependencies are
/// active.
fn check_active(installed: &Installed, extension: &Extension, occasion: &Occasion<'_>) -> Result<(), A2aError> {
    let unasked = occasion.unasked(installed);
    let mut needed = vec![extension.uri()];
    let mut next = 0;
    while let Some(uri) = needed.get(next) {
        let depends_on = installed.get(uri).map(|extension| extension.descriptor().depends_on.as_slice());
        let further: Vec<&ExtensionUri> =
            depends_on.unwrap_or_default().iter().filter(|uri| !needed.contains(uri)).collect();
        needed.extend(further);
        next += 1;
    }
    let is_missing = |uri: &&ExtensionUri| !occasion.requests(uri) && !unasked.contains(uri);
    let missing: Vec<ExtensionUri> = needed.into_iter().filter(is_missing).cloned().collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(A2aError::ExtensionSupportRequired { missing, unknown: unknown_here(installed, &[], occasion.requested()) })
}

fn check_object(params: &Json) -> Result<(), A2aError> {
    match JsonObject::parse(params.get()) {
        Ok(_) => Ok(()),
        Err(error) => Err(A2aError::invalid_params(format!("the parameters are not a JSON object: {error}"))),
    }
}
