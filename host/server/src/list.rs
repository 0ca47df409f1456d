//! ListTasks (A2A 1.0 section 3.1.4), and how much of a task is shown.

use std::sync::Arc;

use annex_protocol::{
    A2aError, FieldViolation, ListTasksRequest, ListTasksResponse, Task, TaskId, TaskState, Timestamp,
};

use annex_tasks::Owner;

use crate::tasks::{TaskRecord, TaskStore};

const DEFAULT_PAGE_SIZE: i32 = 50;
const MAX_PAGE_SIZE: i32 = 100;

/// One page of the owner's tasks, the task whose status changed last first.
pub(crate) fn page(
    tasks: &TaskStore,
    owner: &Owner,
    request: &ListTasksRequest,
) -> Result<ListTasksResponse, A2aError> {
    check_history_length(request.history_length)?;
    let size = page_size(request.page_size)?;
    let context = request.context_id.as_ref();
    if context.is_none() && *owner == Owner::default() {
        return Err(context_needed());
    }
    let after = request.page_token.as_deref().filter(|token| !token.is_empty()).map(Cursor::parse).transpose()?;
    let mut found: Vec<(Cursor, Arc<TaskRecord>)> =
        tasks.of_owner(owner, context, |task| matches(task, request).then(|| Cursor::of(task)));
    found.sort_unstable_by(|(one, _), (other, _)| other.cmp(one));
    let total = found.len();
    found.retain(|(cursor, _)| after.as_ref().is_none_or(|after| cursor < after));
    let next_page_token = match found.get(size) {
        Some(_) => found.get(size - 1).map(|(cursor, _)| cursor.to_string()).unwrap_or_default(),
        None => String::new(),
    };
    found.truncate(size);
    Ok(ListTasksResponse {
        tasks: found.iter().map(|(_, record)| shown(record, request)).collect(),
        next_page_token,
        page_size: i32::try_from(size).unwrap_or(MAX_PAGE_SIZE),
        total_size: i32::try_from(total).unwrap_or(i32::MAX),
    })
}

/// Ids are all that keeps one anonymous client from another's tasks, so they are not given out.
fn context_needed() -> A2aError {
    let description = "is required, because this server does not authenticate its clients";
    A2aError::invalid_field("contextId", description)
}

fn shown(record: &TaskRecord, request: &ListTasksRequest) -> Task {
    let mut task = record.snapshot();
    trim_history(&mut task, request.history_length);
    if !request.include_artifacts.unwrap_or(false) {
        task.artifacts.clear();
    }
    task
}

fn matches(task: &Task, request: &ListTasksRequest) -> bool {
    let state = request.status == TaskState::Unspecified || request.status == task.status.state;
    let time = request.status_timestamp_after.is_none_or(|after| task.status.timestamp.is_some_and(|at| at >= after));
    state && time
}

fn page_size(asked: Option<i32>) -> Result<usize, A2aError> {
    let size = asked.unwrap_or(DEFAULT_PAGE_SIZE);
    if !(1..=MAX_PAGE_SIZE).contains(&size) {
        return Err(invalid("pageSize", format!("{size} is not between 1 and {MAX_PAGE_SIZE}")));
    }
    Ok(usize::try_from(size).unwrap_or_default())
}

/// A negative length is an error (A2A 1.0 section 3.2.4).
pub(crate) fn check_history_length(length: Option<i32>) -> Result<(), A2aError> {
    match length {
        Some(length) if length < 0 => Err(invalid("historyLength", format!("{length} is negative"))),
        _ => Ok(()),
    }
}

/// Keeps the most recent messages; absent keeps all.
pub(crate) fn trim_history(task: &mut Task, length: Option<i32>) {
    let Some(length) = length.and_then(|length| usize::try_from(length).ok()) else { return };
    let surplus = task.history.len().saturating_sub(length);
    task.history.drain(..surplus);
}

/// A place in the order of the list: status time, then id.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Cursor {
    millis: i64,
    id: TaskId,
}

impl Cursor {
    fn of(task: &Task) -> Self {
        Self { millis: task.status.timestamp.map_or(0, Timestamp::as_millis), id: task.id.clone() }
    }

    fn parse(token: &str) -> Result<Self, A2aError> {
        let parts = token.split_once('.').and_then(|(millis, id)| Some((millis.parse().ok()?, id)));
        let unknown = || invalid("pageToken", "is not one that this server gave".to_owned());
        parts.map(|(millis, id)| Self { millis, id: TaskId::from(id) }).ok_or_else(unknown)
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}", self.millis, self.id)
    }
}

fn invalid(field: &str, description: String) -> A2aError {
    A2aError::InvalidParams { violations: vec![FieldViolation { field: field.to_owned(), description }] }
}
