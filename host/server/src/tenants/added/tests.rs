//! Tests of loading added tenants on demand, without servers.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annex_tenants::{ChangedTenant, Expectation, StoredTenant, TenantChange, TenantState, TenantStores};
use futures::future::{BoxFuture, join_all};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::failures::{FIRST_PAUSE, LONGEST_PAUSE};
use super::{AddedTenants, Attempt, Bounds, ServingParts, TenantLoader, UNKNOWN, UnloadReason};

const IDLE: Duration = Duration::from_secs(60);

/// The events so far, in order.
type EventLog = Arc<Mutex<Vec<String>>>;

/// Stands for the serving parts of a tenant. It has only the text.
#[derive(Clone)]
struct Text {
    text: Arc<str>,
    events: EventLog,
}

impl ServingParts for Text {
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.text) > 1
    }

    fn leave(self, name: &str, why: UnloadReason) {
        self.events.lock().unwrap().push(format!("{name} leaves: {why:?}"));
    }
}

/// A loader that obeys the text: `only NAME` limits who may call, `broken` fails, `panic` ends the load.
struct Loader {
    events: EventLog,
    loads: Arc<AtomicUsize>,
}

impl TenantLoader<Text> for Loader {
    fn callers(&self, text: String) -> BoxFuture<'static, Result<Option<HashSet<String>>, String>> {
        let callers = text.strip_prefix("only ").map(|caller| HashSet::from([caller.to_owned()]));
        Box::pin(async { Ok(callers) })
    }

    fn check(&self, _: &str, _: String) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    fn stop_turns(&self, name: &str) {
        self.events.lock().unwrap().push(format!("turns of {name} stop"));
    }

    fn load(&self, tenant: Arc<StoredTenant>, attempt: Attempt) -> BoxFuture<'static, Result<Text, String>> {
        let events = Arc::clone(&self.events);
        self.loads.fetch_add(1, Ordering::Relaxed);
        if attempt.failed_before {
            events.lock().unwrap().push(format!("{} failed before", tenant.name));
        }
        Box::pin(async move {
            sleep(Duration::from_millis(10)).await;
            match tenant.config.as_str() {
                "broken" => Err("its text is broken".to_owned()),
                "panic" => panic!("a load that panics"),
                text => Ok(Text { text: text.into(), events }),
            }
        })
    }
}

struct Setting {
    stores: TenantStores,
    tenants: Arc<AddedTenants<Text>>,
    events: EventLog,
    loads: Arc<AtomicUsize>,
}

impl Setting {
    async fn new(max_loaded: usize) -> Self {
        Self::with(Bounds { max_loaded, idle: IDLE }).await
    }

    async fn with(of_tenants: Bounds) -> Self {
        let stores = TenantStores::in_memory();
        let events = EventLog::default();
        let loads = Arc::default();
        let loader = Loader { events: Arc::clone(&events), loads: Arc::clone(&loads) };
        let tenants = AddedTenants::open(stores.clone(), Box::new(loader), of_tenants).await.unwrap();
        Self { stores, tenants, events, loads }
    }

    /// Stores a tenant like the API of this process does, and returns the revision.
    async fn put(&self, name: &str, expectation: Expectation, state: TenantState, text: &str) -> u64 {
        let TenantChange::Stored(rev) = self.stores.tenants.put(name, expectation, state, text).await.unwrap() else {
            unreachable!("{name}")
        };
        self.tenants.note(&ChangedTenant { name: name.to_owned(), rev, state: Some(state) });
        rev
    }

    async fn add(&self, name: &str, text: &str) -> u64 {
        self.put(name, Expectation::Absent, TenantState::Active, text).await
    }

    /// The text that serves the tenant, or the reason why it is not served.
    async fn find(&self, name: &str) -> Option<Result<String, String>> {
        let found = self.tenants.find(name, Some("ada")).await?;
        Some(found.map(|serving| serving.text.to_string()).map_err(|failure| failure.reason))
    }

    fn loads(&self) -> usize {
        self.loads.load(Ordering::Relaxed)
    }

    fn events(&self) -> Vec<String> {
        std::mem::take(&mut *self.events.lock().unwrap())
    }
}

fn served(text: &str) -> Option<Result<String, String>> {
    Some(Ok(text.to_owned()))
}

fn failing(reason: &str) -> Option<Result<String, String>> {
    Some(Err(reason.to_owned()))
}

#[tokio::test(start_paused = true)]
async fn a_tenant_is_loaded_once_by_the_first_who_may_call_it() {
    let setting = Setting::new(10).await;
    setting.add("acme", "one").await;
    setting.add("closed", "only bob").await;
    assert_eq!(setting.loads(), 0);
    let found = join_all((0..100).map(|_| setting.find("acme"))).await;
    assert!(found.iter().all(|found| *found == served("one")));
    assert_eq!((setting.find("closed").await, setting.loads()), (None, 1), "who may not call it loads nothing");
    assert!(setting.tenants.find("closed", Some("bob")).await.is_some_and(|found| found.is_ok()));
    assert_eq!(setting.tenants.loaded().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn whoever_goes_away_keeps_nobody_from_being_served() {
    let setting = Setting::new(10).await;
    setting.add("acme", "one").await;
    let gone = tokio::time::timeout(Duration::from_millis(1), setting.find("acme")).await;
    assert!(gone.is_err());
    assert_eq!((setting.find("acme").await, setting.loads()), (served("one"), 1));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_nobody_has_is_not_read_again_for_a_moment() {
    let setting = Setting::new(10).await;
    for name in ["none", "No name", "tasks", "", "\0"] {
        assert_eq!(setting.find(name).await, None);
    }
    // Stored by another process, whose changes this one has not read yet.
    setting.stores.tenants.put("none", Expectation::Absent, TenantState::Active, "one").await.unwrap();
    assert_eq!(setting.find("none").await, None);
    sleep(UNKNOWN).await;
    assert_eq!(setting.find("none").await, served("one"));
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_loaded_fails_alone_and_is_tried_again_when_somebody_asks() {
    let setting = Setting::new(10).await;
    setting.add("bad", "broken").await;
    setting.add("worse", "panic").await;
    setting.add("fine", "one").await;
    for _ in 0..3 {
        assert_eq!(setting.find("bad").await, failing("its text is broken"));
    }
    assert!(setting.find("worse").await.is_some_and(|found| found.is_err()));
    assert_eq!(setting.find("fine").await, served("one"));
    assert_eq!(setting.loads(), 3);
    let names: Vec<_> = setting.tenants.failing().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["bad", "worse"]);
    assert!(setting.events().is_empty());
    sleep(FIRST_PAUSE).await;
    assert_eq!((setting.find("bad").await, setting.loads()), (failing("its text is broken"), 4));
    assert_eq!(setting.events(), ["bad failed before"], "so that it takes no place of those that never did");
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_again_and_again_is_tried_ever_more_seldom_until_its_text_is_changed() {
    // Shorter than the pauses: unloading a tenant does not shorten its pause.
    let setting = Setting::with(Bounds { max_loaded: 10, idle: Duration::from_secs(1) }).await;
    let stop = CancellationToken::new();
    let keeping = tokio::spawn(Arc::clone(&setting.tenants).keep_house(stop.clone()));
    let mut rev = setting.add("bad", "broken").await;
    for _ in 0..3_600 {
        assert_eq!(setting.find("bad").await, failing("its text is broken"));
        sleep(Duration::from_secs(1)).await;
    }
    let in_an_hour = setting.loads();
    assert!(in_an_hour <= 3_600 / LONGEST_PAUSE.as_secs() as usize + 6, "{in_an_hour}");
    // A changed text is tried at once. If it fails as well, the pause is as long as before.
    for text in ["broken", "broken", "one"] {
        let before = setting.loads();
        rev = setting.put("bad", Expectation::Rev(rev), TenantState::Active, text).await;
        let found = setting.find("bad").await;
        assert_eq!(found, if text == "one" { served("one") } else { failing("its text is broken") });
        sleep(LONGEST_PAUSE / 2).await;
        setting.find("bad").await;
        assert_eq!(setting.loads() - before, if text == "one" { 2 } else { 1 }, "{text}");
    }
    assert!(!setting.tenants.known().failures.has("bad"));
    stop.cancel();
    keeping.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn whoever_reads_cards_has_no_tenant_let_go_that_is_called() {
    let setting = Setting::new(2).await;
    for name in ["works", "too", "a", "b", "c"] {
        setting.add(name, name).await;
    }
    setting.find("works").await;
    setting.find("too").await;
    for name in ["a", "b", "c", "a"] {
        sleep(Duration::from_secs(1)).await;
        // Without a caller, as for reading a card.
        assert!(setting.tenants.find(name, None).await.is_some_and(|found| found.is_ok()));
    }
    let loaded: Vec<_> = setting.tenants.loaded().into_iter().map(|(name, _)| name).collect();
    assert_eq!(loaded, ["too", "works"]);
}

#[tokio::test(start_paused = true)]
async fn a_change_counts_for_whoever_asks_from_then_on() {
    let setting = Setting::new(10).await;
    let first = setting.add("acme", "one").await;
    let kept = setting.tenants.find("acme", None).await.unwrap().ok().unwrap();
    let second = setting.put("acme", Expectation::Rev(first), TenantState::Active, "two").await;
    assert_eq!(setting.find("acme").await, served("two"));
    assert_eq!(&*kept.text, "one", "who has begun goes on");
    // The same change again, as the next query of the store finds it.
    setting.tenants.look().await.unwrap();
    assert_eq!((setting.find("acme").await, setting.loads()), (served("two"), 2));
    let third = setting.put("acme", Expectation::Rev(second), TenantState::Suspended, "two").await;
    assert_eq!(setting.find("acme").await, failing("it is suspended"));
    setting.put("acme", Expectation::Rev(third), TenantState::Active, "two").await;
    assert_eq!(setting.find("acme").await, served("two"));
    assert_eq!(setting.events(), ["acme leaves: Changed", "acme leaves: Idle"]);
}

#[tokio::test(start_paused = true)]
async fn changes_of_others_are_found_by_looking() {
    let setting = Setting::new(10).await;
    let rev = setting.add("acme", "one").await;
    setting.find("acme").await;
    assert_eq!(
        setting.stores.tenants.put("acme", Expectation::Rev(rev), TenantState::Active, "two").await.unwrap(),
        TenantChange::Stored(rev + 1)
    );
    assert_eq!(setting.find("acme").await, served("one"));
    setting.tenants.look().await.unwrap();
    assert_eq!(setting.find("acme").await, served("two"));
}

#[tokio::test(start_paused = true)]
async fn a_removed_one_is_no_more() {
    let setting = Setting::new(10).await;
    let rev = setting.add("acme", "one").await;
    setting.find("acme").await;
    assert_eq!(setting.stores.tenants.remove("acme", rev).await.unwrap(), TenantChange::Stored(rev + 1));
    setting.tenants.note(&ChangedTenant { name: "acme".to_owned(), rev: rev + 1, state: None });
    assert_eq!(setting.find("acme").await, None);
    assert_eq!(setting.events(), ["turns of acme stop", "acme leaves: Removed"]);
}

#[tokio::test(start_paused = true)]
async fn the_turns_of_one_that_is_suspended_or_changed_stop_when_it_is_removed() {
    for state in [TenantState::Suspended, TenantState::Active] {
        let setting = Setting::new(10).await;
        let rev = setting.add("acme", "one").await;
        setting.find("acme").await;
        let rev = setting.put("acme", Expectation::Rev(rev), state, "two").await;
        setting.events();
        setting.tenants.note(&ChangedTenant { name: "acme".to_owned(), rev: rev + 1, state: None });
        assert_eq!(setting.events(), ["turns of acme stop"]);
    }
}

#[tokio::test(start_paused = true)]
async fn those_that_were_idle_for_longest_make_room_and_none_that_is_used() {
    let setting = Setting::new(2).await;
    for name in ["a", "b", "c", "d"] {
        setting.add(name, name).await;
    }
    let used = setting.tenants.find("a", None).await.unwrap().ok().unwrap();
    for name in ["b", "c"] {
        sleep(Duration::from_secs(1)).await;
        setting.find(name).await;
    }
    let loaded = || setting.tenants.loaded().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!((loaded(), setting.events()), (vec!["a".to_owned(), "c".to_owned()], vec!["b leaves: Idle".to_owned()]));
    drop(used);
    sleep(Duration::from_secs(1)).await;
    setting.find("d").await;
    assert_eq!(loaded(), ["c", "d"]);
    assert_eq!(setting.find("a").await, served("a"), "it is loaded again");
}

#[tokio::test(start_paused = true)]
async fn nobody_stays_loaded_whom_nobody_asks_for_and_whoever_is_used_does() {
    let setting = Setting::new(10).await;
    setting.add("idle", "one").await;
    setting.add("used", "two").await;
    setting.find("idle").await;
    let used = setting.tenants.find("used", None).await.unwrap().ok().unwrap();
    let stop = CancellationToken::new();
    let keeping = tokio::spawn(Arc::clone(&setting.tenants).keep_house(stop.clone()));
    sleep(IDLE / 2).await;
    assert_eq!(setting.tenants.loaded().len(), 2);
    sleep(IDLE).await;
    let loaded: Vec<_> = setting.tenants.loaded().into_iter().map(|(name, _)| name).collect();
    assert_eq!(loaded, ["used"]);
    drop(used);
    sleep(IDLE).await;
    assert!(setting.tenants.loaded().is_empty());
    stop.cancel();
    keeping.await.unwrap();
}
