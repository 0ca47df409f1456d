//! A sweep deletes some tasks and keeps the others.

use std::time::Duration;

use annex_conversation::{
    Append, Claim, Entrance, MessageKey, Outcome, Owner, Position, Submission, TaskQuery, TaskSnapshot, Window,
};
use annex_protocol::{TaskPushNotificationConfig, TaskState, Timestamp};

use crate::support::{Backend, Store, WritesTasks, at, change, holder, owner, submission, sweep_tasks, task, working};

on_every_store! {
    finished_tasks_go_when_they_are_old,
    the_oldest_tasks_go_when_there_are_too_many,
    a_tenant_with_too_many_tasks_costs_no_other_a_task,
    one_tenant_is_swept_alone,
    tasks_that_are_not_finished_stay,
    what_belongs_to_a_task_goes_with_it,
    more_than_one_batch_goes,
}

const HOUR: Duration = Duration::from_secs(3_600);
const FOR_EVER: Duration = Duration::MAX;

fn hours_ago(hours: i64) -> Option<Timestamp> {
    at(Timestamp::now().as_millis() - hours * 3_600_000)
}

async fn ids(store: &Store) -> Vec<String> {
    let query = TaskQuery { limit: 1_000, ..TaskQuery::default() };
    let page = store.tasks(&owner("ada"), &query).await.unwrap();
    page.tasks.into_iter().map(|task| task.id.into()).collect()
}

async fn finished_tasks_go_when_they_are_old(backend: Backend) {
    let store = backend.store().await;
    for hours in [0, 1, 5, 9] {
        let id = format!("t-{hours}");
        store.begin(&owner("ada"), &task(&id, TaskState::Completed, hours_ago(hours))).await.unwrap();
    }
    // When it finished is not known, so it counts as having done so when it was stored.
    store.begin(&owner("ada"), &task("t-none", TaskState::Failed, None)).await.unwrap();
    assert_eq!(sweep_tasks(&store, FOR_EVER, u64::MAX).await, 0);
    assert_eq!(sweep_tasks(&store, 4 * HOUR, u64::MAX).await, 2);
    assert_eq!(ids(&store).await, ["t-0", "t-1", "t-none"]);
    assert_eq!(sweep_tasks(&store, 4 * HOUR, u64::MAX).await, 0);
}

async fn the_oldest_tasks_go_when_there_are_too_many(backend: Backend) {
    let store = backend.store().await;
    for (principal, hours) in [("ada", 3), ("bob", 2), ("ada", 1), ("ada", 4)] {
        let id = format!("t-{hours}");
        store.begin(&owner(principal), &task(&id, TaskState::Rejected, hours_ago(hours))).await.unwrap();
    }
    assert_eq!(sweep_tasks(&store, FOR_EVER, 2).await, 2);
    assert_eq!(ids(&store).await, ["t-1"]);
    assert!(store.load(&owner("bob"), &"t-2".into()).await.is_some());
    assert_eq!(sweep_tasks(&store, FOR_EVER, 0).await, 2);
}

async fn one_tenant_is_swept_alone(backend: Backend) {
    let store = backend.store().await;
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
        assert_eq!(store.load(&of(tenant), &id.into()).await.is_some(), stays, "{id}");
    }
    assert_eq!(store.sweep_tenant("nobody", 0).await.unwrap(), 0);
}

async fn a_tenant_with_too_many_tasks_costs_no_other_a_task(backend: Backend) {
    let store = backend.store().await;
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
    let counts = async || (store.holdings("globex").await.unwrap().tasks, store.holdings("").await.unwrap().tasks);
    assert_eq!(counts().await, (5, 1));
    assert_eq!(sweep_tasks(&store, FOR_EVER, 2).await, 3);
    assert_eq!((counts().await, store.holdings("none").await.unwrap().tasks), ((2, 1), 0));
    let left = async |tenant: &str| {
        let page = store.tasks(&of(tenant), &TaskQuery { limit: 10, ..TaskQuery::default() }).await.unwrap();
        page.tasks.into_iter().map(|task| String::from(task.id)).collect::<Vec<_>>()
    };
    assert_eq!(left("globex").await, ["globex-0", "globex-1"]);
    assert_eq!((left("initech").await.len(), left("").await.len()), (1, 1));
    assert_eq!(sweep_tasks(&store, 7 * HOUR, 2).await, 2, "the age is for all");
    assert_eq!((left("initech").await.len(), left("").await.len(), left("globex").await.len()), (0, 0, 2));
}

async fn tasks_that_are_not_finished_stay(backend: Backend) {
    let store = backend.store().await;
    for state in TaskState::ALL {
        store.begin(&owner("ada"), &task(state.name(), *state, at(1_000))).await.unwrap();
    }
    let finished = TaskState::ALL.iter().filter(|state| state.is_terminal()).count() as u64;
    assert_eq!(sweep_tasks(&store, Duration::ZERO, 0).await, finished);
    let states = TaskState::ALL.iter().filter(|state| !state.is_terminal());
    let mut expected: Vec<&str> = states.map(|state| state.name()).collect();
    expected.sort_unstable_by(|one, other| other.cmp(one));
    assert_eq!(ids(&store).await, expected);
}

async fn what_belongs_to_a_task_goes_with_it(backend: Backend) {
    let store = backend.store().await;
    let ada = owner("ada");
    let message = |id: &str| MessageKey { context: "c-1".into(), message: id.into(), digest: [1; 32] };
    let claim =
        async |id: &str, task: &str| store.claim(&ada, &message(id), &task.into(), &holder("one")).await.unwrap();
    let config = TaskPushNotificationConfig { id: Some("p-1".to_owned()), ..TaskPushNotificationConfig::default() };
    for id in ["gone", "kept"] {
        assert_eq!(claim(id, id).await, Claim::New(id.into()));
        let mut task = working(id);
        let key = crate::support::key_of(&ada, &task);
        let submission = Submission { message: Some(message(id)), ..submission("one", id) };
        let Entrance::Runs(fence, _) = store.enter(&key, submission.clone(), Window::NONE).await.unwrap() else {
            panic!("no other turn runs")
        };
        let finished = if id == "gone" { hours_ago(2) } else { hours_ago(0) };
        let entries = [change(&mut task, TaskState::Completed, finished)];
        let snapshot = TaskSnapshot::from(task);
        let append = Append {
            by: Some(&fence),
            submission: Some(&submission),
            entries: &entries,
            task: Some(&snapshot),
            ends: true,
            outcome: Outcome::Task,
        };
        store.append(&key, &Position::of_task(id.into(), 0), append).await.unwrap();
        store.put_config(&id.into(), &config).await.unwrap();
    }
    claim("unclaimed", "never").await;
    assert_eq!(sweep_tasks(&store, HOUR, u64::MAX).await, 1);

    assert!(store.load(&ada, &"gone".into()).await.is_none());
    assert!(store.config(&"gone".into(), "p-1").await.unwrap().is_none());
    assert_eq!(store.load(&ada, &"kept".into()).await.unwrap().number, 1);
    assert!(store.config(&"kept".into(), "p-1").await.unwrap().is_some());
    assert_eq!(claim("gone", "other").await, Claim::New("other".into()));
    assert_eq!(claim("kept", "other").await, Claim::Repeated("kept".into()));
    assert_eq!(claim("unclaimed", "other").await, Claim::Open("never".into()), "its task may still come");
}

async fn more_than_one_batch_goes(backend: Backend) {
    let store = backend.store().await;
    for number in 0..250 {
        let finished = task(&format!("t-{number:03}"), TaskState::Completed, at(number));
        store.begin(&owner("ada"), &finished).await.unwrap();
    }
    assert_eq!(sweep_tasks(&store, FOR_EVER, 3).await, 247);
    assert_eq!(ids(&store).await, ["t-249", "t-248", "t-247"]);
}
