//! Instances are limited, and each one is as good as new.

use std::sync::Mutex;
use std::time::Duration;

use annex_runtime::{Fault, Runtime, RuntimeConfig};

use crate::support::{RESPONSE_KEY, Turn, config, installation, kept, respond, test_extension};

/// A runtime with one instance.
fn narrow(instance_timeout: Duration) -> Runtime {
    Runtime::new(&RuntimeConfig { instances: 1, instance_timeout, ..config() }).expect("the runtime starts")
}

#[tokio::test]
async fn a_turn_that_finds_no_instance_is_refused_and_the_next_one_is_served() {
    let extensions = [test_extension(&narrow(Duration::from_millis(20)), installation()).await];
    let turn = Turn::with("{}");
    let first = turn.chain(&extensions).await;
    let fault = turn.fault(&extensions).await;
    assert!(matches!(&fault, Fault::Overloaded { uri } if uri == extensions[0].uri()), "{fault:?}");
    drop(first);
    turn.chain(&extensions).await;
}

#[tokio::test]
async fn a_turn_waits_until_another_turn_frees_its_instance() {
    let extensions = [test_extension(&narrow(Duration::from_secs(30)), installation()).await];
    let turn = Turn::with("{}");
    let first = turn.chain(&extensions).await;
    // The second turn is polled first, so it has to wait.
    tokio::join!(biased; turn.chain(&extensions), async { drop(first) });
}

#[tokio::test]
async fn an_instance_goes_to_a_tenant_that_waits_before_many_turns_of_another() {
    let narrow = narrow(Duration::from_secs(30));
    let loud = [test_extension(&narrow.of_tenant("loud"), installation()).await];
    let quiet = [test_extension(&narrow.of_tenant("quiet"), installation()).await];
    let turn = Turn::with("{}");
    let first = turn.chain(&loud).await;
    let order = Mutex::new(Vec::new());
    let noted = async |name, extensions| {
        let chain = turn.chain(extensions).await;
        order.lock().expect("no panic").push(name);
        drop(chain);
    };
    let of_loud = || noted("loud", &loud);
    // Turns of the loud tenant are polled first, so they wait before the quiet one arrives.
    tokio::join!(biased; of_loud(), of_loud(), of_loud(), of_loud(), noted("quiet", &quiet), async { drop(first) });
    let order = order.into_inner().expect("no panic");
    assert_eq!(order.iter().position(|name| *name == "quiet"), Some(1), "{order:?}");
    assert_eq!(order.len(), 5);
}

#[tokio::test]
async fn a_turn_that_fails_gives_its_instance_back() {
    let extensions = [test_extension(&narrow(Duration::from_millis(20)), installation()).await];
    for command in ["\"trap\"", "\"loop\"", "\"memory-bomb\"", "\"violation\"", "\"reject\""] {
        Turn::commanding(command).refusal(&extensions).await;
        Turn::with("{}").chain(&extensions).await;
    }
}

/// The test extension keeps a request's commands in its memory. Both turns get the same slot of the pool, or the same
/// instance.
#[tokio::test]
async fn nothing_that_one_turn_left_in_memory_is_there_in_the_next() {
    for (installation, kept_turns) in [(installation(), 0), (kept(installation()), 1)] {
        let extensions = [test_extension(&narrow(Duration::from_millis(20)), installation).await];
        let mut told = Turn::commanding(r#"{"respond": "none"}"#).chain(&extensions).await;
        assert!(respond(&mut told).await.expect("no fault").metadata.is_empty());
        drop(told);
        let mut untold = Turn::with("{}").chain(&extensions).await;
        let artifact = respond(&mut untold).await.expect("no fault");
        assert_eq!(artifact.metadata.get(RESPONSE_KEY).map(|value| value.get()), Some("\"artifact\""));
        assert_eq!(extensions[0].metrics().kept_turns, kept_turns);
    }
}
