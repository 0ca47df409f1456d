//! The request and the span of the current tokio task.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use futures::future::Either;
use opentelemetry::Value;

use crate::request::Request;
use crate::stages::{Stage, StageGuard};
use crate::timeline::{Measurement, Work};
use crate::traces::{ActiveSpan, Span, SpanContext, SpanKind, TraceFields, TraceHandle};

tokio::task_local! {
    static CURRENT: Scope;
}

/// The request that a tokio task works for, and the span that it works in.
#[derive(Clone)]
struct Scope {
    request: Arc<Request>,
    /// `None` directly below the request.
    span: Option<Arc<ActiveSpan>>,
}

impl Scope {
    fn of(request: Arc<Request>) -> Self {
        Self { request, span: None }
    }

    /// The current span. `None` if there is no trace, or if no span of the trace has begun.
    fn active(&self) -> Option<Arc<ActiveSpan>> {
        self.span.clone().or_else(|| self.request.trace()?.root())
    }

    /// Begins a span below the current one.
    fn span(&self, kind: SpanKind, name: &'static str) -> Span {
        let Some(trace) = self.request.trace() else { return Span::off() };
        self.active().map_or_else(Span::off, |parent| trace.begin(Some(&parent), kind, name))
    }

    /// Begins a span below the current one, or the first span of a new trace.
    fn span_or_trace(&self, kind: SpanKind, name: &'static str) -> Span {
        let Some(trace) = self.request.trace() else { return Span::off() };
        trace.begin(self.active().as_ref(), kind, name)
    }

    fn measured(&self) -> Option<Arc<Request>> {
        self.request.is_measured().then(|| Arc::clone(&self.request))
    }
}

/// Runs a future for a request. Tasks that the future spawns belong to no request, unless they are wrapped in
/// [`of_same_request`].
pub fn of_request<F: Future>(request: Arc<Request>, done: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(Scope::of(request), done)
}

/// Runs a future for the current request and in the current span. Wrap a spawned task in this if the task works for the
/// request. If there is no current request, a new request begins that is not logged.
pub fn of_same_request<F: Future>(done: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(current().unwrap_or_else(|| Scope::of(Request::begin(false))), done)
}

/// Runs a future in the current span, but for no request. Wrap a spawned task in this if the request does not wait for the
/// task, such as for a push notification. Without a trace the future runs as it is.
pub fn of_same_trace<F: Future>(done: F) -> impl Future<Output = F::Output> {
    let traced = |scope: &Scope| Some(Scope { request: scope.request.begin_beside()?, span: Some(scope.active()?) });
    match CURRENT.try_with(traced).ok().flatten() {
        Some(scope) => Either::Left(CURRENT.scope(scope, done)),
        None => Either::Right(done),
    }
}

/// Calls `tell` with the current request, if there is one.
pub fn with(tell: impl FnOnce(&Request)) {
    // Fails if there is no current request.
    let _ = CURRENT.try_with(|scope| tell(&scope.request));
}

/// Runs a synchronous function for a request.
pub fn in_request<T>(request: &Arc<Request>, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(Scope::of(Arc::clone(request)), work)
}

fn current() -> Option<Scope> {
    CURRENT.try_with(Scope::clone).ok()
}

/// Begins a span below the current one. Records nothing if there is no trace.
pub fn span(kind: SpanKind, name: &'static str) -> Span {
    CURRENT.try_with(|scope| scope.span(kind, name)).unwrap_or_else(|_| Span::off())
}

/// Begins the span of a turn. If the turn continues without a request, a new trace begins, and `earlier` finds the span
/// of another trace that has caused the turn. It is called only if the new trace is recorded.
pub fn turn_span(name: &'static str, earlier: impl FnOnce() -> Option<SpanContext>) -> Span {
    let mut span =
        CURRENT.try_with(|scope| scope.span_or_trace(SpanKind::Internal, name)).unwrap_or_else(|_| Span::off());
    if span.is_recording()
        && let Some(earlier) = earlier()
    {
        span.link(earlier);
    }
    span
}

/// The current request in a span. `None` if the span records nothing.
fn scope_in(span: &Span) -> Option<Scope> {
    let active = Arc::clone(span.active()?);
    let Scope { request, .. } = current()?;
    Some(Scope { request, span: Some(active) })
}

/// Runs a synchronous function in a span.
pub fn in_span<T>(span: &Span, work: impl FnOnce() -> T) -> T {
    match scope_in(span) {
        Some(scope) => CURRENT.sync_scope(scope, work),
        None => work(),
    }
}

/// Runs a future in a span.
// No `async fn`: its future would have room for `work` twice.
pub fn within<F: Future>(span: &Span, work: F) -> impl Future<Output = F::Output> + use<F> {
    match scope_in(span) {
        Some(scope) => Either::Left(CURRENT.scope(scope, work)),
        None => Either::Right(work),
    }
}

/// Runs a boxed future in a span, which ends with the future. The span has failed if the future returns an error. A span
/// that records nothing costs nothing.
pub fn whole_within<'a, T: 'a, E: 'a>(
    mut span: Span,
    work: Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>,
) -> Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>> {
    if !span.is_recording() {
        return work;
    }
    Box::pin(within(&span, work).map(move |done| {
        if done.is_err() {
            span.fail("failed");
        }
        done
    }))
}

/// Adds an attribute to the current span.
pub fn note(key: &'static str, value: impl Into<Value>) {
    let _ = CURRENT.try_with(|scope| {
        if scope.request.trace().is_some()
            && let Some(active) = scope.active()
        {
            active.note(key, value.into());
        }
    });
}

/// Marks the work of the current span as failed. `kind` is one word.
pub fn fail(kind: &'static str) {
    let _ = CURRENT.try_with(|scope| {
        if scope.request.trace().is_some()
            && let Some(active) = scope.active()
        {
            active.fail(kind);
        }
    });
}

/// The context of the current span for a request to another server. `None` if there is no trace.
#[must_use]
pub fn trace_fields() -> Option<TraceFields> {
    CURRENT.try_with(|scope| scope.active().map(|active| TraceFields::of(active.context()))).ok().flatten()
}

/// The current span, for work that it causes later.
#[must_use]
pub fn trace_handle() -> TraceHandle {
    let handle = |scope: &Scope| scope.request.trace_handle(scope.active()?);
    CURRENT.try_with(handle).ok().flatten().unwrap_or_default()
}

/// Begins a piece of work for the timeline of the current request. `name` names the worker. It may be empty.
pub fn measure(work: Work, name: &str) -> Measurement {
    let begin = |scope: &Scope| Measurement::begin(scope.request.timeline(), work, name);
    CURRENT.try_with(begin).unwrap_or_else(|_| Measurement::off())
}

/// Enters a stage of the current request, until the guard is dropped. If the request is not measured, this costs almost
/// nothing.
pub fn enter(stage: Stage) -> StageGuard {
    measured()
        .map_or_else(|| StageGuard::nowhere(stage), |request| StageGuard::new(Some(request), stage, Instant::now()))
}

/// Enters [`Stage::Store`] as [`enter`] does, for a trip to a database. The trip gets a span. `system` is the name that
/// OpenTelemetry has for the database system, and `operation` is one word.
pub fn enter_store(system: &'static str, operation: &'static str) -> StageGuard {
    let enter = |scope: &Scope| {
        let guard = match scope.measured() {
            Some(request) => StageGuard::new(Some(request), Stage::Store, Instant::now()).with_name(operation),
            None => StageGuard::nowhere(Stage::Store),
        };
        if scope.request.trace().is_none() {
            return guard;
        }
        let mut span = scope.span(SpanKind::Client, "store");
        span.extend_name(operation);
        span.set("db.system.name", system);
        span.set("db.operation.name", operation);
        guard.with_span(span)
    };
    CURRENT.try_with(enter).unwrap_or_else(|_| StageGuard::nowhere(Stage::Store))
}

/// Enters a stage as [`enter`] does. `at` is the current time, which the caller already knows.
pub fn enter_at(stage: Stage, at: Instant) -> StageGuard {
    StageGuard::new(measured(), stage, at)
}

fn measured() -> Option<Arc<Request>> {
    CURRENT.try_with(Scope::measured).ok().flatten()
}

/// The ids of the current request, for a log line: tenant, conversation, task and trace.
pub struct Ids(Option<Scope>);

/// Returns the ids of the current request.
#[must_use]
pub fn ids() -> Ids {
    Ids(current())
}

impl Ids {
    /// The tenant; `None` for the config's own agent.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.of(|request| request.tenant.get())
    }

    /// The id of the conversation.
    #[must_use]
    pub fn context(&self) -> Option<&str> {
        self.of(|request| request.context.get())
    }

    /// The id of the task.
    #[must_use]
    pub fn task(&self) -> Option<&str> {
        self.of(|request| request.task.get())
    }

    /// The tenant, the id of the conversation, and the id of the task.
    #[must_use]
    pub fn all(&self) -> (Option<&str>, Option<&str>, Option<&str>) {
        (self.tenant(), self.context(), self.task())
    }

    /// The id of the trace, 32 hexadecimal digits. `None` if there is no trace.
    #[must_use]
    pub fn trace(&self) -> Option<String> {
        self.0.as_ref()?.active().map(|active| active.context().trace_id().to_string())
    }

    fn of(&self, id: impl FnOnce(&Request) -> Option<&Arc<str>>) -> Option<&str> {
        self.0.as_ref().and_then(|scope| id(&scope.request)).map(|id| &**id)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use opentelemetry::trace::Status;

    use super::{
        enter, enter_store, fail, ids, in_span, note, of_request, of_same_request, of_same_trace, span, trace_fields,
        trace_handle, turn_span, whole_within, with, within,
    };
    use crate::request::Request;
    use crate::stages::Stage;
    use crate::traces::{RequestTrace, Span, SpanKind, TraceFields, Tracer, TracerConfig, parent_of};

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn tracer(
        sample: f64,
        max_queued: usize,
    ) -> (Tracer, tokio::sync::mpsc::Receiver<opentelemetry_sdk::trace::SpanData>) {
        Tracer::new(&TracerConfig { sample, follow_parent: true, max_queued })
    }

    #[tokio::test]
    async fn a_span_is_below_the_span_in_which_it_begins_also_in_another_task() {
        let (tracer, mut queue) = tracer(0.0, 16);
        let request = Request::begin_traced(false, Some(RequestTrace::served(tracer)));
        request.trace().expect("a trace").continues(|| parent_of(PARENT, None));
        let work = async {
            let turn = turn_span("turn", || None);
            within(&turn, async {
                note("annex.turn.outcome", "failed");
                fail("failed");
                tokio::spawn(of_same_request(async { drop(enter_store("sqlite", "read")) })).await.expect("no panic");
                in_span(&span(SpanKind::Client, "chat"), || {
                    let fields = trace_fields().expect("a trace");
                    assert!(fields.parent.starts_with("00-0af7651916cd43dd8448eb211c80319c-"), "{fields:?}");
                });
            })
            .await;
        };
        of_request(request.clone(), work).await;
        drop(request.span("SendMessage"));
        let mut spans = Vec::new();
        while let Ok(span) = queue.try_recv() {
            spans.push(span);
        }
        let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
        assert_eq!(names, ["store read", "chat", "turn", "SendMessage"]);
        let [store, chat, turn, root] = spans.as_slice() else { panic!("{spans:?}") };
        assert_eq!(store.parent_span_id, turn.span_context.span_id());
        let attributes = store.attributes.iter().map(|attribute| (attribute.key.as_str(), attribute.value.to_string()));
        let expected = [("db.system.name", "sqlite".to_owned()), ("db.operation.name", "read".to_owned())];
        assert_eq!(attributes.collect::<Vec<_>>(), expected);
        assert_eq!(chat.parent_span_id, turn.span_context.span_id());
        assert_eq!(turn.parent_span_id, root.span_context.span_id());
        assert_eq!(root.parent_span_id.to_string(), "b7ad6b7169203331");
        assert!(root.parent_span_is_remote && !turn.parent_span_is_remote);
        assert_eq!(turn.attributes.first().map(|note| note.value.to_string()).as_deref(), Some("failed"));
        assert_eq!(turn.status, Status::error("failed"));
        assert_eq!(root.status, Status::Unset);
    }

    #[tokio::test]
    async fn work_that_returns_an_error_has_failed() {
        let (tracer, mut queue) = tracer(1.0, 16);
        let request = Request::begin_traced(false, Some(RequestTrace::served(tracer)));
        let failed = of_request(request, async {
            let work: Pin<Box<dyn Future<Output = Result<(), &str>> + Send>> = Box::pin(async { Err("no") });
            whole_within(span(SpanKind::Internal, "agent"), work).await
        });
        assert_eq!(failed.await, Err("no"));
        assert_eq!(queue.try_recv().expect("a span").status, Status::error("failed"));
    }

    #[tokio::test]
    async fn a_trace_that_is_not_sampled_is_passed_on_and_not_recorded() {
        let (tracer, mut queue) = tracer(0.0, 16);
        let request = Request::begin_traced(false, Some(RequestTrace::served(tracer)));
        let fields = of_request(request.clone(), async {
            drop(enter_store("sqlite", "read"));
            (span(SpanKind::Client, "chat").fields(), trace_fields())
        });
        let (below, here) = fields.await;
        assert_eq!(below, here);
        assert!(here.expect("a trace").parent.ends_with("-00"));
        drop(request.span("SendMessage"));
        assert!(queue.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_turn_that_no_request_waits_for_is_in_one_trace_also_if_the_trace_is_not_sampled() {
        for (sample, recorded) in [(0.0, 0), (1.0, 2)] {
            let (tracer, queue) = tracer(sample, 16);
            let background = Request::begin_traced(false, Some(RequestTrace::background(tracer)));
            let (outer, inner, logged) = of_request(background, async {
                let lost = turn_span("lost_turn", || None);
                within(&lost, async {
                    let turn = turn_span("turn", || None);
                    within(&turn, async { (lost.fields(), trace_fields(), ids().trace()) }).await
                })
                .await
            })
            .await;
            let trace = |fields: Option<TraceFields>| fields.expect("a trace").parent.get(..35).map(str::to_owned);
            assert_eq!(trace(outer), trace(inner));
            assert!(logged.is_some());
            assert_eq!(queue.len(), recorded);
        }
    }

    #[tokio::test]
    async fn without_a_tracer_there_is_no_trace() {
        let nothing = of_request(Request::begin(true), async {
            note("annex.turn.outcome", "completed");
            (turn_span("turn", || None).is_recording(), trace_fields(), ids().trace())
        });
        assert_eq!(nothing.await, (false, None, None));
        assert_eq!(trace_fields(), None);
    }

    #[tokio::test]
    async fn a_future_in_a_span_is_not_held_twice() {
        let work = async {
            let held = [0_u8; 4_096];
            tokio::task::yield_now().await;
            std::hint::black_box(held);
        };
        let size = size_of_val(&work);
        let more = size_of_val(&within(&Span::off(), work)) - size;
        assert!(more < 128, "{more} bytes more than {size}");
    }

    #[tokio::test]
    async fn spans_beyond_the_queue_and_beyond_the_bound_of_a_request_are_lost_and_counted() {
        let (tracer, queue) = tracer(1.0, 10);
        let request = Request::begin_traced(false, Some(RequestTrace::served(tracer.clone())));
        of_request(request, async {
            for _ in 0..1_100 {
                drop(span(SpanKind::Internal, "hook"));
            }
        })
        .await;
        assert_eq!((queue.len(), tracer.counts()), (10, (0, 1_090)));
    }

    #[tokio::test]
    async fn work_that_a_request_causes_later_has_spans_within_the_bound_of_the_request() {
        let (tracer, queue) = tracer(1.0, 4_096);
        let request = Request::begin_traced(false, Some(RequestTrace::served(tracer.clone())));
        of_request(request, async {
            let handle = trace_handle();
            for _ in 0..600 {
                drop(handle.span(SpanKind::Client, "push"));
            }
            let beside = of_same_trace(async {
                for _ in 0..600 {
                    drop(enter_store("sqlite", "write"));
                }
            });
            tokio::spawn(beside).await.expect("no panic");
        })
        .await;
        assert_eq!((queue.len(), tracer.counts()), (1_000, (0, 200)));
    }

    #[tokio::test]
    async fn facts_about_a_request_are_shared_by_its_tasks() {
        let request = Request::begin(true);
        let known = of_request(request, async {
            with(|request| request.is_about(Some("c".into()), Some("t".into())));
            let same = tokio::spawn(of_same_request(async { ids().context().map(str::to_owned) }));
            let other = tokio::spawn(async { ids().context().map(str::to_owned) });
            (same.await.expect("no panic"), other.await.expect("no panic"))
        });
        assert_eq!(known.await, (Some("c".to_owned()), None));
        assert_eq!(ids().task(), None);
    }

    #[tokio::test]
    async fn the_stages_of_a_request_are_measured_where_a_line_is_wanted() {
        for (is_logged, is_measured) in [(true, true), (false, false)] {
            let request = Request::begin(is_logged);
            let worked = of_request(request.clone(), async {
                let stage = enter(Stage::Store);
                let began = std::time::Instant::now();
                while began.elapsed().as_micros() < 10 {}
                drop(stage);
            });
            worked.await;
            let (all, spent) = request.spent();
            assert_eq!(!spent.store.is_zero(), is_measured);
            assert!(spent.store <= all);
        }
    }
}
