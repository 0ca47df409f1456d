//! `tasks/search`: reads and filters pages of ListTasks until a page of the answer is full.

use annex_sdk::{Json, Rejection, Violation, clock, json as text};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::matching::{Fit, SearchConditions, Task};

/// The name of the method.
pub const NAME: &str = "tasks/search";

/// JSON Schema of the parameters.
pub const PARAMS: &str = r#"{
  "type": "object",
  "properties": {
    "query": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "Text in a message, an artifact or an artifact's name, in whatever case."},
    "contextId": {"type": "string", "minLength": 1, "description": "Only tasks of this conversation. Anonymous callers must name one."},
    "state": {"type": "string", "pattern": "^TASK_STATE_[A-Z_]+$", "description": "Only tasks in this state."},
    "from": {"type": "string", "format": "date-time", "description": "Only tasks whose status is of this time or later."},
    "to": {"type": "string", "format": "date-time", "description": "Only tasks whose status is of an earlier time."},
    "pageSize": {"type": "integer", "minimum": 1, "maximum": 100, "description": "Tasks in one answer; 20."},
    "pageToken": {"type": "string", "minLength": 1, "description": "The `nextPageToken` of the answer before."}
  },
  "additionalProperties": false
}"#;

/// JSON Schema of the result.
pub const RESULT: &str = r#"{
  "type": "object",
  "properties": {
    "tasks": {
      "type": "array", "description": "The latest first.",
      "items": {
        "type": "object",
        "properties": {"id": {"type": "string"}, "contextId": {"type": "string"}, "status": {"type": "object"}},
        "required": ["id", "contextId", "status"]
      }
    },
    "nextPageToken": {"type": "string", "description": "Empty when there is no more. With it there may be more, even if this page has no task."}
  },
  "required": ["tasks", "nextPageToken"],
  "additionalProperties": false
}"#;

/// The maximum number of tasks that a call examines, so that the call ends in time. The next page of the answer
/// continues with the next task.
const MAX_LOOKED_AT: usize = 200;
/// The number of bytes of tasks after which a call reads no further page. The last page that it reads may exceed this
/// number.
const MAX_BYTES: usize = 512 << 10;

/// The requests to ListTasks that are tried in this order: the page size, and whether artifacts and history are
/// included. The first request is the fastest, and the last one has the smallest answer.
const SEARCHING: [(usize, bool); 3] = [(10, true), (1, true), (1, false)];
/// The requests to ListTasks for a search without a text.
const LISTING: [(usize, bool); 2] = [(10, false), (1, false)];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Params {
    query: Option<String>,
    context_id: Option<String>,
    state: Option<String>,
    from: Option<String>,
    to: Option<String>,
    #[serde(default = "default_page_size")]
    page_size: usize,
    page_token: Option<String>,
}

fn default_page_size() -> usize {
    20
}

/// The position where the next page of a search begins: the page token of ListTasks, and the number of tasks on that
/// page to skip.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct SearchPosition {
    token: String,
    skip: usize,
}

impl SearchPosition {
    /// Parses a page token; `None` if the text has another form.
    fn parse(text: &str) -> Option<Self> {
        let (skip, token) = text.split_once(':')?;
        // A caller who changes this number only skips own tasks.
        Some(Self { token: token.to_owned(), skip: skip.parse().ok()? })
    }

    fn text(&self) -> String {
        format!("{}:{}", self.skip, self.token)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskPage<'a> {
    #[serde(borrow, default)]
    tasks: Vec<Task<'a>>,
    #[serde(default)]
    next_page_token: String,
}

/// Answers a call of the method. `list` calls ListTasks.
///
/// # Errors
/// The parameters are invalid, or ListTasks fails. The rejection has the reason.
pub fn search(params: &str, list: impl Fn(&str) -> Result<Json, String>) -> Result<Json, Rejection> {
    let params: Params =
        serde_json::from_str(params).map_err(|error| Violation::new("", format!("cannot be read: {error}")))?;
    let mut place = match &params.page_token {
        Some(token) => SearchPosition::parse(token)
            .ok_or_else(|| Violation::new("/pageToken", "is not a page token of a search"))?,
        None => SearchPosition::default(),
    };
    let wanted = wanted(&params)?;
    let mut found = Vec::new();
    let mut looked_at = 0;
    let mut bytes = 0;
    while found.len() < params.page_size && looked_at < MAX_LOOKED_AT && bytes < MAX_BYTES {
        let page = fetch(&params, &place.token, &list)?;
        let listed: TaskPage<'_> = serde_json::from_str(&page).map_err(|error| refusal(&params, &error.to_string()))?;
        let seen = look_at(&listed.tasks, place.skip, params.page_size, &wanted, &mut found);
        // An empty page counts too, so that empty pages cannot keep the search going for ever.
        looked_at += listed.tasks.len().max(1);
        bytes += page.len();
        if seen.is_over || (seen.up_to >= listed.tasks.len() && listed.next_page_token.is_empty()) {
            return Ok(answer(&found, ""));
        }
        place = if seen.up_to < listed.tasks.len() {
            SearchPosition { token: place.token, skip: seen.up_to }
        } else {
            // This page may be shorter than the previous call's page, if `fetch` had to request fewer tasks. The
            // remaining skip applies to the next page.
            SearchPosition { token: listed.next_page_token, skip: seen.up_to - listed.tasks.len() }
        };
    }
    Ok(answer(&found, &place.text()))
}

struct PageProgress {
    /// The number of tasks on the page that are done, including skipped tasks. If tasks were deleted since the previous
    /// call, the number may exceed the number of tasks on the page.
    up_to: usize,
    /// True if all following tasks are too old.
    is_over: bool,
}

fn look_at(
    tasks: &[Task<'_>],
    skip: usize,
    page_size: usize,
    wanted: &SearchConditions,
    found: &mut Vec<Json>,
) -> PageProgress {
    let mut up_to = skip;
    for task in tasks.iter().skip(skip) {
        if found.len() == page_size {
            break;
        }
        up_to += 1;
        match wanted.fit(task) {
            Fit::Yes => found.push(task.summary()),
            Fit::No => {}
            Fit::TooOld => return PageProgress { up_to, is_over: true },
        }
    }
    PageProgress { up_to, is_over: false }
}

fn wanted(params: &Params) -> Result<SearchConditions, Rejection> {
    let time = |name: &str, text: &Option<String>| match text {
        None => Ok(None),
        Some(text) => match clock::parse(text) {
            Some(time) => Ok(Some(time)),
            None => Err(Violation::new(format!("/{name}"), "must be a time in RFC 3339, from 1970 on")),
        },
    };
    Ok(SearchConditions {
        // Once for the search and not for each text.
        query: params.query.as_ref().map(|query| query.to_lowercase()),
        state: params.state.clone(),
        from: time("from", &params.from)?,
        to: time("to", &params.to)?,
    })
}

/// Reads a page of ListTasks. If ListTasks fails, for example because the page is too large, tries smaller pages.
fn fetch(params: &Params, token: &str, list: &impl Fn(&str) -> Result<Json, String>) -> Result<Json, Rejection> {
    let mut first_error = None;
    let attempts: &[(usize, bool)] = if params.query.is_some() { &SEARCHING } else { &LISTING };
    for &(page_size, with_content) in attempts {
        match list(&request(params, token, page_size, with_content).to_string()) {
            Ok(page) => return Ok(page),
            Err(error) => _ = first_error.get_or_insert(error),
        }
    }
    Err(refusal(params, &first_error.unwrap_or_default()))
}

fn request(params: &Params, token: &str, page_size: usize, with_content: bool) -> Value {
    let mut request = Map::new();
    request.insert("pageSize".to_owned(), Value::from(page_size));
    request.insert("includeArtifacts".to_owned(), Value::from(with_content));
    if !with_content {
        // 0 leaves the history out; without the field the server would decide.
        request.insert("historyLength".to_owned(), Value::from(0));
    }
    let token = Some(token).filter(|token| !token.is_empty());
    let optional =
        [("contextId", params.context_id.as_deref()), ("status", params.state.as_deref()), ("pageToken", token)];
    for (name, value) in optional {
        request.extend(value.map(|value| (name.to_owned(), Value::from(value))));
    }
    Value::Object(request)
}

fn refusal(params: &Params, reason: &str) -> Rejection {
    // ListTasks reports errors as text only. Anonymous callers should get a pointer to the missing field.
    let pointer = if params.context_id.is_none() && reason.contains("contextId") { "/contextId" } else { "" };
    Violation::new(pointer, format!("the tasks cannot be listed: {reason}")).into()
}

fn answer(found: &[Json], next: &str) -> Json {
    format!(r#"{{"tasks":[{}],"nextPageToken":{}}}"#, found.join(","), text::string(next))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::*;

    /// A store of `count` tasks, newest first, named by their number; even ones mention a flight. Refuses pages with
    /// more than `fits` tasks.
    fn store(count: usize, fits: usize) -> impl Fn(&str) -> Result<Json, String> {
        move |request| {
            let request: Value = serde_json::from_str(request).unwrap();
            let size = request["pageSize"].as_u64().unwrap() as usize;
            if size > fits {
                return Err("the answer has more bytes than the limit".to_owned());
            }
            let start: usize = request["pageToken"].as_str().map_or(0, |token| token.parse().unwrap());
            let end = count.min(start + size);
            let tasks: Vec<Value> = (start..end).map(|number| task(count, number)).collect();
            let next = if end < count { end.to_string() } else { String::new() };
            Ok(json!({"tasks": tasks, "nextPageToken": next}).to_string())
        }
    }

    fn task(count: usize, number: usize) -> Value {
        let text = if number.is_multiple_of(2) { "a flight" } else { "a hotel" };
        let time = clock::text(1_000 * (count - number) as u64);
        json!({"id": number.to_string(), "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED", "timestamp": time},
               "history": [{"parts": [{"text": text}]}]})
    }

    fn page(params: &Value, list: &impl Fn(&str) -> Result<Json, String>) -> (Vec<String>, String) {
        let answer: Value = serde_json::from_str(&search(&params.to_string(), list).unwrap()).unwrap();
        let ids = answer["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned());
        (ids.collect(), answer["nextPageToken"].as_str().unwrap().to_owned())
    }

    /// All pages of a search.
    fn all(params: &Value, list: &impl Fn(&str) -> Result<Json, String>) -> Vec<Vec<String>> {
        let mut pages = Vec::new();
        let mut params = params.clone();
        loop {
            let (ids, next) = page(&params, list);
            pages.push(ids);
            if next.is_empty() {
                return pages;
            }
            params["pageToken"] = Value::from(next);
        }
    }

    #[test]
    fn each_task_that_fits_is_on_one_page_whatever_the_size_of_pages() {
        let expected: Vec<String> = (0..33).step_by(2).map(|number| number.to_string()).collect();
        for size in [1, 3, 4, 10, 100] {
            for fits in [1, 10] {
                let pages = all(&json!({"query": "FLIGHT", "pageSize": size}), &store(33, fits));
                assert!(pages.iter().all(|page| page.len() <= size));
                assert_eq!(pages.concat(), expected, "{size} {fits}");
            }
        }
    }

    #[test]
    fn a_range_of_time_ends_the_search_where_tasks_are_too_old() {
        let calls = Cell::new(0);
        let inner = store(1_000, 10);
        let list = |request: &str| {
            calls.set(calls.get() + 1);
            inner(request)
        };
        let params = json!({"from": clock::text(998_000), "to": clock::text(1_000_000)});
        assert_eq!(all(&params, &list), [["1", "2"]]);
        assert_eq!(calls.get(), 1);
    }

    #[test]
    fn a_long_search_ends_early_and_goes_on_with_its_token() {
        let (ids, next) = page(&json!({"query": "nothing"}), &store(1_000, 10));
        assert!(ids.is_empty());
        assert_eq!(next, "0:200");
        assert_eq!(all(&json!({"query": "nothing"}), &store(1_000, 10)).len(), 5);
    }

    #[test]
    fn a_task_that_is_too_large_is_searched_without_its_content() {
        let list = |request: &str| {
            let request: Value = serde_json::from_str(request).unwrap();
            if request["includeArtifacts"] == true {
                Err("too large".to_owned())
            } else {
                store(1, 10)(&request.to_string())
            }
        };
        assert_eq!(all(&json!({"query": "flight"}), &list), [["0"]]);
    }

    /// A store of tasks with `bytes` additional bytes each.
    fn bulky(count: usize, bytes: usize) -> impl Fn(&str) -> Result<Json, String> {
        let inner = store(count, 1);
        move |request| Ok(inner(request)?.replace("a hotel", &format!("a hotel {}", "x".repeat(bytes))))
    }

    #[test]
    fn a_search_of_many_bytes_ends_early_and_goes_on_with_its_token() {
        let read = Cell::new(0);
        let inner = bulky(20, 200 << 10);
        let list = |request: &str| inner(request).inspect(|page| read.set(read.get() + page.len()));
        let (ids, next) = page(&json!({"query": "flight"}), &list);
        assert_eq!((ids.concat(), next.as_str()), ("024".to_owned(), "0:6"));
        assert!(read.get() < MAX_BYTES + (256 << 10), "{}", read.get());
        let expected: Vec<String> = (0..20).step_by(2).map(|number| number.to_string()).collect();
        assert_eq!(all(&json!({"query": "flight"}), &list).concat(), expected);
    }

    #[test]
    fn a_task_larger_than_a_call_may_read_is_read_all_the_same() {
        let pages = all(&json!({"query": "hotel"}), &bulky(4, MAX_BYTES));
        assert_eq!(pages, [vec!["1"], vec!["3"]]);
    }

    #[test]
    fn content_that_is_not_searched_is_not_asked_for() {
        let list = |request: &str| {
            let asked: Value = serde_json::from_str(request).unwrap();
            assert_eq!((&asked["includeArtifacts"], &asked["historyLength"]), (&json!(false), &json!(0)));
            store(3, 10)(request)
        };
        assert_eq!(all(&json!({"state": "TASK_STATE_COMPLETED"}), &list), [["0", "1", "2"]]);
    }

    #[test]
    fn what_list_tasks_refuses_is_refused_with_its_words() {
        let refused = |params: &str, reason: &str| match search(params, |_| Err(reason.to_owned())) {
            Err(Rejection::Violations(violations)) => (violations[0].pointer.clone(), violations[0].message.clone()),
            other => panic!("{other:?}"),
        };
        assert_eq!(refused("{}", "contextId is required").0, "/contextId");
        assert_eq!(refused(r#"{"contextId": "c"}"#, "no").1, "the tasks cannot be listed: no");
    }

    #[test]
    fn wrong_tokens_and_times_are_refused_where_they_stand() {
        let pointer = |params: &str| match search(params, store(1, 1)) {
            Err(Rejection::Violations(violations)) => violations[0].pointer.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(pointer(r#"{"pageToken": "x"}"#), "/pageToken");
        assert_eq!(pointer(r#"{"from": "1969-12-31T00:00:00Z"}"#), "/from");
    }
}
