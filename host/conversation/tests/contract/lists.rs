//! Pages of tasks.

use annex_conversation::{MAX_PAGE_BYTES, TaskPage, TaskQuery};
use annex_protocol::{Message, Task, TaskState};

use crate::support::{Backend, WritesTasks, at, change, owner, task, working};

on_every_store! {
    the_task_whose_status_changed_last_comes_first,
    pages_with_equal_timestamps_show_each_task_once,
    all_filters_apply_to_page_and_total,
    an_owner_sees_only_what_is_theirs,
    a_page_says_whether_another_follows,
    a_change_shows_in_the_list,
    a_page_ends_where_its_bytes_are_too_many,
    whoever_follows_tasks_hears_which_of_them_have_changed,
}

fn all() -> TaskQuery {
    TaskQuery { limit: 100, ..TaskQuery::default() }
}

fn ids(page: &TaskPage) -> Vec<&str> {
    page.tasks.iter().map(|task| task.id.as_str()).collect()
}

async fn the_task_whose_status_changed_last_comes_first(backend: Backend) {
    let store = backend.store().await;
    // Of equals the greater id is first, byte by byte: no language has a say in it.
    let tasks =
        [("b", at(2)), ("none", None), ("B", at(2)), ("ä", at(2)), ("_", at(2)), ("old", at(-5)), ("new", at(3))];
    for (id, timestamp) in tasks {
        store.begin(&owner("ada"), &task(id, TaskState::Working, timestamp)).await.unwrap();
    }
    let page = store.tasks(&owner("ada"), &all()).await.unwrap();
    assert_eq!(ids(&page), ["new", "ä", "b", "_", "B", "old", "none"]);
    assert_eq!((page.total, page.next), (7, None));
}

async fn pages_with_equal_timestamps_show_each_task_once(backend: Backend) {
    let store = backend.store().await;
    for number in 0..25 {
        store.begin(&owner("ada"), &task(&format!("t-{number:02}"), TaskState::Working, at(1_000))).await.unwrap();
    }
    for context in [None, Some("c-1".into())] {
        let mut query = TaskQuery { context, limit: 10, ..TaskQuery::default() };
        let mut seen = Vec::new();
        let mut sizes = Vec::new();
        loop {
            let page = store.tasks(&owner("ada"), &query).await.unwrap();
            assert_eq!(page.total, 25, "the total counts all pages");
            sizes.push(page.tasks.len());
            seen.extend(page.tasks.into_iter().map(|task| String::from(task.id)));
            let Some(next) = page.next else { break };
            // As it comes back from a client.
            query.after = Some(next.to_string().parse().unwrap());
        }
        assert_eq!(sizes, [10, 10, 5]);
        let expected: Vec<String> = (0..25).rev().map(|number| format!("t-{number:02}")).collect();
        assert_eq!(seen, expected);
    }
}

async fn all_filters_apply_to_page_and_total(backend: Backend) {
    let store = backend.store().await;
    let tasks = [
        ("t-1", "c-1", TaskState::Working, at(10)),
        ("t-2", "c-1", TaskState::Completed, at(20)),
        ("t-3", "c-2", TaskState::Completed, at(30)),
        ("t-4", "c-2", TaskState::Working, at(20)),
        ("t-5", "c-1", TaskState::Completed, None),
    ];
    for (id, context, state, timestamp) in tasks {
        let mut task = task(id, state, timestamp);
        task.context_id = context.into();
        store.begin(&owner("ada"), &task).await.unwrap();
    }
    let context = |context: &str| TaskQuery { context: Some(context.into()), ..all() };
    let state = |state| TaskQuery { state: Some(state), ..all() };
    let after = |millis| TaskQuery { status_after: at(millis), ..all() };
    let cases = [
        (all(), vec!["t-3", "t-4", "t-2", "t-1", "t-5"]),
        (context("c-1"), vec!["t-2", "t-1", "t-5"]),
        (context("c-3"), vec![]),
        // An empty context is one like others.
        (context(""), vec![]),
        (state(TaskState::Completed), vec!["t-3", "t-2", "t-5"]),
        (state(TaskState::Unspecified), vec![]),
        (after(20), vec!["t-3", "t-4", "t-2"]),
        (after(21), vec!["t-3"]),
        (TaskQuery { state: Some(TaskState::Completed), ..context("c-1") }, vec!["t-2", "t-5"]),
        (TaskQuery { state: Some(TaskState::Completed), status_after: at(20), ..context("c-1") }, vec!["t-2"]),
    ];
    for (query, expected) in cases {
        let page = store.tasks(&owner("ada"), &query).await.unwrap();
        assert_eq!((ids(&page), page.total), (expected.clone(), expected.len() as u64), "{query:?}");
        let first = store.tasks(&owner("ada"), &TaskQuery { limit: 1, ..query.clone() }).await.unwrap();
        assert_eq!(first.total, expected.len() as u64, "{query:?}");
    }
}

async fn an_owner_sees_only_what_is_theirs(backend: Backend) {
    let store = backend.store().await;
    store.begin(&owner("ada"), &working("t-1")).await.unwrap();
    store.begin(&owner("bob"), &working("t-2")).await.unwrap();
    let mut globex = owner("ada");
    globex.tenant = "globex".to_owned();
    store.begin(&globex, &working("t-3")).await.unwrap();
    for (owner, expected) in [(owner("ada"), "t-1"), (owner("bob"), "t-2"), (globex, "t-3")] {
        for query in [all(), TaskQuery { context: Some("c-1".into()), ..all() }] {
            let page = store.tasks(&owner, &query).await.unwrap();
            assert_eq!((ids(&page), page.total), (vec![expected], 1), "{owner:?}");
        }
    }
    assert_eq!(store.tasks(&owner("eve"), &all()).await.unwrap(), TaskPage::default());
}

async fn a_page_says_whether_another_follows(backend: Backend) {
    let store = backend.store().await;
    for id in ["t-1", "t-2"] {
        store.begin(&owner("ada"), &working(id)).await.unwrap();
    }
    let page = |limit| TaskQuery { limit, ..TaskQuery::default() };
    assert!(store.tasks(&owner("ada"), &page(1)).await.unwrap().next.is_some());
    assert!(store.tasks(&owner("ada"), &page(2)).await.unwrap().next.is_none());
    let after_all = TaskQuery { after: Some(format!("{}.", i64::MIN).parse().unwrap()), ..all() };
    let beyond = store.tasks(&owner("ada"), &after_all).await.unwrap();
    assert_eq!((beyond.tasks.len(), beyond.total, beyond.next), (0, 2, None));
}

async fn a_change_shows_in_the_list(backend: Backend) {
    let store = backend.store().await;
    let mut changed = working("t-1");
    store.begin(&owner("ada"), &changed).await.unwrap();
    store.begin(&owner("ada"), &task("t-2", TaskState::Working, at(1_500))).await.unwrap();
    let event = change(&mut changed, TaskState::Completed, at(2_000));
    store.add(&changed.id, 1, &event, &changed).await.unwrap();
    let page = store.tasks(&owner("ada"), &all()).await.unwrap();
    assert_eq!(ids(&page), ["t-1", "t-2"]);
    assert_eq!((page.tasks[0].number, Task::clone(&page.tasks[0].decode().unwrap())), (2, changed));
}

async fn a_page_ends_where_its_bytes_are_too_many(backend: Backend) {
    let store = backend.store().await;
    let third = MAX_PAGE_BYTES / 3;
    let sizes = [("t-0", 10), ("t-1", third), ("t-2", third), ("t-3", third), ("t-4", MAX_PAGE_BYTES)];
    for (number, (id, bytes)) in (0..).zip(sizes) {
        let mut large = task(id, TaskState::Completed, at(number));
        large.history = vec![Message::user_text(&"x".repeat(bytes))];
        store.begin(&owner("ada"), &large).await.unwrap();
    }
    for context in [None, Some("c-1".into())] {
        let mut query = TaskQuery { context, ..all() };
        let mut pages: Vec<Vec<String>> = Vec::new();
        loop {
            let page = store.tasks(&owner("ada"), &query).await.unwrap();
            assert_eq!(page.total, 5);
            pages.push(ids(&page).into_iter().map(ToOwned::to_owned).collect());
            let Some(next) = page.next else { break };
            query.after = Some(next);
        }
        assert_eq!(pages, [vec!["t-4"], vec!["t-3", "t-2"], vec!["t-1", "t-0"]]);
    }
}

async fn whoever_follows_tasks_hears_which_of_them_have_changed(backend: Backend) {
    let store = backend.store().await;
    let mut changed = working("t-1");
    for task in [&changed, &working("t-2")] {
        store.begin(&owner("ada"), task).await.unwrap();
    }
    let entry = change(&mut changed, TaskState::Completed, at(2_000));
    store.add(&changed.id, 1, &entry, &changed).await.unwrap();
    let known = [("t-1".into(), 1), ("t-2".into(), 1), ("t-3".into(), 1), ("t \"\\ö".into(), 1)];
    let mut news = store.changed(&known).await.unwrap();
    news.sort_unstable();
    assert_eq!(news, [("t \"\\ö".into(), None), ("t-1".into(), Some(2)), ("t-3".into(), None)]);
    assert!(store.changed(&[("t-1".into(), 2), ("t-2".into(), 1)]).await.unwrap().is_empty());
    assert!(store.changed(&[]).await.unwrap().is_empty());
}
