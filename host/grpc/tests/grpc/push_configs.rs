//! The operations on push notification configs.

use annex_grpc::pb::{
    AuthenticationInfo, DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, TaskPushNotificationConfig,
};

use crate::support::{Script, start};

const CONFIG_JSON: &str = r#"{"tenant":"acme","id":"p-1","taskId":"t-1","url":"https://example.com/hook","token":"s3cret","authentication":{"scheme":"Bearer","credentials":"k3y"}}"#;

fn config() -> TaskPushNotificationConfig {
    TaskPushNotificationConfig {
        tenant: "acme".into(),
        id: "p-1".into(),
        task_id: "t-1".into(),
        url: "https://example.com/hook".into(),
        token: "s3cret".into(),
        authentication: Some(AuthenticationInfo { scheme: "Bearer".into(), credentials: "k3y".into() }),
    }
}

#[tokio::test]
async fn create_carries_the_config_both_ways() {
    let (mut client, script) = start(Script::answering(CONFIG_JSON)).await;
    let response = client.create_task_push_notification_config(config()).await.unwrap().into_inner();
    assert_eq!(response, config());
    script.check("CreateTaskPushNotificationConfig", CONFIG_JSON);
}

#[tokio::test]
async fn get_names_the_task_and_the_config() {
    let (mut client, script) = start(Script::answering(CONFIG_JSON)).await;
    let request =
        GetTaskPushNotificationConfigRequest { tenant: "acme".into(), task_id: "t-1".into(), id: "p-1".into() };
    let response = client.get_task_push_notification_config(request).await.unwrap().into_inner();
    assert_eq!(response, config());
    script.check("GetTaskPushNotificationConfig", r#"{"tenant":"acme","taskId":"t-1","id":"p-1"}"#);
}

#[tokio::test]
async fn list_carries_the_page() {
    let answer = format!(r#"{{"configs":[{CONFIG_JSON},{{"url":"https://b"}}],"nextPageToken":"n"}}"#);
    let (mut client, script) = start(Script::answering(&answer)).await;
    let request = ListTaskPushNotificationConfigsRequest {
        tenant: "acme".into(),
        task_id: "t-1".into(),
        page_size: 2,
        page_token: "m".into(),
    };
    let response = client.list_task_push_notification_configs(request).await.unwrap().into_inner();
    let bare = TaskPushNotificationConfig { url: "https://b".into(), ..TaskPushNotificationConfig::default() };
    let expected =
        ListTaskPushNotificationConfigsResponse { configs: vec![config(), bare], next_page_token: "n".into() };
    assert_eq!(response, expected);
    let request = r#"{"tenant":"acme","taskId":"t-1","pageSize":2,"pageToken":"m"}"#;
    script.check("ListTaskPushNotificationConfigs", request);
}

#[tokio::test]
async fn delete_answers_with_nothing() {
    let (mut client, script) = start(Script::answering("null")).await;
    let request =
        DeleteTaskPushNotificationConfigRequest { tenant: "acme".into(), task_id: "t-1".into(), id: "p-1".into() };
    client.delete_task_push_notification_config(request).await.unwrap();
    script.check("DeleteTaskPushNotificationConfig", r#"{"tenant":"acme","taskId":"t-1","id":"p-1"}"#);
}

#[test]
fn credentials_are_not_printed() {
    let printed = format!("{:?}", config());
    assert!(printed.contains("Bearer") && printed.contains("p-1"), "{printed}");
    assert!(!printed.contains("s3cret") && !printed.contains("k3y"), "{printed}");
}
