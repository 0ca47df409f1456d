//! Memory of the process: what attacks took is there again after them.

use std::env;
use std::fs;
use std::process::Command;

use super::attack::Attack;
use super::{Arena, HAND_MADE};

/// The environment variable of the process that runs only this test.
const ALONE: &str = "ANNEX_TEST_ALONE";
const NAME: &str = "hostile::memory::memory_is_back_where_it_was_after_attacks_on_it";

/// Kibibytes of permanent growth that are tolerated, for allocators and warm places of the pool.
const TOLERANCE: usize = 16 << 10;
const ROUNDS: usize = 10;

/// Other tests of the same process need memory too, so this one starts itself again, alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_back_where_it_was_after_attacks_on_it() {
    if env::var_os(ALONE).is_some() {
        return attack_over_and_over().await;
    }
    let mut alone = Command::new(env::current_exe().expect("this test"));
    alone.args([NAME, "--exact", "--nocapture"]).env(ALONE, "yes");
    let output = tokio::task::spawn_blocking(move || alone.output()).await.expect("no panic").expect("a process");
    let told = String::from_utf8_lossy(&output.stdout);
    println!("{}", told.lines().filter(|line| line.contains("KiB")).collect::<Vec<_>>().join("\n"));
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("1 passed"), "{told}");
}

async fn attack_over_and_over() {
    let arena = Arena::open(1).await;
    for _ in 0..ROUNDS {
        round(&arena).await;
    }
    let before = resident();
    for _ in 0..ROUNDS {
        round(&arena).await;
    }
    let after = resident();
    println!("resident: {before} KiB after {ROUNDS} rounds, {after} KiB after {}", 2 * ROUNDS);
    assert!(after < before + TOLERANCE, "{before} KiB became {after} KiB");
}

/// Sends all attacks that use memory, in guests or in the host. No attack leaves a task.
async fn round(arena: &Arena) {
    let commands = [
        "memory-bomb",
        "stack-overflow",
        "log-flood 1000000",
        "big-result 1000000",
        "big-result 2000000",
        "deep-json 400000",
        "costly-schema",
    ];
    let grants = [r#"{"fields": 40000}"#, r#"{"random": 65537}"#, r#"{"flood": 10000000}"#];
    let attacks = commands.map(Attack::by_state).into_iter().chain(grants.map(Attack::with_grants));
    let by_hand = HAND_MADE.map(|(uri, _)| Attack::by_hand(uri, uri));
    for attack in attacks.chain(by_hand) {
        attack.run(&arena.server).await;
    }
}

/// Resident memory of this process in KiB.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the resident size");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}
