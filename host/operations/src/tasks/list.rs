//! Performs ListTasks (A2A 1.0 section 3.1.4), and cuts the history of a task to the requested length.

use std::sync::Arc;

use annex_conversation::{ConversationStore, InvalidCursor, StoreError, StoredTask, TaskCursor, TaskQuery};
use annex_protocol::{A2aError, FieldViolation, ListTasksRequest, ListTasksResponse, Owner, Task, TaskState};

use crate::fault;
use crate::tasks::long_work::LongWork;
use crate::tasks::shown::HiddenMetadata;

const DEFAULT_PAGE_SIZE: i32 = 50;
const MAX_PAGE_SIZE: i32 = 100;

/// Answers ListTasks.
#[derive(Clone)]
pub struct Lister {
    pub store: Arc<dyn ConversationStore>,
    /// True if an anonymous caller sees the tasks of all anonymous callers.
    pub shows_all_anonymous: bool,
}

impl Lister {
    /// One page of the owner's tasks, without the hidden metadata.
    pub(crate) async fn list(
        &self,
        owner: &Owner,
        request: &ListTasksRequest,
        hidden: &HiddenMetadata,
    ) -> Result<ListTasksResponse, A2aError> {
        if !self.shows_all_anonymous {
            check_context(owner, request)?;
        }
        page(self.store.as_ref(), owner, request, hidden).await
    }
}

/// One page of the owner's tasks. The task with the latest change of status comes first.
async fn page(
    store: &dyn ConversationStore,
    owner: &Owner,
    request: &ListTasksRequest,
    hidden: &HiddenMetadata,
) -> Result<ListTasksResponse, A2aError> {
    check_history_length(request.history_length)?;
    let size = page_size(request.page_size)?;
    let query = TaskQuery {
        context: request.context_id.clone(),
        state: Some(request.status).filter(|state| *state != TaskState::Unspecified),
        status_after: request.status_timestamp_after,
        after: cursor(request.page_token.as_deref())?,
        limit: size,
    };
    let page = store.tasks(owner, &query).await.map_err(fault::of_store)?;
    let _long = LongWork::begin(page.tasks.iter().map(StoredTask::bytes).sum()).await;
    let tasks = page.tasks.iter().map(|task| shown(task, request, hidden)).collect::<Result<_, _>>();
    Ok(ListTasksResponse {
        tasks: tasks.map_err(fault::of_store)?,
        next_page_token: page.next.map(|cursor| cursor.to_string()).unwrap_or_default(),
        page_size: i32::try_from(size).unwrap_or(MAX_PAGE_SIZE),
        total_size: i32::try_from(page.total).unwrap_or(i32::MAX),
    })
}

fn cursor(token: Option<&str>) -> Result<Option<TaskCursor>, A2aError> {
    let token = token.filter(|token| !token.is_empty());
    let unknown = |_: InvalidCursor| invalid("pageToken", "is not one that this server gave".to_owned());
    token.map(|token| token.parse().map_err(unknown)).transpose()
}

/// Checks that an anonymous caller names a context. An anonymous client is recognised only by the ids that it knows, so
/// the server gives out no ids of other contexts.
fn check_context(owner: &Owner, request: &ListTasksRequest) -> Result<(), A2aError> {
    if request.context_id.is_some() || !owner.principal.is_empty() {
        return Ok(());
    }
    let description = "is required, because this server does not authenticate its clients";
    Err(A2aError::invalid_field("contextId", description))
}

fn shown(stored: &StoredTask, request: &ListTasksRequest, hidden: &HiddenMetadata) -> Result<Task, StoreError> {
    let mut task = stored.decode()?.into_task();
    trim_history(&mut task, request.history_length);
    if !request.include_artifacts.unwrap_or(false) {
        task.artifacts.clear();
    }
    hidden.leave_out_of_task(&mut task);
    Ok(task)
}

fn page_size(asked: Option<i32>) -> Result<usize, A2aError> {
    let size = asked.unwrap_or(DEFAULT_PAGE_SIZE);
    if !(1..=MAX_PAGE_SIZE).contains(&size) {
        return Err(invalid("pageSize", format!("{size} is not between 1 and {MAX_PAGE_SIZE}")));
    }
    Ok(usize::try_from(size).unwrap_or_default())
}

/// Checks that the length is not negative (A2A 1.0 section 3.2.4).
pub(crate) fn check_history_length(length: Option<i32>) -> Result<(), A2aError> {
    match length {
        Some(length) if length < 0 => Err(invalid("historyLength", format!("{length} is negative"))),
        _ => Ok(()),
    }
}

/// Keeps the latest `length` messages. `None` keeps all.
pub(crate) fn trim_history(task: &mut Task, length: Option<i32>) {
    let Some(length) = length.and_then(|length| usize::try_from(length).ok()) else { return };
    let surplus = task.history.len().saturating_sub(length);
    task.history.drain(..surplus);
}

fn invalid(field: &str, description: String) -> A2aError {
    A2aError::InvalidParams { violations: vec![FieldViolation { field: field.to_owned(), description }] }
}
