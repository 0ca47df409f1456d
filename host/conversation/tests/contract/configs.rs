//! Push notification configs.

use annex_conversation::{AppendError, ConfigError, MAX_PUSH_CONFIGS};
use annex_protocol::{AuthenticationInfo, Secret, TaskPushNotificationConfig};

use crate::concurrency::at_once;
use crate::support::{Backend, WritesTasks, owner, working};

on_every_store! {
    a_config_comes_back_with_its_credentials,
    the_receiver_of_a_client_of_0_3_is_told_from_one_of_1_0,
    a_config_of_the_same_id_is_replaced,
    configs_come_in_pages_in_the_order_of_their_ids,
    deleting_twice_is_no_error,
    a_task_has_a_bounded_number_of_configs,
    concurrent_configs_stay_within_the_bound,
    an_unknown_task_has_no_configs,
}

fn config(id: &str, url: &str) -> TaskPushNotificationConfig {
    TaskPushNotificationConfig { id: Some(id.to_owned()), url: url.to_owned(), ..TaskPushNotificationConfig::default() }
}

async fn a_config_comes_back_with_its_credentials(backend: Backend) {
    let store = backend.store().await;
    store.begin(&owner("ada"), &working("t-1")).await.unwrap();
    let authentication = AuthenticationInfo { scheme: "Bearer".to_owned(), credentials: Some(Secret::new("s3cret")) };
    let full = TaskPushNotificationConfig {
        task_id: Some("t-1".into()),
        token: Some(Secret::new("t0ken")),
        authentication: Some(authentication),
        ..config("p-1", "https://example.com/hook")
    };
    store.put_config(&"t-1".into(), &full).await.unwrap();
    assert_eq!(store.config(&"t-1".into(), "p-1").await.unwrap(), Some(full));
    assert_eq!(store.config(&"t-1".into(), "p-2").await.unwrap(), None);
}

async fn the_receiver_of_a_client_of_0_3_is_told_from_one_of_1_0(backend: Backend) {
    let store = backend.store().await;
    store.begin(&owner("ada"), &working("t-1")).await.unwrap();
    let of_1_0 = config("p-1", "https://example.com");
    let of_0_3 = TaskPushNotificationConfig { receiver_is_v0_3: true, ..config("p-2", "https://example.com") };
    store.put_config(&"t-1".into(), &of_1_0).await.unwrap();
    store.put_config(&"t-1".into(), &of_0_3).await.unwrap();
    assert_eq!(store.config(&"t-1".into(), "p-2").await.unwrap().as_ref(), Some(&of_0_3));
    assert_eq!(store.configs(&"t-1".into(), "", 10).await.unwrap().configs, [of_1_0, of_0_3]);
}

async fn a_config_of_the_same_id_is_replaced(backend: Backend) {
    let store = backend.store().await;
    store.begin(&owner("ada"), &working("t-1")).await.unwrap();
    store.begin(&owner("ada"), &working("t-2")).await.unwrap();
    store.put_config(&"t-1".into(), &config("p-1", "https://one.example")).await.unwrap();
    store.put_config(&"t-2".into(), &config("p-1", "https://two.example")).await.unwrap();
    store.put_config(&"t-1".into(), &config("p-1", "https://three.example")).await.unwrap();
    let page = store.configs(&"t-1".into(), "", 10).await.unwrap();
    assert_eq!(page.configs, [config("p-1", "https://three.example")]);
    let other = store.config(&"t-2".into(), "p-1").await.unwrap();
    assert_eq!(other, Some(config("p-1", "https://two.example")));
}

async fn configs_come_in_pages_in_the_order_of_their_ids(backend: Backend) {
    let store = backend.store().await;
    store.begin(&owner("ada"), &working("t-1")).await.unwrap();
    for id in ["b", "B", "ä", "_", "a"] {
        store.put_config(&"t-1".into(), &config(id, "https://example.com")).await.unwrap();
    }
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = store.configs(&"t-1".into(), &after, 2).await.unwrap();
        seen.extend(page.configs.into_iter().filter_map(|config| config.id));
        let Some(next) = page.next else { break };
        after = next;
    }
    assert_eq!(seen, ["B", "_", "a", "b", "ä"]);
}

async fn deleting_twice_is_no_error(backend: Backend) {
    let store = backend.store().await;
    store.begin(&owner("ada"), &working("t-1")).await.unwrap();
    store.put_config(&"t-1".into(), &config("p-1", "https://example.com")).await.unwrap();
    store.put_config(&"t-1".into(), &config("p-2", "https://example.com")).await.unwrap();
    for _ in 0..2 {
        store.delete_config(&"t-1".into(), "p-1").await.unwrap();
        assert_eq!(store.config(&"t-1".into(), "p-1").await.unwrap(), None);
    }
    assert_eq!(store.configs(&"t-1".into(), "", 10).await.unwrap().configs.len(), 1);
}

async fn a_task_has_a_bounded_number_of_configs(backend: Backend) {
    let store = backend.store().await;
    store.begin(&owner("ada"), &working("t-1")).await.unwrap();
    for number in 0..MAX_PUSH_CONFIGS {
        store.put_config(&"t-1".into(), &config(&number.to_string(), "https://example.com")).await.unwrap();
    }
    let refused = store.put_config(&"t-1".into(), &config("more", "https://example.com")).await.unwrap_err();
    assert!(matches!(refused, ConfigError::TooMany { .. }), "{refused}");
    // Those that are there can still be replaced.
    store.put_config(&"t-1".into(), &config("0", "https://other.example")).await.unwrap();
    store.delete_config(&"t-1".into(), "1").await.unwrap();
    store.put_config(&"t-1".into(), &config("more", "https://example.com")).await.unwrap();
}

async fn concurrent_configs_stay_within_the_bound(backend: Backend) {
    let store = backend.store().await;
    store.begin(&owner("ada"), &working("t-1")).await.unwrap();
    for number in 0..MAX_PUSH_CONFIGS - 1 {
        store.put_config(&"t-1".into(), &config(&number.to_string(), "https://example.com")).await.unwrap();
    }
    let outcomes = at_once(8, |number| {
        let store = store.clone();
        let config = config(&format!("more-{number}"), "https://example.com");
        async move { store.put_config(&"t-1".into(), &config).await.is_ok() }
    });
    assert_eq!(outcomes.await.into_iter().filter(|is_stored| *is_stored).count(), 1);
}

async fn an_unknown_task_has_no_configs(backend: Backend) {
    let store = backend.store().await;
    let refused = store.put_config(&"t-1".into(), &config("p-1", "https://example.com")).await.unwrap_err();
    assert!(matches!(refused, ConfigError::Append(AppendError::Missing)), "{refused}");
    assert_eq!(store.config(&"t-1".into(), "p-1").await.unwrap(), None);
    assert!(store.configs(&"t-1".into(), "", 10).await.unwrap().configs.is_empty());
    store.delete_config(&"t-1".into(), "p-1").await.unwrap();
}
