//! `annex test`

use std::path::{Path, PathBuf};
use std::time::Duration;

use annex_authoring::{CaseRun, Project, Runner, Verdict, cases_in};
use annex_server::ExtensionConfig;
use anyhow::{Context, ensure};
use clap::Args;
use serde_json::json;
use similar::TextDiff;

use crate::color::Tint;
use crate::exit::Failure;
use crate::{component, notes, output, progress, serve};

/// Run the cases of a project against its component
///
/// A case is a turn, a call of a method or a call of a client. Cases run in the host's own chain with the limits of the
/// project's settings, without a server.
#[derive(Args)]
#[command(after_help = "Examples:\n  annex test\n  annex test cases/refused.toml --update\n  annex test --junit \
                        report.xml\n\nThe last line is `N passed, N failed`. The exit code is 5 when a case failed.")]
pub(crate) struct Test {
    /// Files of cases; default: all of cases/*.toml
    cases: Vec<PathBuf>,
    /// The folder of the project
    #[arg(long, value_name = "DIR", default_value = ".")]
    project: PathBuf,
    /// Update the expected results in the case files
    #[arg(long)]
    update: bool,
    /// Write a JUnit XML report for CI systems to this file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

impl Test {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let project = Project::open(&self.project)?;
        let component = component::of_project(&project)?;
        let cases = self.cases(&project.path("cases"))?;
        let read = |text: &str| ExtensionConfig::read_installation(text, &project.folder);
        let runner = Runner::new(&component, &project.manifest.settings, &read, serve::cache())?;
        let progress = progress::of_compiling();
        let mut runs = Vec::new();
        for case in &cases {
            let run = runner.run(case, self.update).await;
            if !self.json {
                output::write(&line(&run))?;
            }
            runs.push(run);
        }
        drop(progress);
        if let Some(uri) = runner.uri() {
            notes::on_uri(uri.as_str());
        }
        self.report(&project.manifest.name, &runs)
    }

    fn cases(&self, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        if let Some(missing) = self.cases.iter().find(|case| !case.exists()) {
            return Err(Failure::Usage.error(format!("there is no case {}", missing.display())));
        }
        if !self.cases.is_empty() {
            return Ok(self.cases.clone());
        }
        let cases = cases_in(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        ensure!(!cases.is_empty(), "{} has no case; a case is a file `NAME.toml` in it", folder.display());
        Ok(cases)
    }

    fn report(&self, project: &str, runs: &[CaseRun]) -> anyhow::Result<()> {
        let failed = runs.iter().filter(|run| has_failed(run)).count();
        let passed = runs.len() - failed;
        if let Some(file) = &self.junit {
            annex_files::replace(file, junit(project, runs).as_bytes(), 0o644)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        if self.json {
            let cases: Vec<_> = runs.iter().map(in_json).collect();
            output::json(&json!({ "passed": passed, "failed": failed, "cases": cases }).to_string())?;
        } else {
            output::write(&format!("{passed} passed, {failed} failed\n"))?;
        }
        if failed > 0 {
            return Err(Failure::Different.error("a case failed"));
        }
        Ok(())
    }
}

fn has_failed(run: &CaseRun) -> bool {
    matches!(run.verdict, Verdict::Different { .. } | Verdict::Broken(_))
}

fn line(run: &CaseRun) -> String {
    let name = run.path.display().to_string();
    let name = annex_text::line(&name);
    let took = millis(run.took);
    let (tint, verdict) = match &run.verdict {
        Verdict::Passed => (Tint::Good, "ok"),
        Verdict::Updated => (Tint::Warning, "updated"),
        Verdict::Different { .. } | Verdict::Broken(_) => (Tint::Bad, "FAILED"),
    };
    let text = match &run.verdict {
        Verdict::Passed => format!("{verdict:7} {name} ({took} ms)\n"),
        Verdict::Updated => format!("{verdict:7} {name}\n"),
        failed => format!("{verdict:7} {name}\n{}\n", indented(&reason(failed))),
    };
    // The words of the extension steer no terminal, and are broken before colours are added.
    let text = output::hanging(&annex_text::block(&text), INDENT);
    format!("{}{}", tint.on_standard_output(verdict), text.strip_prefix(verdict).unwrap_or_default())
}

/// The reason why a case failed; empty if the case passed or was updated.
fn reason(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Passed | Verdict::Updated => String::new(),
        Verdict::Broken(error) => annex_text::with_causes(error),
        Verdict::Different { expected, found, words } => format!("{}{words}", difference(expected, found)),
    }
}

/// The indent, in columns, of the continuation of a line that was broken.
const INDENT: usize = 2;

/// The time limit for finding the shortest difference. When the time is over, a longer difference is shown.
const DIFF_TIME: Duration = Duration::from_secs(2);

/// The difference between two texts: lines of `expected` with `-`, lines of `found` with `+`.
fn difference(expected: &str, found: &str) -> String {
    TextDiff::configure()
        .timeout(DIFF_TIME)
        .diff_lines(expected, found)
        .unified_diff()
        .context_radius(3)
        .header("expected", "found")
        .to_string()
}

fn indented(text: &str) -> String {
    text.trim_end().lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

fn in_json(run: &CaseRun) -> serde_json::Value {
    let verdict = match run.verdict {
        Verdict::Passed => "passed",
        Verdict::Updated => "updated",
        Verdict::Different { .. } | Verdict::Broken(_) => "failed",
    };
    let reason = Some(reason(&run.verdict)).filter(|reason| !reason.is_empty());
    json!({ "case": run.path.display().to_string(), "verdict": verdict, "reason": reason, "ms": millis(run.took) })
}

/// The report in the form of JUnit, as CI systems read it.
fn junit(project: &str, runs: &[CaseRun]) -> String {
    let failed = runs.iter().filter(|run| has_failed(run)).count();
    let cases: String = runs
        .iter()
        .map(|run| {
            let name = escaped(&run.path.display().to_string());
            let seconds = run.took.as_secs_f64();
            let failure = if has_failed(run) {
                format!("<failure>{}</failure>", escaped(&reason(&run.verdict)))
            } else {
                String::new()
            };
            format!("  <testcase classname=\"{project}\" name=\"{name}\" time=\"{seconds:.3}\">{failure}</testcase>\n")
        })
        .collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{project}\" tests=\"{}\" failures=\"{failed}\">\n{cases}\
         </testsuite>\n",
        runs.len()
    )
}

/// The text escaped for XML. XML cannot represent control characters, so they are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(character),
            other if other.is_control() || matches!(other, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
