//! Measures attacks on a real server: the CPU time and memory of the server and its children, the delay of neighbours
//! during the attack, and the memory that remains a minute later.
//!
//! `cargo bench -p annex-cli --bench hostile` prints a row per attack and fails if an attack exceeds its bounds. Names
//! on the command line select attacks; `ANNEX` names another executable to measure. `ANNEX_REST` is the pause in
//! seconds before the last measurement of memory (60).

#![expect(clippy::print_stdout, reason = "the table is what it is for")]

mod attacks;
mod decisions;
mod http;
mod neighbour;
mod peer;
mod process;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::attacks::{ATTACKS, Attack};
use crate::neighbour::Neighbour;
use crate::process::Server;

/// The most that an attack may add to a neighbour's wait.
const MAX_WAIT: Duration = Duration::from_millis(100);
/// The most CPU time that the server may use beyond [`Attack::allowed`].
const MAX_CPU: Duration = Duration::from_secs(1);
/// The most memory, in MiB, that an attack may add to the server at its peak. Half of it may remain at the end.
const MAX_GUESTS: u64 = 256;
/// The longest time that the server may take to stop.
const MAX_STOP: Duration = Duration::from_secs(12);
/// The time for which a neighbour is watched before the attack begins.
const ALONE: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let chosen = ATTACKS.iter().filter(|attack| wanted.is_empty() || wanted.iter().any(|name| name == attack.name));
    println!(
        "{:<26} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "attack", "took s", "cpu s", "may s", "livez", "turn", "peak MiB", "child", "left", "stop s"
    );
    let mut measured = 0;
    let mut broken = Vec::new();
    for attack in chosen {
        let row = measure(attack)?;
        row.print(attack);
        broken.extend(row.beyond(attack).into_iter().map(|reason| format!("{}: {reason}", attack.name)));
        measured += 1;
    }
    if !broken.is_empty() {
        bail!("beyond their bounds:\n  {}", broken.join("\n  "));
    }
    println!("{measured} passed, 0 failed");
    Ok(())
}

struct Row {
    took: Duration,
    cpu: Duration,
    livez: Wait,
    turn: Wait,
    peak: u64,
    child: u64,
    before: u64,
    left: u64,
    stop: Duration,
}

/// A neighbour's longest wait: while it was alone with the server, and during the attack.
struct Wait {
    alone: Duration,
    meanwhile: Duration,
}

impl Wait {
    fn more(&self) -> Duration {
        self.meanwhile.saturating_sub(self.alone)
    }
}

fn measure(attack: &Attack) -> Result<Row> {
    let server = Server::start()?;
    let neighbour = Neighbour::start(&server.address);
    std::thread::sleep(ALONE);
    let alone = neighbour.longest();
    let before = server.sample();
    let began = Instant::now();
    (attack.run)(&server)?;
    // What was given up may still run.
    std::thread::sleep(Duration::from_secs(3));
    let took = began.elapsed();
    let after = server.sample();
    let meanwhile = neighbour.longest();
    neighbour.stop()?;
    let peak = server.peak();
    std::thread::sleep(Duration::from_secs(rest()));
    let left = server.sample().memory;
    let stop = server.stop()?;
    let wait =
        |select: fn(&neighbour::Waits) -> Duration| Wait { alone: select(&alone), meanwhile: select(&meanwhile) };
    Ok(Row {
        took,
        cpu: after.cpu.saturating_sub(before.cpu),
        livez: wait(|waits| waits.livez),
        turn: wait(|waits| waits.turn),
        peak: peak.server,
        child: peak.child,
        before: before.memory,
        left,
        stop,
    })
}

fn rest() -> u64 {
    std::env::var("ANNEX_REST").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(60)
}

impl Row {
    fn print(&self, attack: &Attack) {
        println!(
            "{:<26} {:>8.1} {:>8.2} {:>8.2} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8.1}",
            attack.name,
            self.took.as_secs_f64(),
            self.cpu.as_secs_f64(),
            attack.allowed.as_secs_f64(),
            self.livez.more().as_millis(),
            self.turn.more().as_millis(),
            self.peak.saturating_sub(self.before),
            self.child,
            self.left.saturating_sub(self.before),
            self.stop.as_secs_f64(),
        );
    }

    fn beyond(&self, attack: &Attack) -> Vec<String> {
        let most = attack.allowed + MAX_CPU;
        let checks = [
            (self.cpu > most, format!("{:?} of CPU, {most:?} at most", self.cpu)),
            (self.livez.more() > MAX_WAIT, format!("/livez waited {:?} more", self.livez.more())),
            (self.turn.more() > MAX_WAIT, format!("a neighbour's turn waited {:?} more", self.turn.more())),
            (self.peak.saturating_sub(self.before) > MAX_GUESTS, format!("{} MiB at the peak", self.peak)),
            (self.left.saturating_sub(self.before) > MAX_GUESTS / 2, format!("{} MiB are left", self.left)),
            (self.stop > MAX_STOP, format!("{:?} to stop", self.stop)),
        ];
        checks.into_iter().filter(|(is_beyond, _)| *is_beyond).map(|(_, reason)| reason).collect()
    }
}
