//! Tests of the tenants of a config, without servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Changes, Directory, FIRST_PAUSE, PATIENCE};
use crate::config::TenantConfig;

fn tenant(name: &str, more: &str) -> TenantConfig {
    toml::from_str(&format!("name = {name:?}\nconfig = \"{name}.toml\"\n{more}")).expect("a tenant")
}

/// A loader that fails three times for `broken`, never finishes in time for `far`, and loads all others at once. The
/// serving parts are a text with the name and the quota of turns.
fn directory(names: &[&str], tries: &Arc<AtomicUsize>) -> Arc<Directory<String>> {
    let tries = Arc::clone(tries);
    let tenants: Vec<_> = names.iter().map(|name| tenant(name, "")).collect();
    Directory::new(
        &tenants,
        Box::new(move |config, attempt| {
            let tries = Arc::clone(&tries);
            Box::pin(async move {
                match config.name.as_str() {
                    "broken" if tries.fetch_add(1, Ordering::Relaxed) >= 3 => Ok("mended".to_owned()),
                    "broken" => Err("its file is broken".to_owned()),
                    "far" => {
                        sleep_until(attempt.until.expect("a time")).await;
                        Err("its agent cannot be reached".to_owned())
                    }
                    _ => Ok(format!("{} {:?}", config.name, config.quota.turns)),
                }
            })
        }),
    )
}

#[tokio::test(start_paused = true)]
async fn tenants_that_fail_keep_no_other_waiting_for_long_and_are_tried_again() {
    let tries = Arc::new(AtomicUsize::new(0));
    let directory = directory(&["broken", "far", "fine"], &tries);
    let told = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&told);
    let began = Instant::now();
    assert_eq!(directory.load_missing().await.len(), 3);
    assert!(began.elapsed() < PATIENCE + FIRST_PAUSE, "{:?}", began.elapsed());
    directory.tell_of_loaded(Box::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    assert_eq!(directory.serving(), [("fine".to_owned(), "fine None".to_owned())]);
    let reasons: Vec<_> = directory.failing().into_iter().map(|(name, failure)| (name, failure.reason)).collect();
    let failing = [("broken", "its file is broken"), ("far", "its agent cannot be reached")];
    assert_eq!(reasons, failing.map(|(name, reason)| (name.to_owned(), reason.to_owned())));
    assert!(directory.find("none").is_none() && directory.find("far").is_some_and(|found| found.is_err()));

    let stop = CancellationToken::new();
    let trying = tokio::spawn(Arc::clone(&directory).keep_trying(stop.clone()));
    while directory.find("broken").is_some_and(|found| found.is_err()) {
        tokio::time::sleep(FIRST_PAUSE).await;
    }
    assert_eq!((told.load(Ordering::Relaxed), tries.load(Ordering::Relaxed)), (2, 4));
    assert!(!trying.is_finished(), "one is still to be reached");
    stop.cancel();
    trying.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn no_number_of_tenants_whose_agents_are_silent_keeps_one_behind_them_from_its_time() {
    let names: Vec<String> = (0..40).map(|number| format!("{number}")).chain(["z".to_owned()]).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let tenants: Vec<_> = names.iter().map(|name| tenant(name, "")).collect();
    let load: super::Load<String> = Box::new(|config, attempt| {
        Box::pin(async move {
            let until = attempt.until.expect("a time");
            if config.name != "z" {
                sleep_until(until).await;
                return Err("its agent is silent".to_owned());
            }
            // The agent takes half of the allowed time.
            match tokio::time::timeout_at(until, tokio::time::sleep(PATIENCE / 2)).await {
                Ok(()) => Ok("served".to_owned()),
                Err(_) => Err("it was not there in time".to_owned()),
            }
        })
    });
    let directory = Directory::new(&tenants, load);
    directory.load_missing().await;
    assert_eq!(directory.serving(), [("z".to_owned(), "served".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn tenants_are_added_changed_and_removed_and_the_others_stay_as_they_are() {
    let directory = directory(&["gone", "same", "other"], &Arc::default());
    directory.load_missing().await;
    let stop = CancellationToken::new();
    tokio::spawn(Arc::clone(&directory).keep_trying(stop.clone()));
    let same = tenant("same", "");
    let other = tenant("other", "callers = [\"ada\"]\nquota.turns = 7");
    let broken = tenant("broken", "");
    let Changes { removed, changed } = directory.set(&[same, other, broken]);
    assert_eq!(removed, [("gone".to_owned(), "gone None".to_owned())]);
    assert_eq!(changed, ["other"]);
    assert!(directory.find("gone").is_none() && !directory.has("gone"));
    let found = |name| directory.find(name).and_then(Result::ok);
    assert_eq!(found("other").as_deref(), Some("other None"), "served as before until it is loaded");
    let admits = |caller| directory.find_for("other", caller).is_some();
    assert!(admits("ada") && !admits("bob"), "who may call counts at once");
    assert_eq!(directory.load_again("other").await.expect("a tenant").as_deref(), Some("other None"));
    assert_eq!(found("other").as_deref(), Some("other Some(7)"));
    assert_eq!(found("same").as_deref(), Some("same None"));
    assert_eq!(directory.load_missing().await.len(), 1);
    // All other tenants are served, and the new one is still retried.
    while found("broken").is_none() {
        tokio::time::sleep(FIRST_PAUSE).await;
    }
    stop.cancel();
}
