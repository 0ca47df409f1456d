//! `annex bench`

use std::path::PathBuf;
use std::time::Duration;

use annex_authoring::{Cost, Measurement, Project, cases_in};
use annex_server::ExtensionConfig;
use anyhow::Context;
use clap::Args;
use serde_json::json;

use crate::{component, output, progress, serve};

/// Measure the cost of a turn
///
/// The turns of one case run one after the other, without a server. With a second component the turns alternate between
/// the components, so that a busy machine disturbs both.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  annex bench\n  annex bench --against old.wasm --turns 5000\n\nThe count of instructions is the same in each \
                        run, the times depend on this machine."
)]
pub(crate) struct Bench {
    /// The case; default: the first of cases/*.toml
    case: Option<PathBuf>,
    /// The folder of the project
    #[arg(long, value_name = "DIR", default_value = ".")]
    project: PathBuf,
    /// Compare with this component
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Turns to measure
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    turns: u32,
    /// Do not count instructions, for which the component is compiled once more
    #[arg(long)]
    no_instructions: bool,
    /// Print the numbers as JSON
    #[arg(long)]
    json: bool,
}

impl Bench {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let project = Project::open(&self.project)?;
        let own = component::of_project(&project)?;
        let other = self.against.as_deref().map(component::read).transpose()?;
        let case = match &self.case {
            Some(case) => case.clone(),
            None => first(&project)?,
        };
        let read = |text: &str| ExtensionConfig::read_installation(text, &project.folder);
        let components: Vec<&[u8]> = [Some(&own), other.as_ref()].into_iter().flatten().map(Vec::as_slice).collect();
        let turns = usize::try_from(self.turns).unwrap_or(usize::MAX);
        let measurement = Measurement {
            turns,
            instructions: !self.no_instructions,
            settings: &project.manifest.settings,
            read: &read,
            cache: serve::cache(),
        };
        let progress = progress::of_compiling();
        let costs = Cost::of(&components, &case, &measurement).await;
        drop(progress);
        let costs = costs.with_context(|| case.display().to_string())?;
        if self.json {
            let costs: Vec<_> = costs.iter().map(in_json).collect();
            return output::json(
                &json!({ "case": case.display().to_string(), "turns": turns, "components": costs }).to_string(),
            );
        }
        let mut text = format!("{}, {turns} turns\n", case.display());
        costs.iter().for_each(|cost| text.push_str(&shown(cost)));
        if let [own, other] = costs.as_slice() {
            text.push_str(&compared(own, other));
        }
        output::show(&text)
    }
}

fn first(project: &Project) -> anyhow::Result<PathBuf> {
    let folder = project.path("cases");
    let cases = cases_in(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    cases.into_iter().next().with_context(|| format!("{} has no case", folder.display()))
}

fn shown(cost: &Cost) -> String {
    let limits = &cost.limits;
    let per_second = 1.0 / mean(&cost.turns).as_secs_f64();
    let mut text = format!("\n{}, {per_second:.0} turns per second\n", cost.digest);
    text.push_str(&format!("{:13}{:>9}{:>9}{:>9}{:>9}  limit\n", "µs", "p50", "p95", "p99", "max"));
    let rows = cost.hooks.iter().map(|(hook, times)| (hook.name(), times, limits.cpu));
    for (name, times, limit) in [("turn", &cost.turns, limits.turn_cpu)].into_iter().chain(rows) {
        let [p50, p95, p99, max] = [0.5, 0.95, 0.99, 1.0].map(|part| micros(percentile(times, part)));
        text.push_str(&format!("{name:13}{p50:>9.0}{p95:>9.0}{p99:>9.0}{max:>9.0}  {} ms of CPU\n", limit.as_millis()));
    }
    text.push_str(&format!("{:13}{:>9} KiB{:>25}{} KiB\n", "memory", cost.memory >> 10, "", limits.memory >> 10));
    text.push_str(&format!("{:13}{:>9}{:>29}{}\n", "host calls", cost.host_calls, "", limits.host_calls));
    if let Some(instructions) = cost.instructions {
        text.push_str(&format!("{:13}{instructions:>9}\n", "instructions"));
    }
    text
}

/// Writes each cost of the first component as a fraction of the same cost of the second component.
fn compared(own: &Cost, other: &Cost) -> String {
    let time = micros(percentile(&own.turns, 0.5)) / micros(percentile(&other.turns, 0.5)).max(f64::MIN_POSITIVE);
    let mut text = format!("\nThe first by the second: {time:.2} of the time of a turn");
    if let (Some(own), Some(other)) = (own.instructions, other.instructions) {
        text.push_str(&format!(", {:.3} of the instructions", own as f64 / (other as f64).max(1.0)));
    }
    text + "\n"
}

fn in_json(cost: &Cost) -> serde_json::Value {
    let times = |times: &[Duration]| {
        json!({
            "p50_us": micros(percentile(times, 0.5)),
            "p95_us": micros(percentile(times, 0.95)),
            "p99_us": micros(percentile(times, 0.99)),
            "max_us": micros(percentile(times, 1.0)),
        })
    };
    let hooks: serde_json::Map<_, _> =
        cost.hooks.iter().map(|(hook, all)| (hook.name().to_owned(), times(all))).collect();
    json!({
        "digest": cost.digest.to_string(),
        "turn": times(&cost.turns),
        "turns_per_second": 1.0 / mean(&cost.turns).as_secs_f64(),
        "hooks": hooks,
        "memory_bytes": cost.memory,
        "host_calls": cost.host_calls,
        "instructions": cost.instructions,
    })
}

fn mean(times: &[Duration]) -> Duration {
    let count = u32::try_from(times.len()).unwrap_or(u32::MAX).max(1);
    times.iter().sum::<Duration>() / count
}

/// The percentile of `times` that `part` selects: 0.5 selects the median, and 1.0 the maximum. `times` must be in
/// ascending order.
fn percentile(times: &[Duration], part: f64) -> Duration {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a length, from 0 to that length"
    )]
    let place = (times.len() as f64 * part).ceil() as usize;
    times.get(place.saturating_sub(1)).copied().unwrap_or_default()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::percentile;

    #[test]
    fn a_percentile_is_a_time_that_was_measured() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_micros).collect();
        let found = [0.0, 0.5, 0.95, 0.99, 1.0].map(|part| percentile(&times, part).as_micros());
        assert_eq!(found, [1, 50, 95, 99, 100]);
        assert_eq!(percentile(&[], 0.5), Duration::ZERO);
    }
}
