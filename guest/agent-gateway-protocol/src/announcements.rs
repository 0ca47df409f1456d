//! Stores the routes that squads announce. Each route has a key of its own and is used until it expires.
//!
//! A key consists of the capability and the path, with a space between them, so that a new announcement replaces the
//! old one. Every turn that routes an intent reads all routes of a capability. Announcements must therefore be cheap
//! for other callers: their size and number are limited, and an expired announcement is not parsed.

use annex_sdk::{Json, Rejection, Violation, clock, json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::parameters::Parameters;
use crate::routing::{Route, Table, cost, out_of_order};

/// An announcement may be removed when this much time has passed since its expiry, in milliseconds. Removals happen
/// when another announcement arrives.
const FORGOTTEN_AFTER_MILLIS: u64 = 86_400_000;
/// The maximum number of announcements that are checked for removal when another one arrives.
const LOOKED_AT: usize = 100;
/// The maximum number of announced routes of one capability. Further routes are ignored.
const MAX_ROUTES: usize = 100;
/// The maximum size of an announcement in bytes, as received and as stored.
const MAX_BYTES: usize = 2_048;

/// The functions of the host that announcements need.
pub trait Store {
    /// All keys that the extension has stored.
    fn keys(&self) -> Result<Vec<String>, String>;
    /// The value of a key.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, String>;
    /// Sets a key.
    fn set(&self, key: &str, value: &[u8]) -> Result<(), String>;
    /// Removes a key.
    fn delete(&self, key: &str) -> Result<(), String>;
    /// Milliseconds since 1970-01-01T00:00:00Z.
    fn now(&self) -> u64;
    /// A secret by its name.
    fn secret(&self, name: &str) -> Result<Option<String>, String>;
}

/// A squad's announcement: the CapabilityAnnouncement of AGP, and the path of the squad.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Announcement {
    capability: String,
    version: String,
    #[serde(default, deserialize_with = "cost")]
    cost: f64,
    policy: Map<String, Value>,
    path: String,
    token: Option<String>,
}

/// A stored route: the time of its expiry, a space, and the route as JSON.
struct StoredRoute {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    expires: u64,
    route: Json,
}

impl StoredRoute {
    /// Parses a stored route. `None` if the value has a form that this version does not write.
    fn parse(value: Vec<u8>) -> Option<Self> {
        let text = String::from_utf8(value).ok()?;
        let (expires, route) = text.split_once(' ').filter(|(_, route)| route.len() <= MAX_BYTES)?;
        Some(Self { expires: expires.parse().ok()?, route: route.to_owned() })
    }

    fn text(&self) -> String {
        format!("{} {}", self.expires, self.route)
    }
}

#[derive(Serialize)]
struct AnnounceResult<'a> {
    capability: &'a str,
    path: &'a str,
    expires: String,
}

/// Stores an announcement, and returns its time of expiry.
///
/// # Errors
/// The announcement is too large, the token is wrong, or the store is full.
pub fn announce(parameters: &Parameters, params: &str, store: &impl Store) -> Result<Json, Rejection> {
    // Checked before parsing: without a configured token every caller may announce.
    check_size(params)?;
    let announcement: Announcement =
        serde_json::from_str(params).map_err(|error| Violation::new("", format!("is no announcement: {error}")))?;
    check_token(parameters, announcement.token.as_deref(), store)?;
    // The token is not stored.
    let route = Route {
        capability: announcement.capability,
        version: Some(announcement.version),
        path: announcement.path,
        cost: announcement.cost,
        policy: announcement.policy,
    };
    let text = json::text(&route).map_err(|error| out_of_order(&error))?;
    // Numbers may have become longer.
    check_size(&text)?;
    let now = store.now();
    let kept = StoredRoute { expires: now.saturating_add(parameters.ttl_millis), route: text };
    keep(&route, &kept, now, store).map_err(|error| out_of_order(&error))
}

fn check_size(text: &str) -> Result<(), Rejection> {
    if text.len() <= MAX_BYTES {
        return Ok(());
    }
    Err(Violation::new("", format!("must have at most {MAX_BYTES} bytes")).into())
}

fn check_token(parameters: &Parameters, token: Option<&str>, store: &impl Store) -> Result<(), Rejection> {
    let Some(name) = &parameters.announce_secret else { return Ok(()) };
    let secret = store.secret(name).map_err(|error| out_of_order(&error))?.unwrap_or_default();
    // A missing secret must not match an empty token.
    let is_right = token.is_some_and(|token| !secret.is_empty() && is_same(token.as_bytes(), secret.as_bytes()));
    if is_right { Ok(()) } else { Err(Violation::new("/token", "is not the token for announcements").into()) }
}

/// True if the texts are equal. The time of the comparison does not show where the texts differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let difference = one.iter().zip(other).fold(0, |difference, (one, other)| difference | (one ^ other));
    // `black_box` keeps the compiler from ending the comparison at the first difference.
    one.len() == other.len() && std::hint::black_box(difference) == 0
}

fn keep(route: &Route, kept: &StoredRoute, now: u64, store: &impl Store) -> Result<Json, String> {
    let Route { capability, path, .. } = route;
    let own = key(capability, path);
    let keys = store.keys()?;
    // The key of this announcement does not count, so that a known route can be announced again when its capability is
    // full.
    let others: Vec<&String> = keys.iter().filter(|key| is_of(capability, key) && **key != own).collect();
    // Routes that have expired long ago make room.
    if others.len() >= MAX_ROUTES && forget_old(&others, now, store)? == 0 {
        return Err(format!("{capability} already has {MAX_ROUTES} routes"));
    }
    // Expired routes of other capabilities are removed here too, because nothing else removes them.
    forget_old(&keys, now, store)?;
    store.set(&own, kept.text().as_bytes())?;
    json::text(&AnnounceResult { capability, path, expires: clock::text(kept.expires) })
}

/// Removes announcements that expired long ago, and returns their number. Checks at most [`LOOKED_AT`] of the keys, and
/// begins at another key each time.
fn forget_old(keys: &[impl AsRef<str>], now: u64, store: &impl Store) -> Result<usize, String> {
    let mut forgotten = 0;
    // The clock picks where to begin, so that no cursor has to be kept.
    let start = usize::try_from(now).unwrap_or_default().checked_rem(keys.len()).unwrap_or_default();
    for key in keys.iter().cycle().skip(start).take(keys.len().min(LOOKED_AT)) {
        let key = key.as_ref();
        let kept = read(key, store)?;
        // Removed a day after expiry. Until then the error is AGP_TABLE_STALE instead of AGP_ROUTE_NOT_FOUND.
        if kept.is_none_or(|kept| kept.expires.saturating_add(FORGOTTEN_AFTER_MILLIS) < now) {
            store.delete(key)?;
            forgotten += 1;
        }
    }
    Ok(forgotten)
}

/// The announced routes at the time when a turn begins to choose routes. All intents of the turn use the same list of
/// keys.
#[derive(Debug, Default)]
pub struct AnnouncedRoutes {
    keys: Vec<String>,
    /// The time when the keys were listed, in milliseconds since 1970-01-01T00:00:00Z.
    now: u64,
}

impl AnnouncedRoutes {
    /// Lists the keys of all announcements. The list is empty if the operator does not allow announcements.
    ///
    /// # Errors
    /// The store is not available.
    pub fn read(parameters: &Parameters, store: &impl Store) -> Result<Self, Rejection> {
        // Announcements from before the operator turned them off do not count.
        if !parameters.announcements {
            return Ok(Self::default());
        }
        let keys = store.keys().map_err(|error| out_of_order(&error))?;
        Ok(Self { keys, now: store.now() })
    }

    /// Returns the routes of a capability: those of the operator, and announced ones.
    ///
    /// # Errors
    /// The store is not available.
    pub fn table(&self, parameters: &Parameters, capability: &str, store: &impl Store) -> Result<Table, Rejection> {
        let own = parameters.routes.iter().filter(|route| route.capability == capability);
        let mut table = Table { live: own.cloned().collect(), has_stale: false };
        // Two concurrent announcements may have exceeded the limit.
        for key in self.keys.iter().filter(|key| is_of(capability, key)).take(MAX_ROUTES) {
            match read(key, store).map_err(|error| out_of_order(&error))? {
                Some(kept) if kept.expires > self.now => {
                    // An unreadable route must not refuse the intents of other callers.
                    table.live.extend(serde_json::from_str::<Route>(&kept.route).ok())
                }
                Some(_) => table.has_stale = true,
                None => {}
            }
        }
        Ok(table)
    }
}

fn key(capability: &str, path: &str) -> String {
    format!("{capability} {path}")
}

fn is_of(capability: &str, key: &str) -> bool {
    key.split_once(' ').is_some_and(|(of, _)| of == capability)
}

/// Reads a stored route. Returns `None` if the key was removed since the listing, or if another version of the
/// extension wrote the value.
fn read(key: &str, store: &impl Store) -> Result<Option<StoredRoute>, String> {
    Ok(store.get(key)?.and_then(StoredRoute::parse))
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;

    use super::*;
    use crate::routing::{self, TABLE_STALE};

    const INVOICES: &str =
        r#"{"capability": "invoice", "version": "1.5", "cost": 0.05, "policy": {"pii": true}, "path": "Squad/a"}"#;

    #[derive(Default)]
    struct FakeStore {
        keys: RefCell<BTreeMap<String, Vec<u8>>>,
        now: Cell<u64>,
        /// The number of reads.
        reads: Cell<usize>,
    }

    impl Store for FakeStore {
        fn keys(&self) -> Result<Vec<String>, String> {
            Ok(self.keys.borrow().keys().cloned().collect())
        }

        fn get(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
            self.reads.set(self.reads.get() + 1);
            Ok(self.keys.borrow().get(key).cloned())
        }

        fn set(&self, key: &str, value: &[u8]) -> Result<(), String> {
            self.keys.borrow_mut().insert(key.to_owned(), value.to_vec());
            Ok(())
        }

        fn delete(&self, key: &str) -> Result<(), String> {
            self.keys.borrow_mut().remove(key);
            Ok(())
        }

        fn now(&self) -> u64 {
            self.now.get()
        }

        fn secret(&self, name: &str) -> Result<Option<String>, String> {
            Ok((name == "TOKEN").then(|| "right".to_owned()))
        }
    }

    fn parameters(json: &str) -> Parameters {
        serde_json::from_str(json).unwrap()
    }

    fn open() -> Parameters {
        parameters(
            r#"{"announcements": true, "ttl_seconds": 10, "routes": [{"capability": "invoice", "path": "own", "cost": 5}]}"#,
        )
    }

    fn table(parameters: &Parameters, store: &FakeStore) -> Table {
        AnnouncedRoutes::read(parameters, store).unwrap().table(parameters, "invoice", store).unwrap()
    }

    /// The paths of the usable routes, and true if an announcement has expired.
    fn paths(parameters: &Parameters, store: &FakeStore) -> (Vec<String>, bool) {
        let table = table(parameters, store);
        (table.live.into_iter().map(|route| route.path).collect(), table.has_stale)
    }

    fn violation(outcome: Result<Json, Rejection>) -> (String, String) {
        match outcome {
            Err(Rejection::Violations(violations)) => (violations[0].pointer.clone(), violations[0].message.clone()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_announcement_is_a_route_until_its_time_is_over() {
        let store = FakeStore::default();
        let answer = announce(&open(), INVOICES, &store).unwrap();
        assert_eq!(answer, r#"{"capability":"invoice","path":"Squad/a","expires":"1970-01-01T00:00:10.000Z"}"#);
        assert_eq!(paths(&open(), &store), (vec!["own".to_owned(), "Squad/a".to_owned()], false));
        store.now.set(10_000);
        assert_eq!(paths(&open(), &store), (vec!["own".to_owned()], true));
        let intent = routing::intent(r#"{"target_capability": "invoice", "payload": {}}"#, "").unwrap();
        let without_own = parameters(r#"{"announcements": true}"#);
        let refused = routing::choose(&intent, &table(&without_own, &store));
        assert!(matches!(refused, Err(Rejection::Error(error)) if error.code == TABLE_STALE));
    }

    #[test]
    fn announcing_again_replaces_and_takes_the_time_from_now() {
        let store = FakeStore::default();
        announce(&open(), INVOICES, &store).unwrap();
        store.now.set(9_000);
        announce(&open(), &INVOICES.replace("0.05", "7"), &store).unwrap();
        store.now.set(18_000);
        let table = table(&open(), &store);
        assert_eq!(table.live.iter().map(|route| route.cost).collect::<Vec<_>>(), [5.0, 7.0]);
    }

    #[test]
    fn what_is_old_for_a_day_is_forgotten_when_another_announcement_comes() {
        let store = FakeStore::default();
        announce(&open(), INVOICES, &store).unwrap();
        store.set("junk", b"not JSON").unwrap();
        store.now.set(10_001 + FORGOTTEN_AFTER_MILLIS);
        announce(&open(), &INVOICES.replace("Squad/a", "Squad/b"), &store).unwrap();
        assert_eq!(store.keys().unwrap(), ["invoice Squad/b"]);
    }

    #[test]
    fn routes_that_were_announced_count_only_while_announcements_are_taken() {
        let store = FakeStore::default();
        announce(&open(), INVOICES, &store).unwrap();
        assert_eq!(paths(&parameters("{}"), &store), (vec![], false));
    }

    #[test]
    fn a_capability_has_a_bounded_number_of_routes_and_others_have_room() {
        let store = FakeStore::default();
        for number in 0..MAX_ROUTES {
            announce(&open(), &INVOICES.replace("Squad/a", &format!("Squad/{number}")), &store).unwrap();
        }
        match announce(&open(), INVOICES, &store) {
            Err(Rejection::Error(error)) => {
                assert!(error.message.contains("invoice already has 100 routes"), "{error:?}")
            }
            other => panic!("{other:?}"),
        }
        announce(&open(), &INVOICES.replace("Squad/a", "Squad/7"), &store).unwrap();
        announce(&open(), &INVOICES.replace("invoice", "invoices"), &store).unwrap();
        assert_eq!(paths(&open(), &store).0.len(), MAX_ROUTES + 1);
        // Routes that expired long ago make room.
        store.now.set(u64::MAX / 2);
        announce(&open(), INVOICES, &store).unwrap();
    }

    #[test]
    fn an_announcement_needs_the_token_when_there_is_one() {
        let guarded = parameters(r#"{"announcements": true, "announce_secret": "TOKEN"}"#);
        let with = |token: &str| INVOICES.replacen('{', &format!(r#"{{"token": "{token}", "#), 1);
        assert!(announce(&guarded, &with("right"), &FakeStore::default()).is_ok());
        for wrong in [INVOICES.to_owned(), with("wrong"), with("righ"), with("")] {
            assert_eq!(violation(announce(&guarded, &wrong, &FakeStore::default())).0, "/token", "{wrong}");
        }
        let gone = parameters(r#"{"announcements": true, "announce_secret": "GONE"}"#);
        assert!(announce(&gone, &with(""), &FakeStore::default()).is_err());
    }
    /// An announcement whose policy contains a text of this length.
    fn announcement(bytes: usize) -> String {
        INVOICES.replace("true", &format!(r#""{}""#, "x".repeat(bytes)))
    }

    #[test]
    fn an_announcement_that_is_too_large_is_refused_and_not_kept() {
        let store = FakeStore::default();
        let spare = MAX_BYTES - announcement(0).len();
        for (text, is_taken) in [(announcement(spare), true), (announcement(spare + 1), false)] {
            match announce(&open(), &text, &store) {
                Ok(_) => assert!(is_taken),
                refused => assert_eq!(violation(refused), (String::new(), "must have at most 2048 bytes".to_owned())),
            }
        }
        let numbers: Vec<String> = (0..150).map(|number| format!(r#""{number}":1e15"#)).collect();
        let grows = INVOICES.replace(r#""pii": true"#, &numbers.join(","));
        assert!(grows.len() < MAX_BYTES, "{}", grows.len());
        assert_eq!(violation(announce(&open(), &grows, &store)).0, "");
        assert_eq!(store.keys().unwrap().len(), 1);
    }

    #[test]
    fn what_is_kept_and_too_large_is_no_route() {
        let store = FakeStore::default();
        let route = |bytes: usize| format!("5 {}", announcement(bytes));
        store.set("invoice Squad/a", route(MAX_BYTES).as_bytes()).unwrap();
        store.set("invoice Squad/b", route(0).as_bytes()).unwrap();
        assert_eq!(paths(&parameters(r#"{"announcements": true}"#), &store).0, ["Squad/a"]);
        assert_eq!(store.reads.get(), 2);
    }

    #[test]
    fn an_announcement_that_is_too_old_is_known_by_its_time_alone() {
        let store = FakeStore::default();
        store.set("invoice Squad/a", b"5 not JSON").unwrap();
        store.now.set(4);
        assert_eq!(paths(&parameters(r#"{"announcements": true}"#), &store), (vec![], false));
        store.now.set(5);
        assert_eq!(paths(&parameters(r#"{"announcements": true}"#), &store), (vec![], true));
    }

    #[test]
    fn no_more_routes_are_looked_at_than_a_capability_may_have() {
        let store = FakeStore::default();
        for number in 0..2 * MAX_ROUTES {
            store.set(&format!("invoice Squad/{number}"), format!("5 {INVOICES}").as_bytes()).unwrap();
        }
        assert_eq!(paths(&open(), &store).0.len(), MAX_ROUTES + 1);
        assert_eq!(store.reads.get(), MAX_ROUTES);
    }
}
