//! Configs of push notifications. No notification is sent here, because no receiver's name is known.

use annex_operations::operation::{Operation, OperationResult};
use annex_protocol::{
    A2aError, DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, Secret, Task, TaskId,
    TaskPushNotificationConfig,
};

use crate::fixture::{Door, Settings, anonymous, by, door, door_with, say};
use crate::in_words::{fields, status};

/// A public address of a literal form, which needs no look-up.
const URL: &str = "https://1.1.1.1/hook";

async fn pushing() -> Door {
    door_with(Settings { has_push: true, ..Settings::default() }).await
}

fn config(task: &Task, id: &str) -> TaskPushNotificationConfig {
    TaskPushNotificationConfig {
        id: (!id.is_empty()).then(|| id.to_owned()),
        task_id: Some(task.id.clone()),
        url: URL.to_owned(),
        ..TaskPushNotificationConfig::default()
    }
}

async fn create(door: &Door, config: TaskPushNotificationConfig) -> Result<TaskPushNotificationConfig, A2aError> {
    stored(door.perform(&anonymous(), Operation::CreatePushConfig(config)).await)
}

async fn get(door: &Door, task: &Task, id: &str) -> Result<TaskPushNotificationConfig, A2aError> {
    stored(door.perform(&anonymous(), Operation::GetPushConfig(named(task, id))).await)
}

async fn list(door: &Door, task: &Task, page_size: i32, page_token: Option<String>) -> Listed {
    let request =
        ListTaskPushNotificationConfigsRequest { task_id: task.id.clone(), page_size, page_token, tenant: None };
    match door.perform(&anonymous(), Operation::ListPushConfigs(request)).await? {
        OperationResult::PushConfigs(page) => Ok(page),
        _ => panic!("a list gives configs"),
    }
}

type Listed = Result<ListTaskPushNotificationConfigsResponse, A2aError>;

async fn delete(door: &Door, task: &Task, id: &str) -> Result<(), A2aError> {
    let request = DeleteTaskPushNotificationConfigRequest { task_id: task.id.clone(), id: id.to_owned(), tenant: None };
    door.perform(&anonymous(), Operation::DeletePushConfig(request)).await.map(drop)
}

fn named(task: &Task, id: &str) -> GetTaskPushNotificationConfigRequest {
    GetTaskPushNotificationConfigRequest { task_id: task.id.clone(), id: id.to_owned(), tenant: None }
}

fn stored(result: Result<OperationResult, A2aError>) -> Result<TaskPushNotificationConfig, A2aError> {
    match result? {
        OperationResult::PushConfig(config) => Ok(config),
        _ => panic!("the operation gives a config"),
    }
}

fn ids(page: &ListTaskPushNotificationConfigsResponse) -> Vec<&str> {
    page.configs.iter().map(|config| config.id.as_deref().expect("an id")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_config_reads_back_as_it_was_created() {
    let door = pushing().await;
    let task = door.task("ask").await;
    let wanted = TaskPushNotificationConfig { token: Some(Secret::new("secret")), ..config(&task, "one") };
    let created = create(&door, wanted.clone()).await.expect("a config");
    assert_eq!(created, wanted);
    assert_eq!(get(&door, &task, "one").await.expect("a config"), wanted);
}

#[tokio::test(start_paused = true)]
async fn a_config_without_an_id_gets_one() {
    let door = pushing().await;
    let task = door.task("ask").await;
    let id = create(&door, config(&task, "")).await.expect("a config").id.expect("an id");
    assert_eq!(get(&door, &task, &id).await.expect("a config").url, URL);
}

#[tokio::test(start_paused = true)]
async fn a_config_under_the_same_id_replaces_the_one_before() {
    let door = pushing().await;
    let task = door.task("ask").await;
    create(&door, config(&task, "one")).await.expect("a config");
    let other = TaskPushNotificationConfig { url: "https://1.1.1.1/other".to_owned(), ..config(&task, "one") };
    create(&door, other).await.expect("a config");
    assert_eq!(get(&door, &task, "one").await.expect("a config").url, "https://1.1.1.1/other");
    assert_eq!(ids(&list(&door, &task, 0, None).await.expect("a page")), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn configs_are_listed_by_page_in_the_order_of_their_ids() {
    let door = pushing().await;
    let task = door.task("ask").await;
    for id in ["c", "a", "b"] {
        create(&door, config(&task, id)).await.expect("a config");
    }
    let first = list(&door, &task, 2, None).await.expect("a page");
    assert_eq!(ids(&first), ["a", "b"]);
    let second = list(&door, &task, 2, first.next_page_token).await.expect("a page");
    assert_eq!((ids(&second), &second.next_page_token), (vec!["c"], &None));
}

#[tokio::test(start_paused = true)]
async fn configs_of_one_task_are_not_those_of_another() {
    let door = pushing().await;
    let (one, other) = (door.task("ask").await, door.task("ask").await);
    create(&door, config(&one, "one")).await.expect("a config");
    assert!(list(&door, &other, 0, None).await.expect("a page").configs.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_client_of_0_3_that_names_no_config_gets_the_first() {
    let door = pushing().await;
    let task = door.task("ask").await;
    for id in ["b", "a"] {
        create(&door, config(&task, id)).await.expect("a config");
    }
    let first = door.perform(&anonymous(), Operation::GetFirstPushConfig(named(&task, ""))).await;
    assert_eq!(stored(first).expect("a config").id.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_config_is_gone_and_may_be_deleted_again() {
    let door = pushing().await;
    let task = door.task("ask").await;
    create(&door, config(&task, "one")).await.expect("a config");
    for _ in 0..2 {
        delete(&door, &task, "one").await.expect("no config");
    }
    let error = get(&door, &task, "one").await.expect_err("no config");
    assert_eq!(error, A2aError::PushConfigNotFound { task_id: task.id.clone(), config_id: "one".to_owned() });
}

#[tokio::test(start_paused = true)]
async fn a_task_has_a_bound_on_its_configs() {
    let door = pushing().await;
    let task = door.task("ask").await;
    for number in 0..100 {
        create(&door, config(&task, &number.to_string())).await.expect("a config");
    }
    let error = create(&door, config(&task, "one more")).await.expect_err("a bound");
    assert!(error.to_string().contains("delete one"), "{error}");
    create(&door, config(&task, "7")).await.expect("a config that replaces another");
}

#[tokio::test(start_paused = true)]
async fn a_config_of_a_private_address_is_refused() {
    let door = pushing().await;
    let task = door.task("ask").await;
    for url in ["http://127.0.0.1/", "http://10.0.0.1/", "https://[::1]/", "ftp://1.1.1.1/", "https://unknown.example/"]
    {
        let refused = TaskPushNotificationConfig { url: url.to_owned(), ..config(&task, "one") };
        assert_eq!(fields(&create(&door, refused).await.expect_err("a refusal")), ["url"], "{url}");
    }
    assert!(list(&door, &task, 0, None).await.expect("a page").configs.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_config_whose_id_is_too_long_is_refused() {
    let door = pushing().await;
    let task = door.task("ask").await;
    assert_eq!(fields(&create(&door, config(&task, &"x".repeat(257))).await.expect_err("a refusal")), ["id"]);
    create(&door, config(&task, &"x".repeat(256))).await.expect("a config");
}

#[tokio::test(start_paused = true)]
async fn a_config_needs_a_task_and_a_url() {
    let door = pushing().await;
    let task = door.task("ask").await;
    let without_task = TaskPushNotificationConfig { task_id: None, ..config(&task, "one") };
    assert_eq!(fields(&create(&door, without_task).await.expect_err("a refusal")), ["taskId"]);
    let without_url = TaskPushNotificationConfig { url: String::new(), ..config(&task, "one") };
    assert_eq!(fields(&create(&door, without_url).await.expect_err("a refusal")), ["url"]);
}

#[tokio::test(start_paused = true)]
async fn a_config_of_an_unknown_task_is_not_found() {
    let door = pushing().await;
    let task = Task { id: TaskId::new("unknown"), ..Task::default() };
    let expected = A2aError::TaskNotFound { task_id: task.id.clone() };
    assert_eq!(create(&door, config(&task, "one")).await.expect_err("no task"), expected);
    assert_eq!(get(&door, &task, "one").await.expect_err("no task"), expected);
    assert_eq!(list(&door, &task, 0, None).await.expect_err("no task"), expected);
    assert_eq!(delete(&door, &task, "one").await.expect_err("no task"), expected);
}

#[tokio::test(start_paused = true)]
async fn configs_of_a_task_are_for_its_owner_only() {
    let door = pushing().await;
    let task = door.task(say("ask").by("ada")).await;
    let created = door.perform(&by("ada"), Operation::CreatePushConfig(config(&task, "one"))).await;
    stored(created).expect("a config");
    for operation in [
        Operation::CreatePushConfig(config(&task, "two")),
        Operation::GetPushConfig(named(&task, "one")),
        Operation::GetFirstPushConfig(named(&task, "")),
    ] {
        let error = door.perform(&by("bob"), operation).await.err().expect("another owner");
        assert_eq!(error, A2aError::TaskNotFound { task_id: task.id.clone() });
    }
}

#[tokio::test(start_paused = true)]
async fn a_negative_page_size_is_refused() {
    let door = pushing().await;
    let task = door.task("ask").await;
    assert_eq!(fields(&list(&door, &task, -1, None).await.expect_err("a refusal")), ["pageSize"]);
}

#[tokio::test(start_paused = true)]
async fn a_config_that_comes_with_a_message_is_one_of_its_task() {
    let door = pushing().await;
    let mut said = say("ask");
    let given = TaskPushNotificationConfig { task_id: None, ..config(&Task::default(), "one") };
    said.request.configuration.task_push_notification_config = Some(given);
    let task = door.task(said).await;
    assert_eq!(get(&door, &task, "one").await.expect("a config").task_id, Some(task.id.clone()));
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_config_is_refused_begins_no_turn() {
    let door = pushing().await;
    let mut said = say("work");
    let refused = TaskPushNotificationConfig { url: "http://127.0.0.1/".to_owned(), ..Default::default() };
    said.request.configuration.task_push_notification_config = Some(refused);
    assert_eq!(fields(&door.refusal(said).await), ["configuration.taskPushNotificationConfig.url"]);
    assert_eq!(door.agent.turns(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_config_that_names_another_tenant_than_its_message_is_refused() {
    let door = pushing().await;
    let mut said = say("work");
    let other = TaskPushNotificationConfig { tenant: Some("other".to_owned()), ..config(&Task::default(), "one") };
    said.request.configuration.task_push_notification_config = Some(other);
    assert_eq!(fields(&door.refusal(said).await), ["configuration.taskPushNotificationConfig.tenant"]);
}

#[tokio::test(start_paused = true)]
async fn a_finished_task_keeps_its_configs() {
    let door = pushing().await;
    let task = door.task("work").await;
    create(&door, config(&task, "one")).await.expect("a config");
    assert_eq!(get(&door, &task, "one").await.expect("a config").url, URL);
    assert_eq!(status(&door.get(&anonymous(), &task.id).await.expect("a task")), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn without_push_notifications_each_operation_on_configs_is_refused() {
    let door = door().await;
    let task = door.task("ask").await;
    let expected = A2aError::PushNotificationNotSupported;
    assert_eq!(create(&door, config(&task, "one")).await.expect_err("a refusal"), expected);
    assert_eq!(get(&door, &task, "one").await.expect_err("a refusal"), expected);
    assert_eq!(list(&door, &task, 0, None).await.expect_err("a refusal"), expected);
    assert_eq!(delete(&door, &task, "one").await.expect_err("a refusal"), expected);
    let mut said = say("work");
    said.request.configuration.task_push_notification_config = Some(config(&Task::default(), "one"));
    assert_eq!(door.refusal(said).await, expected);
}
