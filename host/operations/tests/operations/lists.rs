//! GetTask and ListTasks.

use annex_operations::operation::{Operation, OperationResult};
use annex_operations::service_parameters::ServiceParameters;
use annex_protocol::{
    A2aError, ContextId, GetTaskRequest, ListTasksRequest, ListTasksResponse, Task, TaskId, TaskState,
};

use crate::fixture::{Door, Settings, anonymous, by, door, door_with, one_millisecond, say};
use crate::in_words::{artifacts, fields, history};

async fn list(door: &Door, call: &ServiceParameters, request: ListTasksRequest) -> Result<ListTasksResponse, A2aError> {
    match door.perform(call, Operation::ListTasks(request)).await? {
        OperationResult::Tasks(tasks) => Ok(tasks),
        _ => panic!("ListTasks gives tasks"),
    }
}

async fn page(door: &Door, request: ListTasksRequest) -> ListTasksResponse {
    list(door, &by("ada"), request).await.expect("a page")
}

fn ids(tasks: &[Task]) -> Vec<TaskId> {
    tasks.iter().map(|task| task.id.clone()).collect()
}

/// Three finished tasks of one context, the last one first.
async fn three(door: &Door) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for number in 0..3 {
        ids.insert(0, door.task(say(&format!("artifact {number}")).context("c").by("ada")).await.id);
        one_millisecond().await;
    }
    ids
}

#[tokio::test(start_paused = true)]
async fn a_task_reads_back_as_it_was_returned() {
    let door = door().await;
    let task = door.task("work, artifact hello").await;
    assert_eq!(door.get(&anonymous(), &task.id).await.expect("a task"), task);
}

#[tokio::test(start_paused = true)]
async fn reading_a_task_shows_as_much_history_as_wanted() {
    let door = door().await;
    let asked = door.task("ask Which one?").await;
    door.task(say("work").task(&asked)).await;
    for (length, expected) in [(0, vec![]), (1, vec!["work"]), (2, vec!["Which one?", "work"])] {
        let request = GetTaskRequest { id: asked.id.clone(), history_length: Some(length), tenant: None };
        let read = door.perform(&anonymous(), Operation::GetTask(request)).await;
        let Ok(OperationResult::Task(task)) = read else { panic!("GetTask gives a task") };
        assert_eq!(history(&task.into_task().expect("a task")), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_negative_history_length_is_refused() {
    let request = GetTaskRequest { id: TaskId::new("t"), history_length: Some(-1), tenant: None };
    let error = door().await.perform(&anonymous(), Operation::GetTask(request)).await.err().expect("a refusal");
    assert_eq!(fields(&error), ["historyLength"]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_task_is_not_found() {
    let id = TaskId::new("unknown");
    assert_eq!(door().await.get(&anonymous(), &id).await, Err(A2aError::TaskNotFound { task_id: id }));
}

#[tokio::test(start_paused = true)]
async fn a_task_of_another_principal_is_not_found() {
    let door = door().await;
    let task = door.task(say("work").by("ada")).await;
    for call in [by("bob"), anonymous()] {
        assert_eq!(door.get(&call, &task.id).await, Err(A2aError::TaskNotFound { task_id: task.id.clone() }));
    }
}

#[tokio::test(start_paused = true)]
async fn an_anonymous_client_with_the_id_of_a_task_may_read_it() {
    let door = door().await;
    let task = door.task("work").await;
    assert_eq!(door.get(&anonymous(), &task.id).await.expect("a task").id, task.id);
}

#[tokio::test(start_paused = true)]
async fn tasks_are_listed_with_the_latest_status_first() {
    let door = door().await;
    let expected = three(&door).await;
    let page = page(&door, ListTasksRequest::default()).await;
    assert_eq!(ids(&page.tasks), expected);
    assert_eq!((page.total_size, page.page_size, page.next_page_token.as_str()), (3, 50, ""));
}

#[tokio::test(start_paused = true)]
async fn pages_follow_each_other_without_a_gap() {
    let door = door().await;
    let expected = three(&door).await;
    let first = page(&door, ListTasksRequest { page_size: Some(2), ..ListTasksRequest::default() }).await;
    assert_eq!((ids(&first.tasks).as_slice(), first.total_size), (&expected[..2], 3));
    let token = Some(first.next_page_token);
    let second = page(&door, ListTasksRequest { page_size: Some(2), page_token: token, ..Default::default() }).await;
    assert_eq!((ids(&second.tasks).as_slice(), second.next_page_token.as_str()), (&expected[2..], ""));
}

#[tokio::test(start_paused = true)]
async fn a_list_has_artifacts_only_if_the_client_wants_them() {
    let door = door().await;
    three(&door).await;
    assert_eq!(artifacts(&page(&door, ListTasksRequest::default()).await.tasks[0]), "");
    let with = ListTasksRequest { include_artifacts: Some(true), ..ListTasksRequest::default() };
    assert_eq!(artifacts(&page(&door, with).await.tasks[0]), "2");
}

#[tokio::test(start_paused = true)]
async fn a_list_shows_as_much_history_as_wanted() {
    let door = door().await;
    three(&door).await;
    assert_eq!(history(&page(&door, ListTasksRequest::default()).await.tasks[0]), ["artifact 2"]);
    let without = ListTasksRequest { history_length: Some(0), ..ListTasksRequest::default() };
    assert!(page(&door, without).await.tasks[0].history.is_empty());
}

#[tokio::test(start_paused = true)]
async fn tasks_are_filtered_by_state() {
    let door = door().await;
    three(&door).await;
    let asked = door.task(say("ask").by("ada")).await;
    let waiting = ListTasksRequest { status: TaskState::InputRequired, ..ListTasksRequest::default() };
    let page = page(&door, waiting).await;
    assert_eq!((ids(&page.tasks), page.total_size), (vec![asked.id], 1));
}

#[tokio::test(start_paused = true)]
async fn tasks_are_filtered_by_context() {
    let door = door().await;
    three(&door).await;
    let other = door.task(say("work").context("d").by("ada")).await;
    let of_d = ListTasksRequest { context_id: Some(ContextId::new("d")), ..ListTasksRequest::default() };
    assert_eq!(ids(&page(&door, of_d).await.tasks), [other.id]);
}

#[tokio::test(start_paused = true)]
async fn tasks_are_filtered_by_the_time_of_their_status() {
    let door = door().await;
    let expected = three(&door).await;
    let latest = door.get(&by("ada"), &expected[0]).await.expect("a task").status.timestamp;
    let since = ListTasksRequest { status_timestamp_after: latest, ..ListTasksRequest::default() };
    assert_eq!(ids(&page(&door, since).await.tasks), expected[..1]);
}

#[tokio::test(start_paused = true)]
async fn a_principal_lists_its_own_tasks_only() {
    let door = door().await;
    three(&door).await;
    let bobs = door.task(say("work").context("c").by("bob")).await;
    let listed = list(&door, &by("bob"), ListTasksRequest::default()).await.expect("a page");
    assert_eq!((ids(&listed.tasks), listed.total_size), (vec![bobs.id], 1));
}

#[tokio::test(start_paused = true)]
async fn an_anonymous_client_has_to_name_a_context() {
    let door = door().await;
    let task = door.task(say("work").context("c")).await;
    let error = list(&door, &anonymous(), ListTasksRequest::default()).await.expect_err("a refusal");
    assert_eq!(fields(&error), ["contextId"]);
    let named = ListTasksRequest { context_id: Some(ContextId::new("c")), ..ListTasksRequest::default() };
    assert_eq!(ids(&list(&door, &anonymous(), named).await.expect("a page").tasks), [task.id]);
}

#[tokio::test(start_paused = true)]
async fn anonymous_clients_list_the_tasks_of_all_of_them_where_the_server_allows_it() {
    let door = door_with(Settings { shows_all_anonymous: true, ..Settings::default() }).await;
    let task = door.task("work").await;
    let page = list(&door, &anonymous(), ListTasksRequest::default()).await.expect("a page");
    assert_eq!(ids(&page.tasks), [task.id]);
}

#[tokio::test(start_paused = true)]
async fn a_page_size_beyond_its_bounds_is_refused() {
    let door = door().await;
    for size in [0, -1, 101] {
        let request = ListTasksRequest { page_size: Some(size), ..ListTasksRequest::default() };
        let error = list(&door, &by("ada"), request).await.expect_err("a refusal");
        assert_eq!(fields(&error), ["pageSize"], "{size}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_token_that_the_server_did_not_give_is_refused() {
    let request = ListTasksRequest { page_token: Some("mine".to_owned()), ..ListTasksRequest::default() };
    let error = list(&door().await, &by("ada"), request).await.expect_err("a refusal");
    assert_eq!(fields(&error), ["pageToken"]);
}

#[tokio::test(start_paused = true)]
async fn a_running_task_is_listed_in_its_present_state() {
    let door = door().await;
    let task = door.waiting_turn(say("work, wait").by("ada")).await;
    let working = ListTasksRequest { status: TaskState::Working, ..ListTasksRequest::default() };
    assert_eq!(ids(&page(&door, working).await.tasks), [task.id]);
}
