//! The page of the last requests, and the page of one request with its waterfall.

use annex_telemetry::Outcome;
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::routing::get;

use super::operator::{ConsoleState, Operator};
use super::page::{failed, page};
use super::shown::address;
use crate::admin::requests::{RequestQuery, details, find, list, shown};
use crate::admin_api::requests::{Details, Request, Work};
use crate::requests::RequestRecord;

/// The path of the list.
const PATH: &str = "/requests";
/// The path of the stream of new requests.
pub(super) const LIVE: &str = "/requests/live";
/// The width of a waterfall in the units of its drawing.
const WIDTH: f64 = 1_000.0;
/// The minimum width of a bar, so that short work can be seen.
const MIN_WIDTH: f64 = 3.0;

pub(super) fn routes() -> Router<ConsoleState> {
    Router::new().route(PATH, get(show_list)).route(&format!("{PATH}/{{number}}"), get(show_one))
}

#[derive(Template)]
#[template(path = "requests.html")]
struct RequestsPage {
    tenant: String,
    operation: String,
    extension: String,
    context: String,
    outcomes: Vec<OutcomeChoice>,
    rows: Vec<Row>,
    /// The path of the stream of later requests.
    live: String,
    /// The path of the page of earlier requests. `None` if there are none.
    earlier: Option<String>,
    /// True if the list begins with the newest request.
    is_newest: bool,
}

/// An outcome that the form offers.
struct OutcomeChoice {
    name: &'static str,
    is_chosen: bool,
}

/// A request in the list. All texts are escaped for one line.
struct Row {
    number: u64,
    /// The path of the request's page.
    path: String,
    ended: String,
    operation: String,
    outcome: String,
    is_bad: bool,
    reason: String,
    tenant: String,
    context: String,
    extensions: String,
    ms: String,
}

#[derive(Template)]
#[template(path = "request_row.html")]
struct RowTemplate {
    row: Row,
}

#[derive(Template)]
#[template(path = "request.html")]
struct RequestPage {
    /// The path of the list.
    list: String,
    facts: Vec<Fact>,
    cause: Option<String>,
    error_id: String,
    bars: Vec<Bar>,
    left_out: u64,
    whole: String,
}

/// A fact about a request.
struct Fact {
    name: &'static str,
    text: String,
}

/// A piece of work in the waterfall. All texts are escaped for one line.
struct Bar {
    kind: String,
    label: String,
    verdict: String,
    is_bad: bool,
    start: String,
    took: String,
    note: String,
    x: String,
    width: String,
}

async fn show_list(
    State(console): State<ConsoleState>,
    operator: Operator,
    Query(query): Query<RequestQuery>,
) -> Response {
    let found = match list(&console.gate.access_log.recent, &query) {
        Ok(found) => found,
        Err(error) => return failed(&error),
    };
    let newest = found.first().map_or(0, |record| record.number);
    let oldest = found.last().map(|record| record.number).filter(|number| *number > 1);
    let chosen = query.outcome.clone().unwrap_or_default();
    let choice = |outcome: Outcome| OutcomeChoice { name: outcome.name(), is_chosen: outcome.name() == chosen };
    let content = RequestsPage {
        tenant: given(query.tenant.as_deref()),
        operation: given(query.operation.as_deref()),
        extension: given(query.extension.as_deref()),
        context: given(query.context.as_deref()),
        outcomes: Outcome::ALL.into_iter().map(choice).collect(),
        live: link(LIVE, &query, ("after", newest)),
        earlier: oldest.map(|oldest| link(PATH, &query, ("before", oldest))),
        is_newest: query.before.is_none(),
        rows: found.iter().map(|record| row_of(record, query.tenant.as_deref())).collect(),
    };
    page(&operator, "Requests", "requests", &content)
}

fn given(text: Option<&str>) -> String {
    text.unwrap_or_default().to_owned()
}

/// A path with the conditions of the query and one more parameter.
fn link(path: &str, query: &RequestQuery, (name, number): (&str, u64)) -> String {
    let number = number.to_string();
    let parameters = [
        ("tenant", stated(query.tenant.as_deref())),
        ("operation", stated(query.operation.as_deref())),
        ("outcome", stated(query.outcome.as_deref())),
        ("extension", stated(query.extension.as_deref())),
        ("context", stated(query.context.as_deref())),
        (name, Some(number.as_str())),
    ];
    address(path, &parameters)
}

/// A path with the tenant of the query, so that the next page shows only requests of this tenant too.
fn within(path: &str, tenant: Option<&str>) -> String {
    address(path, &[("tenant", stated(tenant))])
}

/// The value of a condition. A form sends an empty text for a condition that the operator has left empty.
fn stated(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

/// The row of a request as HTML, for the stream of new requests. `tenant` is the tenant of the query.
///
/// # Errors
/// The template cannot be rendered.
pub(super) fn row(record: &RequestRecord, tenant: Option<&str>) -> Result<String, askama::Error> {
    RowTemplate { row: row_of(record, tenant) }.render()
}

fn row_of(record: &RequestRecord, tenant_of_query: Option<&str>) -> Row {
    let Request { number, ended, operation, outcome, reason, tenant, context, extensions, extension, ms, .. } =
        shown(record);
    Row {
        number,
        path: within(&format!("{PATH}/{number}"), tenant_of_query),
        ended,
        operation,
        is_bad: is_bad(&outcome),
        outcome,
        reason: reason.unwrap_or_default(),
        tenant: line(tenant),
        context: line(context),
        extensions: line(extension.or(extensions)),
        ms: format!("{ms:.1}"),
    }
}

/// Escapes control characters and invisible characters of a text of clients and authors.
fn line(text: Option<String>) -> String {
    annex_text::line(&text.unwrap_or_default()).into_owned()
}

fn is_bad(verdict: &str) -> bool {
    !matches!(verdict, "" | "ok") && !verdict.starts_with("TASK_STATE_")
}

async fn show_one(
    State(console): State<ConsoleState>,
    operator: Operator,
    Query(query): Query<RequestQuery>,
    Path(number): Path<u64>,
) -> Response {
    match find(&console.gate.access_log.recent, number, query.tenant.as_deref()) {
        Ok(record) => {
            let list = within(PATH, query.tenant.as_deref());
            page(&operator, &format!("Request {number}"), "requests", &page_of(details(&record), list))
        }
        Err(error) => failed(&error),
    }
}

fn page_of(details: Details, list: String) -> RequestPage {
    let Details { request, cause, work, work_left_out } = details;
    let all = (request.ms * 1e3) as u64;
    // A turn may continue after the answer.
    let end = work.iter().map(|part| part.start_us.saturating_add(part.us)).max().unwrap_or(0).max(all).max(1);
    RequestPage {
        list,
        cause: cause.map(|cause| line(Some(cause))),
        error_id: line(request.error_id.clone()),
        whole: duration(end),
        bars: work.into_iter().map(|part| bar(part, end)).collect(),
        left_out: work_left_out,
        facts: facts(request),
    }
}

fn facts(request: Request) -> Vec<Fact> {
    let millis = |ms: f64| Some(format!("{ms:.3} ms"));
    let facts = [
        ("Ended", Some(request.ended)),
        ("Operation", Some(request.operation)),
        ("Method", request.method),
        ("Outcome", Some(request.outcome)),
        ("Reason", request.reason),
        ("Extensions at fault", request.extension),
        ("Quota", request.quota),
        ("Tenant", request.tenant),
        ("Caller", request.caller),
        ("Address", Some(request.address)),
        ("Binding", request.binding),
        ("Version", request.version),
        ("Context", request.context),
        ("Task", request.task),
        ("Active extensions", request.extensions),
        ("Error id", request.error_id),
        ("Trace", request.trace_id),
        ("HTTP status", request.status.map(|status| status.to_string())),
        ("Bytes received", Some(request.bytes_in.to_string())),
        ("Bytes sent", Some(request.bytes_out.to_string())),
        ("Duration", millis(request.ms)),
        ("In hooks", millis(request.hooks_ms)),
        ("In the agent", millis(request.agent_ms)),
        ("In the store", millis(request.store_ms)),
    ];
    let facts = facts.into_iter().filter(|(_, text)| text.is_some());
    facts.map(|(name, text)| Fact { name, text: line(text) }).collect()
}

/// A bar of a waterfall that ends at `end`, in microseconds.
fn bar(part: Work, end: u64) -> Bar {
    let Work { kind, what, name, verdict, start_us, us, cpu_us, input_tokens, output_tokens } = part;
    let share = |time: u64| time as f64 / end as f64 * WIDTH;
    let x = share(start_us).min(WIDTH - MIN_WIDTH);
    let mut notes = Vec::new();
    if cpu_us > 0 {
        notes.push(format!("{} CPU", duration(cpu_us)));
    }
    if input_tokens > 0 || output_tokens > 0 {
        notes.push(format!("{input_tokens} + {output_tokens} tokens"));
    }
    let verdict = line(verdict);
    Bar {
        kind: kind.replace('_', " "),
        label: [line(what), line(name)].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" · "),
        is_bad: is_bad(&verdict),
        verdict,
        start: duration(start_us),
        took: if kind == "event" { String::new() } else { duration(us) },
        note: notes.join(", "),
        x: format!("{x:.1}"),
        width: format!("{:.1}", share(us).clamp(MIN_WIDTH, WIDTH - x)),
    }
}

/// Microseconds as a text, such as `12 µs` or `3.4 ms`.
fn duration(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.2} s", micros as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use askama::Template;

    use super::{bar, facts, page_of, within};
    use crate::admin_api::requests::{Details, Work};

    const HOSTILE: &str = "<script>alert(1)</script>\u{202e}\u{1b}[31m\"'&";

    fn details() -> Details {
        let json = format!(
            r#"{{"number":1,"ended":"t","operation":"SendMessage","outcome":"ok","tenant":{text},"caller":{text},"address":"::1","context":{text},"task":{text},"extensions":{text},"bytes_in":1,"bytes_out":2,"ms":1.0,"hooks_ms":0.0,"agent_ms":0.0,"store_ms":0.0,"cause":{text},"error_id":{text},"work":[{{"kind":"hook","what":"state","name":{text},"verdict":"refused","start_us":10,"us":20,"cpu_us":5}}]}}"#,
            text = serde_json::to_string(HOSTILE).expect("JSON"),
        );
        serde_json::from_str(&json).expect("details")
    }

    #[test]
    fn what_clients_and_authors_wrote_is_shown_as_text() {
        let html = page_of(details(), "/requests".to_owned()).render().expect("a page");
        assert!(!html.contains("<script"), "{html}");
        assert!(!html.contains(['\u{202e}', '\u{1b}']), "{html}");
        assert!(html.contains("alert(1)"), "{html}");
        assert!(html.contains("state") && html.contains("refused") && html.contains("20 µs"), "{html}");
    }

    #[test]
    fn the_next_page_has_the_tenant_of_the_query() {
        let path = "/requests/7";
        assert_eq!(within(path, None), "/requests/7");
        assert_eq!(within(path, Some("")), "/requests/7");
        assert_eq!(within(path, Some("a&b")), "/requests/7?tenant=a%26b");
    }

    #[test]
    fn absent_facts_are_left_out() {
        let names: Vec<_> = facts(details().request).into_iter().map(|fact| fact.name).collect();
        assert!(names.contains(&"Context") && !names.contains(&"Quota"), "{names:?}");
    }

    #[test]
    fn each_bar_stays_in_the_drawing() {
        for (start_us, us) in [(0, 0), (0, 1_000), (1_000, 0), (999, 1), (500, 500), (u64::MAX, u64::MAX)] {
            let work = Work {
                kind: "store".to_owned(),
                what: None,
                name: None,
                verdict: None,
                start_us,
                us,
                cpu_us: 0,
                input_tokens: 0,
                output_tokens: 0,
            };
            let bar = bar(work, 1_000);
            let (x, width): (f64, f64) = (bar.x.parse().expect("a number"), bar.width.parse().expect("a number"));
            assert!(x >= 0.0 && width >= 3.0 && x + width <= 1_000.1, "{start_us} {us}: {x} {width}");
        }
    }
}
