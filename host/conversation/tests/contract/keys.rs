//! Ids that a hostile client makes up.

use annex_conversation::{
    AppendError, ConfigError, ConversationQuery, Holdings, MAX_KEY_BYTES, MessageKey, Owner, TaskQuery, Window,
};
use annex_protocol::{TaskId, TaskPushNotificationConfig};

use crate::support::{Backend, WritesTasks, create, holder, key, owner, working};

on_every_store! {
    ids_that_no_store_could_keep_are_refused,
    ids_that_no_store_could_keep_find_nothing,
    names_that_no_store_could_keep_find_nothing,
    the_longest_ids_are_stored_and_found,
}

fn unstorable() -> [String; 2] {
    ["a\0b".to_owned(), "a".repeat(MAX_KEY_BYTES + 1)]
}

fn assert_invalid<T: std::fmt::Debug>(outcome: Result<T, AppendError>) {
    let refused = outcome.unwrap_err();
    assert!(matches!(refused, AppendError::Name(_)), "{refused}");
}

fn assert_config_invalid(outcome: Result<(), ConfigError>) {
    let refused = outcome.unwrap_err();
    assert!(matches!(refused, ConfigError::Append(AppendError::Name(_))), "{refused}");
}

async fn ids_that_no_store_could_keep_are_refused(backend: Backend) {
    let store = backend.store().await;
    store.begin(&owner("ada"), &working("t-1")).await.unwrap();
    for id in unstorable() {
        assert_invalid(store.begin(&owner("ada"), &working(&id)).await);
        assert_invalid(store.begin(&owner(&id), &working("t-2")).await);
        let mut task = working("t-2");
        task.context_id = id.as_str().into();
        assert_invalid(store.begin(&owner("ada"), &task).await);
        let config = TaskPushNotificationConfig { id: Some(id.clone()), ..TaskPushNotificationConfig::default() };
        assert_config_invalid(store.put_config(&"t-1".into(), &config).await);
        let message = MessageKey { context: "c-1".into(), message: id.as_str().into(), digest: [0; 32] };
        assert_invalid(store.claim(&owner("ada"), &message, &"t-1".into(), &holder("one")).await);
    }
    assert_invalid(store.begin(&owner("ada"), &working("")).await);
    assert_config_invalid(store.put_config(&"t-1".into(), &TaskPushNotificationConfig::default()).await);
}

async fn ids_that_no_store_could_keep_find_nothing(backend: Backend) {
    let store = backend.store().await;
    store.begin(&owner("ada"), &working("t-1")).await.unwrap();
    for id in unstorable() {
        let task_id = TaskId::from(id.as_str());
        assert!(store.load(&owner("ada"), &task_id).await.is_none());
        assert!(store.load(&owner(&id), &"t-1".into()).await.is_none());
        assert!(store.entries_after(&task_id, 0, (10, usize::MAX)).await.unwrap().is_empty());
        assert!(store.config(&"t-1".into(), &id).await.unwrap().is_none());
        assert!(store.configs(&task_id, "", 10).await.unwrap().configs.is_empty());
        store.delete_config(&"t-1".into(), &id).await.unwrap();
        let query = TaskQuery { context: Some(id.as_str().into()), limit: 10, ..TaskQuery::default() };
        assert_eq!(store.tasks(&owner("ada"), &query).await.unwrap().total, 0);
        assert_eq!(store.tasks(&owner(&id), &query).await.unwrap().total, 0);
    }
}

async fn names_that_no_store_could_keep_find_nothing(backend: Backend) {
    let store = backend.store().await;
    create(&store, "s", "{}").await;
    for name in unstorable() {
        for path in [format!("{name}/-/-/s"), format!("{name}/-/s"), format!("{name}/s"), name.clone()] {
            let key = key(&path);
            assert!(!store.conversation(&key, Window::ALL).await.unwrap().exists());
            assert!(store.artifact(&key, "file").await.unwrap().is_none());
            assert!(!store.delete(&key).await.unwrap());
            assert_eq!(store.delete_user_state(&key).await.unwrap(), 0);
            assert!(!store.delete_key(&key, "app:a").await.unwrap());
            if *key.user != *name {
                assert!(store.users_in(&key.tenant, &key.app, &key.context, 10).await.unwrap().is_empty());
            }
            if key.context.as_str() != name {
                let (tenant, app, user) = (key.tenant.to_string(), key.app.to_string(), Some(key.user.to_string()));
                let query = ConversationQuery { tenant, app, user, after: None, limit: 10 };
                assert!(store.list(&query).await.unwrap().is_empty());
            }
        }
        assert!(store.artifact(&key("s"), &name).await.unwrap().is_none());
        assert_eq!(store.holdings(&name).await.unwrap(), Holdings::default());
        assert_eq!(store.sweep_tenant(&name, 0).await.unwrap(), 0);
        assert!(store.cancel(&name.as_str().into()).await.unwrap().is_none());
        let message = MessageKey { context: "c-1".into(), message: name.as_str().into(), digest: [0; 32] };
        store.release(&owner("ada"), &message, &holder("one")).await.unwrap();
    }
}

/// Text that does not compress, because a database compresses the entries of its indexes.
fn long(salt: usize) -> String {
    let mut text = format!("{salt}-");
    while text.len() < MAX_KEY_BYTES {
        text.push_str(TaskId::generate().as_str());
    }
    text.truncate(MAX_KEY_BYTES);
    text
}

async fn the_longest_ids_are_stored_and_found(backend: Backend) {
    let store = backend.store().await;
    // The user of a conversation is the principal behind a word of ten bytes.
    let principal = long(2)[..MAX_KEY_BYTES - 10].to_owned();
    let owner = Owner { tenant: long(1), principal };
    let mut task = working(&long(3));
    task.context_id = long(4).into();
    store.begin(&owner, &task).await.unwrap();
    assert!(store.load(&owner, &task.id).await.is_some());
    let query = TaskQuery { context: Some(task.context_id.clone()), limit: 10, ..TaskQuery::default() };
    assert_eq!(store.tasks(&owner, &query).await.unwrap().total, 1);

    let config = TaskPushNotificationConfig { id: Some(long(5)), ..TaskPushNotificationConfig::default() };
    store.put_config(&task.id, &config).await.unwrap();
    assert_eq!(store.configs(&task.id, "", 10).await.unwrap().configs, [config]);
    let message = MessageKey { context: task.context_id.clone(), message: long(6).into(), digest: [0; 32] };
    store.claim(&owner, &message, &task.id, &holder("one")).await.unwrap();
}
