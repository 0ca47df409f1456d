//! A call of a method that an extension provides.

use std::sync::Arc;
use std::time::Duration;

use annex_protocol::{A2aError, FieldViolation, Json};
use annex_schema::{Schema, SchemaError, Violation};

use crate::bindings::SeenRequest;
use crate::chain::{Member, TurnRequest};
use crate::confinement::limits::LimitReached;
use crate::contract::MethodReply;
use crate::error::{Fault, HookError};
use crate::extension::Extension;
use crate::hook::Hook;
use crate::recording::step::{StepInput, StepResult};

/// A running method call, which may return several results. Dropping it frees the instance.
pub struct MethodCall {
    member: Member,
    /// Index of the method in the extension's list of methods.
    place: usize,
}

/// One result of a method, or a stream of results.
pub enum MethodAnswer {
    /// The only result. The call has ended.
    Value(Json),
    /// A stream of results, read with [`MethodCall::next`].
    Results(Box<MethodCall>),
}

impl MethodCall {
    /// Calls the method `request.operation` with `params`, a JSON object. `activation` runs first, in the same
    /// instance.
    ///
    /// # Errors
    /// The extension has no such method, the parameters violate the method's schema, or the extension refuses the
    /// call or fails.
    pub async fn start(
        extension: &Arc<Extension>,
        request: &TurnRequest<'_>,
        params: &Json,
    ) -> Result<MethodAnswer, HookError> {
        let name = request.operation;
        let place = extension.methods().iter().position(|method| method.name == name);
        let place = place.ok_or_else(|| A2aError::MethodNotFound { method: name.to_owned() })?;
        let mut call = Self { member: Member::admit(extension, Arc::clone(&request.view)).await?, place };
        call.member.notes(|recorder| recorder.call(request.head(), params));
        let answered = call.ask(request, params).await;
        call.member.noted(&answered, |value| value.clone().map_or(StepResult::Streams, StepResult::Value));
        call.member.fails_by(&answered);
        Ok(match answered? {
            Some(value) => MethodAnswer::Value(value),
            None => MethodAnswer::Results(Box::new(call)),
        })
    }

    /// Returns the next result of the stream, or `None` at its end.
    ///
    /// # Errors
    /// The extension ends the stream with an error, or fails. No further results follow.
    pub async fn next(&mut self) -> Result<Option<Json>, HookError> {
        if self.member.is_out() {
            return Ok(None);
        }
        self.member.notes(|recorder| recorder.step(|| StepInput::Next));
        let result = self.ask_next().await;
        self.member.noted(&result, |value| value.clone().map_or(StepResult::Ends, StepResult::Value));
        let result = self.member.counted(Hook::Method, result);
        self.member.fails_by(&result);
        // The call ends with the stream or with an error, and its instance is freed.
        if !matches!(result, Ok(Some(_))) {
            self.member.leave();
        }
        result
    }

    /// Calls the method. Returns its only result, or `None` if the method streams its results.
    async fn ask(&mut self, request: &TurnRequest<'_>, params: &Json) -> Result<Option<Json>, HookError> {
        let seen = request.seen();
        if !self.member.takes_part(&seen).await? {
            let uri = self.member.extension.uri();
            let reason = format!("extension {uri} takes no part in this call of its method {}", request.operation);
            return Err(A2aError::UnsupportedOperation { reason }.into());
        }
        let answered = self.ask_method(&seen, request.operation, params).await;
        self.member.counted(Hook::Method, answered)
    }

    async fn ask_method(&mut self, seen: &SeenRequest, name: &str, params: &Json) -> Result<Option<Json>, HookError> {
        let extension = Arc::clone(&self.member.extension);
        let hooks = &extension.program.hooks;
        let Some(method) = extension.methods.get(self.place).filter(|_| hooks.has(Hook::Method)) else {
            return Err(A2aError::MethodNotFound { method: name.to_owned() }.into());
        };
        let limit = extension.profile.limits.input;
        if params.get().len() > limit {
            let reason = format!("the parameters of {name} have at most {limit} bytes");
            return Err(A2aError::invalid_params(reason).into());
        }
        // The client sent the parameters, so validating them is not charged to the extension.
        let allowed = extension.profile.limits.cpu;
        let mut spent = Duration::ZERO;
        let violations = violations(&extension, method.params.as_ref(), params.get(), allowed, &mut spent).await;
        let violations = violations.map_err(|error| not_taken(&error))?;
        if !violations.is_empty() {
            return Err(A2aError::InvalidParams { violations: violations.into_iter().map(told).collect() }.into());
        }
        let name = name.to_owned();
        let params = params.get().to_owned();
        let answered = self
            .member
            .call(Hook::Method, async |store, component| hooks.call(store, component, seen, &name, params).await)
            .await?;
        match answered {
            Ok(MethodReply::Value(_)) if method.streams => {
                Err(self.broke("it answers one value to a method that streams"))
            }
            Ok(MethodReply::Value(value)) => self.checked(value).await.map(Some),
            Ok(MethodReply::Results) if method.streams => Ok(None),
            Ok(MethodReply::Results) => Err(self.broke("it streams, which the method is not declared to do")),
            Err(rejection) => Err(self.member.refusal(Hook::Method, rejection)?.into()),
        }
    }

    async fn ask_next(&mut self) -> Result<Option<Json>, HookError> {
        let extension = Arc::clone(&self.member.extension);
        let hooks = &extension.program.hooks;
        if !hooks.has(Hook::Method) {
            return Ok(None);
        }
        let next = self.member.call(Hook::Method, async |store, component| hooks.next(store, component).await).await?;
        match next {
            Ok(None) => Ok(None),
            Ok(Some(value)) => self.checked(value).await.map(Some),
            Err(rejection) => Err(self.member.refusal(Hook::Method, rejection)?.into()),
        }
    }

    /// Parses a result and checks it against the method's schema.
    async fn checked(&mut self, value: String) -> Result<Json, HookError> {
        let value = Json::parse(value).map_err(|error| self.broke(&format!("its result is not JSON: {error}")))?;
        let extension = Arc::clone(&self.member.extension);
        let Some(method) = extension.methods.get(self.place) else { return Ok(value) };
        // The extension provides both schema and result, so its CPU time limits the validation.
        let allowed = self.member.host().map_or(Duration::ZERO, |host| host.cpu_left());
        let mut spent = Duration::ZERO;
        let violations = violations(&extension, method.result.as_ref(), value.get(), allowed, &mut spent).await;
        let violations = self.charged(violations, spent)?;
        match violations.first() {
            None => Ok(value),
            Some(Violation { pointer, message }) => {
                Err(self.broke(&format!("its result violates its own schema at {pointer:?}: {message}")))
            }
        }
    }

    /// Charges the CPU time for validating a result to the extension. Returns the violations, or a fault if the
    /// validation failed or the extension has used up its CPU time.
    fn charged(
        &mut self,
        violations: Result<Vec<Violation>, SchemaError>,
        spent: Duration,
    ) -> Result<Vec<Violation>, HookError> {
        let charged = self.member.host().map_or(Ok(()), |host| host.charge(spent));
        let limit_reached = |limit| self.member.limit_reached(Hook::Method, limit).into();
        match (violations, charged) {
            // Overload of the host must not count against the extension.
            (Err(SchemaError::Busy), _) => Err(Fault::Overloaded { uri: self.member.extension.uri().clone() }.into()),
            (Err(SchemaError::OutOfTime), _) => Err(limit_reached(LimitReached::Cpu)),
            (_, Err(limit)) => Err(limit_reached(limit)),
            (Err(SchemaError::Unusable(reason)), Ok(())) => Err(self.broke(&format!("its result: {reason}"))),
            (Ok(violations), Ok(())) => Ok(violations),
        }
    }

    fn broke(&self, reason: &str) -> HookError {
        let fault: Fault = self.member.broke(Hook::Method, reason);
        fault.into()
    }
}

/// Validates a value and returns the violations. Without a schema every value is valid.
async fn violations(
    extension: &Extension,
    schema: Option<&Arc<Schema>>,
    value: &str,
    allowed: Duration,
    spent: &mut Duration,
) -> Result<Vec<Violation>, SchemaError> {
    let Some(schema) = schema else { return Ok(Vec::new()) };
    extension.profile.schemas.validate_with(schema, value, allowed, spent).await
}

/// The error that the client gets if its parameters could not be validated.
fn not_taken(error: &SchemaError) -> A2aError {
    match error {
        SchemaError::Busy => A2aError::Overloaded { reason: error.to_string() },
        SchemaError::Unusable(_) | SchemaError::OutOfTime => A2aError::invalid_params(error.to_string()),
    }
}

fn told(violation: Violation) -> FieldViolation {
    FieldViolation { field: violation.pointer, description: violation.message }
}
