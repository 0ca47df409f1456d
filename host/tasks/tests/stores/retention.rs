//! A sweep deletes some tasks and keeps the others.

use std::time::Duration;

use annex_protocol::{Owner, TaskPushNotificationConfig, TaskState, Timestamp};
use annex_tasks::{MessageKey, Remembered, Retention, TaskQuery};

use crate::fixture::{OneByOne, Store, at, change, owner, task, working};
use crate::messages::task_of;

on_every_store! {
    finished_tasks_go_when_they_are_old,
    the_oldest_go_when_there_are_too_many,
    what_one_tenant_has_too_much_costs_no_other_a_task,
    one_tenant_is_swept_alone,
    tasks_that_are_not_finished_stay,
    what_belongs_to_a_task_goes_with_it,
    more_than_one_batch_goes,
}

const HOUR: Duration = Duration::from_secs(3_600);
const ALL: Retention = Retention { age: Duration::MAX, count: u64::MAX };

fn hours_ago(hours: i64) -> Option<Timestamp> {
    at(Timestamp::now().as_millis() - hours * 3_600_000)
}

async fn ids(store: &Store) -> Vec<String> {
    let query = TaskQuery { limit: 1_000, ..TaskQuery::default() };
    let page = store.list(&owner("ada"), &query).await.unwrap();
    page.tasks.into_iter().map(|task| task.id.into()).collect()
}

async fn finished_tasks_go_when_they_are_old(store: Store) {
    for hours in [0, 1, 5, 9] {
        let id = format!("t-{hours}");
        store.begin(&owner("ada"), &task(&id, TaskState::Completed, hours_ago(hours))).await.unwrap();
    }
    // When it finished is not known, so it counts as having done so when it was stored.
    store.begin(&owner("ada"), &task("t-none", TaskState::Failed, None)).await.unwrap();
    assert_eq!(store.sweep(&ALL).await.unwrap(), 0);
    assert_eq!(store.sweep(&Retention { age: 4 * HOUR, ..ALL }).await.unwrap(), 2);
    assert_eq!(ids(&store).await, ["t-0", "t-1", "t-none"]);
    assert_eq!(store.sweep(&Retention { age: 4 * HOUR, ..ALL }).await.unwrap(), 0);
}

async fn the_oldest_go_when_there_are_too_many(store: Store) {
    for (principal, hours) in [("ada", 3), ("bob", 2), ("ada", 1), ("ada", 4)] {
        let id = format!("t-{hours}");
        store.begin(&owner(principal), &task(&id, TaskState::Rejected, hours_ago(hours))).await.unwrap();
    }
    assert_eq!(store.sweep(&Retention { count: 2, ..ALL }).await.unwrap(), 2);
    assert_eq!(ids(&store).await, ["t-1"]);
    assert!(store.load(&owner("bob"), &"t-2".into()).await.unwrap().is_some());
    assert_eq!(store.sweep(&Retention { count: 0, ..ALL }).await.unwrap(), 2);
}

async fn one_tenant_is_swept_alone(store: Store) {
    let of = |tenant: &str| Owner { tenant: tenant.to_owned(), principal: "ada".to_owned() };
    for (tenant, hours) in [("a", 2), ("a", 1), ("a", 3), ("b", 2), ("b", 1)] {
        let finished = task(&format!("{tenant}-{hours}"), TaskState::Completed, hours_ago(hours));
        store.begin(&of(tenant), &finished).await.unwrap();
    }
    store.begin(&of("a"), &working("a-works")).await.unwrap();
    assert_eq!(store.sweep_tenant("a", 3).await.unwrap(), 0);
    assert_eq!(store.sweep_tenant("a", 1).await.unwrap(), 2);
    for (tenant, id, stays) in
        [("a", "a-1", true), ("a", "a-2", false), ("a", "a-3", false), ("a", "a-works", true), ("b", "b-2", true)]
    {
        assert_eq!(store.load(&of(tenant), &id.into()).await.unwrap().is_some(), stays, "{id}");
    }
    assert_eq!(store.sweep_tenant("nobody", 0).await.unwrap(), 0);
}

async fn what_one_tenant_has_too_much_costs_no_other_a_task(store: Store) {
    let of = |tenant: &str| Owner { tenant: tenant.to_owned(), principal: "ada".to_owned() };
    let begin = async |tenant: &str, hours| {
        let finished = task(&format!("{tenant}-{hours}"), TaskState::Completed, hours_ago(hours));
        store.begin(&of(tenant), &finished).await.unwrap();
    };
    for hours in 0..5 {
        begin("globex", hours).await;
    }
    begin("initech", 9).await;
    begin("", 8).await;
    let counts = async || (store.count("globex").await.unwrap(), store.count("").await.unwrap());
    assert_eq!(counts().await, (5, 1));
    assert_eq!(store.sweep(&Retention { count: 2, ..ALL }).await.unwrap(), 3);
    assert_eq!((counts().await, store.count("none").await.unwrap()), ((2, 1), 0));
    let left = async |tenant: &str| {
        let page = store.list(&of(tenant), &TaskQuery { limit: 10, ..TaskQuery::default() }).await.unwrap();
        page.tasks.into_iter().map(|task| String::from(task.id)).collect::<Vec<_>>()
    };
    assert_eq!(left("globex").await, ["globex-0", "globex-1"]);
    assert_eq!((left("initech").await.len(), left("").await.len()), (1, 1));
    assert_eq!(store.sweep(&Retention { age: 7 * HOUR, count: 2 }).await.unwrap(), 2, "the age is for all");
    assert_eq!((left("initech").await.len(), left("").await.len(), left("globex").await.len()), (0, 0, 2));
}

async fn tasks_that_are_not_finished_stay(store: Store) {
    for state in TaskState::ALL {
        store.begin(&owner("ada"), &task(state.name(), *state, at(1_000))).await.unwrap();
    }
    let finished = TaskState::ALL.iter().filter(|state| state.is_terminal()).count() as u64;
    assert_eq!(store.sweep(&Retention { age: Duration::ZERO, count: 0 }).await.unwrap(), finished);
    let states = TaskState::ALL.iter().filter(|state| !state.is_terminal());
    let mut expected: Vec<&str> = states.map(|state| state.name()).collect();
    expected.sort_unstable_by(|one, other| other.cmp(one));
    assert_eq!(ids(&store).await, expected);
}

async fn what_belongs_to_a_task_goes_with_it(store: Store) {
    let ada = owner("ada");
    let message = |id: &str| MessageKey { context: "c-1".into(), message: id.into(), digest: [1; 32] };
    let config = TaskPushNotificationConfig { id: Some("p-1".to_owned()), ..TaskPushNotificationConfig::default() };
    for id in ["gone", "kept"] {
        let mut task = working(id);
        store.remember(&ada, &message(id), &task.id).await.unwrap();
        store.begin(&ada, &task).await.unwrap();
        store.put_config(&task.id, &config).await.unwrap();
        let finished = if id == "gone" { hours_ago(2) } else { hours_ago(0) };
        let event = change(&mut task, TaskState::Completed, finished);
        store.add(&task.id, 1, &event, &task).await.unwrap();
    }
    store.remember(&ada, &message("unclaimed"), &"never".into()).await.unwrap();
    assert_eq!(store.sweep(&Retention { age: HOUR, ..ALL }).await.unwrap(), 1);

    assert!(store.load(&ada, &"gone".into()).await.unwrap().is_none());
    assert!(store.events_after(&"gone".into(), 0, 10).await.unwrap().is_empty());
    assert!(store.config(&"gone".into(), "p-1").await.unwrap().is_none());
    assert_eq!(store.load(&ada, &"kept".into()).await.unwrap().unwrap().seq, 2);
    assert!(store.config(&"kept".into(), "p-1").await.unwrap().is_some());
    let again = |id: &'static str| {
        let store = store.clone();
        let ada = ada.clone();
        async move { store.remember(&ada, &message(id), &"other".into()).await.unwrap() }
    };
    assert_eq!(again("gone").await, Remembered::New);
    assert_eq!(task_of(&again("kept").await), Some("kept"));
    assert_eq!(task_of(&again("unclaimed").await), Some("never"), "its task may still come");
}

async fn more_than_one_batch_goes(store: Store) {
    for number in 0..250 {
        let finished = task(&format!("t-{number:03}"), TaskState::Completed, at(number));
        store.begin(&owner("ada"), &finished).await.unwrap();
    }
    assert_eq!(store.sweep(&Retention { count: 3, ..ALL }).await.unwrap(), 247);
    assert_eq!(ids(&store).await, ["t-249", "t-248", "t-247"]);
}
