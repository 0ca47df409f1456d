//! `annex replay`

use std::path::{Path, PathBuf};

use annex_authoring::{NewCase, NewCases, Recording, Runner, recorded_settings};
use annex_files::Purpose;
use annex_runtime::{Comparison, Difference, Example, RecordingHead};
use annex_server::ExtensionConfig;
use anyhow::{Context, anyhow};
use clap::Args;
use toml::Table;

use crate::exit::Failure;
use crate::{component, output, progress, serve};

/// The maximum size of a file with settings, in bytes.
const MAX_SETTINGS_BYTES: usize = 1 << 20;
/// If a recorded value differs from the new value, at most this many bytes of each are shown.
const MAX_SIDE: usize = 400;

/// Replay recorded turns with another version of the extension, and show the differences
///
/// The component runs in the host's own chain with the settings of the recording, without a server. A replay has no
/// effects: answers to HTTP requests, keys, lists of tasks, the time and random numbers come from the recording, and
/// placeholders replace the secrets.
#[derive(Args)]
#[command(after_help = "Examples:\n  annex replay turns.jsonl my-extension.wasm\n  annex replay turns.jsonl \
                        my-extension.wasm --to-cases cases\n\n`annex record` makes the file. The exit code is 5 when \
                        a turn differs.")]
pub(crate) struct Replay {
    /// The recording, a file of `annex record`
    file: PathBuf,
    /// The component file of the other version
    component: PathBuf,
    /// Replace the settings of the recording by this TOML file: the keys of `[[extension]]` without `component`
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
    /// Write each turn into this folder as a case that expects this component's results
    #[arg(long, value_name = "DIR")]
    to_cases: Option<PathBuf>,
}

impl Replay {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let mut recording = Recording::open(&self.file)?;
        let component = component::read(&self.component)?;
        let settings = self.settings(&recording.head)?;
        let folder = self.settings.as_deref().unwrap_or(&self.file).parent().unwrap_or(Path::new(""));
        let read = |text: &str| ExtensionConfig::read_installation(text, folder);
        let runner = Runner::new(&component, &settings, &read, serve::cache())?;
        let _progress = progress::of_compiling();
        let mut replay = annex_authoring::Replay::load(&runner, &recording.head)
            .await
            .with_context(|| self.component.display().to_string())?;
        let mut cases = self.to_cases.as_deref().map(NewCases::in_folder).transpose()?;
        while let Some(turn) = recording.next_turn()? {
            replay.play(&turn).await?;
            if let Some(cases) = &mut cases {
                let number = replay.comparison.turns;
                tell(number, &cases.add(number, &turn, &recording.head, &runner).await?);
            }
        }
        if recording.end.is_none() {
            output::note("the recording has no end: it was stopped, or broken off");
        }
        let written = cases.map(NewCases::finish).transpose()?;
        if self.json {
            output::json(&serde_json::to_string(&replay.comparison)?)?;
        } else {
            output::show(&shown(&recording.head, &replay))?;
        }
        if let (Some(written), Some(folder)) = (written, &self.to_cases) {
            output::note(&format!("{written} cases in {}", folder.display()));
        }
        let Comparison { turns, agreed, .. } = replay.comparison;
        if agreed < turns {
            return Err(Failure::Different.error(format!("{} of {turns} turns differ", turns - agreed)));
        }
        Ok(())
    }

    /// Returns the settings for the component: from the file of `--settings`, or without that option from the
    /// recording.
    fn settings(&self, head: &RecordingHead) -> anyhow::Result<Table> {
        let Some(file) = &self.settings else {
            return recorded_settings(head).map_err(|reason| anyhow!("{}: settings: {reason}", self.file.display()));
        };
        let text = annex_files::read_text(file, Purpose::Named, MAX_SETTINGS_BYTES);
        let text = text.with_context(|| format!("cannot read {}", file.display()))?;
        toml::from_str(&text).map_err(|error| anyhow!("{}: {}", file.display(), error.to_string().trim_end()))
    }
}

/// Prints the remarks about a new case. If the case is incomplete or was not written, prints the reason instead.
fn tell(number: u64, case: &NewCase) {
    match case {
        NewCase::Passes { name, remarks } => {
            remarks.iter().for_each(|remark| output::note(&format!("{name}: {remark}")));
        }
        NewCase::Fails { name, fault } => {
            output::note(&format!("{name} expects nothing yet, because the component fails in it: {fault}"));
        }
        NewCase::LeftOut { reason } => output::note(&format!("turn {number} is no case: {reason}")),
    }
}

fn shown(head: &RecordingHead, replay: &annex_authoring::Replay) -> String {
    let line = |text: &str| annex_text::line(text).into_owned();
    let Comparison { turns, agreed, failed, unanswered, differ, examples, .. } = &replay.comparison;
    let Comparison { differ_hidden, not_compared, .. } = &replay.comparison;
    let mut text =
        format!("recorded  {} {}, {}\n", line(&head.name), line(&head.component_version), line(&head.digest));
    text.push_str(&format!("played    {}\n\n", replay.extension().digest()));
    text.push_str(&format!(
        "turns {turns}, agreed {agreed}, failed {failed}, with unanswered questions {unanswered}\n"
    ));
    if !differ.is_empty() {
        let kinds: Vec<String> = differ.iter().map(|(kind, turns)| format!("{} {turns}", line(kind))).collect();
        text.push_str(&format!("turns that differ, by kind: {}\n", kinds.join(", ")));
    }
    if *differ_hidden > 0 {
        text.push_str(&format!(
            "{differ_hidden} of them may differ because the recording hides something that the extension was given\n"
        ));
    }
    if *not_compared > 0 {
        text.push_str(&format!("values that the recording hides, which were not compared: {not_compared}\n"));
    }
    examples.iter().for_each(|example| text.push_str(&shown_example(example)));
    if !replay.questions.is_empty() {
        text.push_str("\nasked, and not in the recording\n");
        for (question, turns) in &replay.questions {
            text.push_str(&format!("  in {turns} of {} turns: {}\n", replay.comparison.turns, line(question)));
        }
    }
    text.push_str(&costs(&replay.comparison));
    text
}

fn shown_example(example: &Example) -> String {
    let context = example.context_id.as_ref().map_or(String::new(), |id| format!(", conversation {id}"));
    let hidden = if example.hidden { ", in which something is hidden" } else { "" };
    let mut text = format!("\n{}{}{hidden}\n", example.at, annex_text::line(&context));
    for Difference { what, place, was, is } in &example.differences {
        let place = place.as_ref().map_or(String::new(), |place| format!("{place}: "));
        text.push_str(&format!("  {}{}\n", annex_text::line(&place), annex_text::line(what)));
        text.push_str(&format!("    was  {}\n", annex_text::line_within(was, MAX_SIDE)));
        text.push_str(&format!("    is   {}\n", annex_text::line_within(is, MAX_SIDE)));
    }
    text
}

/// Writes a table with the mean time per call of each hook, in the recording and in the replay.
fn costs(comparison: &Comparison) -> String {
    if comparison.costs.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{:13}{:>10}{:>10}\n", "µs per call", "recorded", "now");
    for (hook, cost) in &comparison.costs {
        let hook = annex_text::line(hook);
        let [before, now] = [(cost.micros_before, cost.calls_before), (cost.micros, cost.calls)].map(mean);
        text.push_str(&format!("{hook:13}{before:>10}{now:>10}\n"));
    }
    text + "The recorded times may be those of another machine.\n"
}

fn mean((micros, calls): (u64, u64)) -> String {
    if calls == 0 { "-".to_owned() } else { format!("{:.0}", micros as f64 / calls as f64) }
}
