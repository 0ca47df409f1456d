//! Tests of the tenants of a config, without servers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Changes, Directory, FIRST_PAUSE, PATIENCE, ServingParts, UnloadReason};
use crate::config::TenantConfig;

fn tenant(name: &str, more: &str) -> TenantConfig {
    toml::from_str(&format!("name = {name:?}\nconfig = \"{name}.toml\"\n{more}")).expect("a tenant")
}

/// The events of a test.
#[derive(Default)]
struct EventLog {
    /// The loads of `broken`.
    tries: AtomicUsize,
    left: Mutex<Vec<String>>,
}

/// Stands for the serving parts of a tenant. It has only the text.
#[derive(Clone)]
struct Text {
    text: String,
    log: Arc<EventLog>,
}

impl ServingParts for Text {
    fn is_in_use(&self) -> bool {
        false
    }

    fn leave(self, name: &str, why: UnloadReason) {
        self.log.left.lock().unwrap().push(format!("{name}, as {:?}: {why:?}", self.text));
    }
}

/// A loader that fails three times for `broken`, never finishes in time for `far`, and loads all others at once. The
/// serving parts are a text with the name and the quota of turns.
fn directory(names: &[&str], log: &Arc<EventLog>) -> Arc<Directory<Text>> {
    let log = Arc::clone(log);
    let tenants: Vec<_> = names.iter().map(|name| tenant(name, "")).collect();
    Directory::new(
        &tenants,
        Box::new(move |config, attempt| {
            let log = Arc::clone(&log);
            Box::pin(async move {
                let text = match config.name.as_str() {
                    "broken" if log.tries.fetch_add(1, Ordering::Relaxed) >= 3 => "mended".to_owned(),
                    "broken" => return Err("its file is broken".to_owned()),
                    "far" => {
                        sleep_until(attempt.until.expect("a time")).await;
                        return Err("its agent cannot be reached".to_owned());
                    }
                    _ => format!("{} {:?}", config.name, config.quota.turns),
                };
                Ok(Text { text, log })
            })
        }),
    )
}

/// The names of the served tenants and their texts.
fn served(directory: &Directory<Text>) -> Vec<(String, String)> {
    directory.serving().into_iter().map(|(name, serving)| (name, serving.text)).collect()
}

#[tokio::test(start_paused = true)]
async fn tenants_that_fail_keep_no_other_waiting_for_long_and_are_tried_again() {
    let log = Arc::default();
    let directory = directory(&["broken", "far", "fine"], &log);
    let told = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&told);
    let began = Instant::now();
    assert_eq!(directory.load_missing().await.len(), 3);
    assert!(began.elapsed() < PATIENCE + FIRST_PAUSE, "{:?}", began.elapsed());
    directory.tell_of_loaded(Box::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    assert_eq!(served(&directory), [("fine".to_owned(), "fine None".to_owned())]);
    let reasons: Vec<_> = directory.failing().into_iter().map(|(name, failure)| (name, failure.reason)).collect();
    let failing = [("broken", "its file is broken"), ("far", "its agent cannot be reached")];
    assert_eq!(reasons, failing.map(|(name, reason)| (name.to_owned(), reason.to_owned())));
    let find = |name| directory.find(name, None);
    assert!(find("none").is_none() && find("far").is_some_and(|found| found.is_err()));

    let stop = CancellationToken::new();
    let trying = tokio::spawn(Arc::clone(&directory).keep_trying(stop.clone()));
    while find("broken").is_some_and(|found| found.is_err()) {
        tokio::time::sleep(FIRST_PAUSE).await;
    }
    assert_eq!((told.load(Ordering::Relaxed), log.tries.load(Ordering::Relaxed)), (2, 4));
    assert!(!trying.is_finished(), "one is still to be reached");
    stop.cancel();
    trying.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn no_number_of_tenants_whose_agents_are_silent_keeps_one_behind_them_from_its_time() {
    let names: Vec<String> = (0..40).map(|number| format!("{number}")).chain(["z".to_owned()]).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let tenants: Vec<_> = names.iter().map(|name| tenant(name, "")).collect();
    let load: super::Load<Text> = Box::new(|config, attempt| {
        Box::pin(async move {
            let until = attempt.until.expect("a time");
            if config.name != "z" {
                sleep_until(until).await;
                return Err("its agent is silent".to_owned());
            }
            // The agent takes half of the allowed time.
            match tokio::time::timeout_at(until, tokio::time::sleep(PATIENCE / 2)).await {
                Ok(()) => Ok(Text { text: "served".to_owned(), log: Arc::default() }),
                Err(_) => Err("it was not there in time".to_owned()),
            }
        })
    });
    let directory = Directory::new(&tenants, load);
    directory.load_missing().await;
    assert_eq!(served(&directory), [("z".to_owned(), "served".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn tenants_are_added_changed_and_removed_and_the_others_stay_as_they_are() {
    let log = Arc::default();
    let directory = directory(&["gone", "same", "other"], &log);
    directory.load_missing().await;
    let stop = CancellationToken::new();
    tokio::spawn(Arc::clone(&directory).keep_trying(stop.clone()));
    let same = tenant("same", "");
    let other = tenant("other", "callers = [\"ada\"]\nquota.turns = 7");
    let broken = tenant("broken", "");
    let Changes { removed, changed } = directory.set(&[same, other, broken]);
    assert_eq!(removed, ["gone"]);
    assert_eq!(changed, ["other"]);
    assert!(directory.find("gone", None).is_none() && !directory.has("gone"));
    let found = |name| directory.find(name, None).and_then(Result::ok).map(|serving| serving.text);
    assert_eq!(found("other").as_deref(), Some("other None"), "served as before until it is loaded");
    let admits = |caller| directory.find("other", Some(caller)).is_some();
    assert!(admits("ada") && !admits("bob"), "who may call counts at once");
    directory.load_again("other").await.expect("a tenant");
    assert_eq!(found("other").as_deref(), Some("other Some(7)"));
    assert_eq!(found("same").as_deref(), Some("same None"));
    let left = ["gone, as \"gone None\": Removed", "other, as \"other None\": Changed"];
    assert_eq!(*log.left.lock().unwrap(), left);
    assert_eq!(directory.load_missing().await.len(), 1);
    // All other tenants are served, and the new one is still retried.
    while found("broken").is_none() {
        tokio::time::sleep(FIRST_PAUSE).await;
    }
    stop.cancel();
}
