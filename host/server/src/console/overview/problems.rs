//! The list of problems on the overview.

use std::time::Duration;

use annex_operations::request_handler::RequestHandler;

use crate::console::operator::ConsoleState;
use crate::console::shown::line;
use crate::installation::installer::Installer;
use crate::process::readiness_gate::Phase;

/// The maximum number of lines on the page.
const MAX_LINES: usize = 100;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The lines of the list. It has at most [`MAX_LINES`].
#[derive(Default)]
pub(super) struct Problems {
    pub(super) lines: Vec<String>,
    /// The number of lines for which there was no room.
    pub(super) left_out: usize,
}

/// Finds the problems of the server, its own agent and the loaded tenants. It calls no store and no peer.
pub(super) fn find(console: &ConsoleState, stores_answer: bool) -> Problems {
    let mut problems = Problems::default();
    let phase = console.gate.phase();
    if phase != Phase::Ready {
        problems.add(&format!("The server is {phase} and takes no message."));
    }
    if !stores_answer {
        problems.add("The store of tasks and sessions does not answer. The server's log has the reason.");
    }
    for (listener, tls) in console.gate.tls.named() {
        if let Some(left) = tls.near_end() {
            let days = left.as_secs() / DAY.as_secs();
            problems.add(&format!("The certificate of [{listener}.tls] ends in {days} days. Renew it."));
        }
    }
    let installers = &console.admin.installers;
    if let Some(app) = console.gate.loaded() {
        problems.add_agent("", app.tenants().own(), installers.own());
    }
    for (name, failure) in installers.failing() {
        problems.add(&format!("Tenant {name} is not served, and is tried again: {}", failure.reason));
    }
    for (name, serving) in installers.tenants_served() {
        problems.add_agent(&format!("Tenant {name}: "), &serving.handler, &serving.installer);
    }
    problems
}

impl Problems {
    fn add(&mut self, problem: &str) {
        if self.lines.len() < MAX_LINES {
            self.lines.push(line(problem));
        } else {
            self.left_out += 1;
        }
    }

    /// Adds the problems of one agent. Each line begins with `of`.
    fn add_agent(&mut self, of: &str, handler: &RequestHandler, installer: &Installer) {
        if let Some(reason) = installer.bar() {
            self.add(&format!("{of}Requests are refused: {reason}."));
        }
        if handler.agent.is_reached() == Some(false) {
            self.add(&format!("{of}The upstream agent did not answer the last request."));
        }
        let (running, most) = (handler.turn_limiter.running(), handler.turn_limiter.bounds().in_all);
        if running >= most {
            self.add(&format!("{of}All {most} turns that may run at once are running."));
        }
        if handler.used.as_ref().is_some_and(|used| used.owes_cpu()) {
            self.add(&format!(
                "{of}The quota of CPU time is used up. Requests are refused until the debt is paid back."
            ));
        }
        for failure in installer.failures() {
            self.add(&format!("{of}{} is not installed: {}", failure.source, failure.reason));
        }
        for version in installer.versions() {
            let (uri, health) = (version.uri(), version.extension.health());
            if let Some(reason) = health.revoked {
                self.add(&format!("{of}Extension {uri} is out of service: {reason}"));
            } else if let Some(left) = health.quarantined {
                let (failures, seconds) = (health.failures_in_a_row, left.as_secs());
                let next = format!("the next trial is in {seconds} s");
                self.add(&format!("{of}Extension {uri} is quarantined after {failures} failures in a row; {next}."));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_LINES, Problems};

    #[test]
    fn the_list_is_bounded_and_has_no_character_that_steers_the_text() {
        let mut problems = Problems::default();
        for _ in 0..=MAX_LINES {
            problems.add(&format!("\u{202e}\u{1b}[31m{}", "x".repeat(1 << 20)));
        }
        assert_eq!((problems.lines.len(), problems.left_out), (MAX_LINES, 1));
        for line in &problems.lines {
            assert!(line.len() < 400 && line.starts_with("\\u{202e}\\u{1b}[31m"), "{line}");
        }
    }
}
