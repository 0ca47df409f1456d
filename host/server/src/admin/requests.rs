//! The admin API's paths for the last requests.

use std::sync::Arc;

use annex_protocol::Timestamp;
use annex_telemetry::timeline::ShownPart;
use annex_telemetry::{Outcome, millis};
use axum::extract::{Extension, Path, Query};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;

use super::error::AdminError;
use super::shared::{Admin, OfTenant};
use crate::admin_api::requests::{Details, List, Request, Work};
use crate::requests::{RecentRequests, RequestFilter, RequestRecord, VisibleRequests};

/// The default and the maximum number of requests in a list.
const SHOWN: usize = 100;
const MAX_SHOWN: usize = 1_000;

pub(super) fn routes() -> Router<Arc<Admin>> {
    Router::new().route("/v1/requests", get(answer_list)).route("/v1/requests/{number}", get(answer_one))
}

/// The query for a list of requests. The newest request comes first.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestQuery {
    /// Shows only requests that name this tenant.
    pub(crate) tenant: Option<String>,
    pub(crate) operation: Option<String>,
    /// The name of an outcome.
    pub(crate) outcome: Option<String>,
    /// The URI of an extension.
    pub(crate) extension: Option<String>,
    /// The id of a conversation.
    pub(crate) context: Option<String>,
    /// The number of the request before which the list begins.
    pub(crate) before: Option<u64>,
    /// The number of the request after which a stream of new requests begins. A list ignores it.
    pub(crate) after: Option<u64>,
    pub(crate) limit: Option<usize>,
}

impl RequestQuery {
    /// The conditions of the query. Empty texts, which forms send, are no conditions.
    ///
    /// # Errors
    /// The outcome is unknown. The error is a text for people.
    pub(crate) fn filter(&self) -> Result<RequestFilter, String> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let outcome = match given(&self.outcome) {
            Some(name) => Some(outcome_of(&name)?),
            None => None,
        };
        let (operation, extension) = (given(&self.operation), given(&self.extension));
        Ok(RequestFilter { operation, outcome, extension, context: given(&self.context) })
    }
}

fn outcome_of(name: &str) -> Result<Outcome, String> {
    let found = Outcome::ALL.into_iter().find(|outcome| outcome.name() == name);
    found.ok_or_else(|| format!("`outcome` is {name:?}; write ok, refused, failed or gone"))
}

/// The requests that a query for this tenant may show. A query without a tenant may show all requests. A token with the
/// role of one tenant must name this tenant in each query.
pub(crate) fn visible_to(tenant: Option<&str>) -> VisibleRequests {
    tenant
        .filter(|tenant| !tenant.is_empty())
        .map_or(VisibleRequests::All, |tenant| VisibleRequests::Tenant(tenant.into()))
}

async fn answer_list(
    Extension(recent): Extension<Arc<RecentRequests>>,
    Query(query): Query<RequestQuery>,
) -> Result<Json<List>, AdminError> {
    Ok(Json(List { requests: list(&recent, &query)?.iter().map(|record| shown(record)).collect() }))
}

async fn answer_one(
    Extension(recent): Extension<Arc<RecentRequests>>,
    Query(of): Query<OfTenant>,
    Path(number): Path<u64>,
) -> Result<Json<Details>, AdminError> {
    let found = find(&recent, number, of.tenant.as_deref())?;
    Ok(Json(details(&found)))
}

/// The kept requests that match the query, the newest first.
pub(crate) fn list(recent: &RecentRequests, query: &RequestQuery) -> Result<Vec<Arc<RequestRecord>>, AdminError> {
    check_on(recent)?;
    let filter = query.filter().map_err(AdminError::invalid)?;
    let limit = query.limit.unwrap_or(SHOWN).clamp(1, MAX_SHOWN);
    Ok(recent.list(&filter, &visible_to(query.tenant.as_deref()), (query.before, limit)))
}

/// The request with this number. With a tenant, only if the request names this tenant.
pub(crate) fn find(
    recent: &RecentRequests,
    number: u64,
    tenant: Option<&str>,
) -> Result<Arc<RequestRecord>, AdminError> {
    check_on(recent)?;
    recent.find(number, &visible_to(tenant)).ok_or_else(|| {
        let message = format!("request {number} is not kept; only the last requests are");
        AdminError::new(StatusCode::NOT_FOUND, "no_request", message)
    })
}

/// Refuses the request if the config keeps no requests.
fn check_on(recent: &RecentRequests) -> Result<(), AdminError> {
    if recent.is_on() {
        return Ok(());
    }
    let message = "the config of the server keeps no requests; set admin.requests and start it again";
    Err(AdminError::new(StatusCode::CONFLICT, "no_requests", message))
}

/// The request as JSON.
pub(crate) fn shown(record: &RequestRecord) -> Request {
    let text = |text: Option<&str>| text.map(str::to_owned);
    Request {
        number: record.number,
        ended: Timestamp::from_millis(since_1970(record)).to_string(),
        operation: record.operation.to_owned(),
        outcome: record.outcome.name().to_owned(),
        reason: text(record.reason),
        tenant: text(record.tenant.as_deref()),
        caller: text(record.caller.as_deref()),
        address: record.address.to_string(),
        binding: text(record.binding),
        version: text(record.version),
        method: text(record.method.as_deref()),
        context: text(record.context.as_deref()),
        task: text(record.task.as_deref()),
        extensions: text(record.extensions.as_deref()),
        extension: text(record.blamed.as_deref().filter(|_| record.outcome != Outcome::Ok)),
        quota: text(record.quota),
        error_id: text(record.error_id()),
        trace_id: text(record.trace_id.as_deref()),
        status: record.status,
        bytes_in: record.bytes_in,
        bytes_out: record.bytes_out,
        ms: millis(record.took),
        hooks_ms: millis(record.stages.hooks),
        agent_ms: millis(record.stages.agent),
        store_ms: millis(record.stages.store),
    }
}

/// The end of the request in milliseconds since 1970.
fn since_1970(record: &RequestRecord) -> i64 {
    let since = record.ended.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The request and its work as JSON.
pub(crate) fn details(record: &RequestRecord) -> Details {
    let timeline = record.timeline.as_deref();
    Details {
        request: shown(record),
        cause: record.cause().map(str::to_owned),
        work: timeline.map(|timeline| timeline.parts().into_iter().map(work).collect()).unwrap_or_default(),
        work_left_out: timeline.map_or(0, |timeline| timeline.left_out()),
    }
}

fn work(part: ShownPart) -> Work {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    Work {
        kind: part.work.name().to_owned(),
        what: text(part.what),
        verdict: text(part.verdict),
        start_us: micros(part.start),
        us: micros(part.took),
        cpu_us: micros(part.cpu),
        input_tokens: part.input_tokens,
        output_tokens: part.output_tokens,
        name: Some(part.name).filter(|name| !name.is_empty()),
    }
}
