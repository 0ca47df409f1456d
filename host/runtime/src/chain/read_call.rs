//! A read of tasks, for which the hook `reads` changes the tasks that the reader gets.

use std::sync::Arc;

use annex_protocol::{ExtensionUri, Metadata};

use crate::chain::task_to_show::{ShowDecision, TaskToShow};
use crate::chain::{Member, TurnRequest, log_left_out, log_skipped};
use crate::error::HookError;
use crate::extension::Extension;

/// The changes to stored tasks in the answer to one read.
#[derive(Debug)]
pub struct ShownTasks {
    /// For each task, the entries that its metadata has in this answer alone. `None` if the task is left out.
    pub added: Vec<Option<Metadata>>,
    /// The extensions that took part in the read.
    pub active: Vec<ExtensionUri>,
}

impl ShownTasks {
    /// `count` tasks that are shown as they are stored.
    #[must_use]
    pub fn unchanged(count: usize) -> Self {
        Self { added: vec![Some(Metadata::new()); count], active: Vec::new() }
    }

    /// The tasks that are not left out.
    fn remaining(&self, tasks: &[TaskToShow]) -> Vec<TaskToShow> {
        tasks.iter().zip(&self.added).filter(|(_, added)| added.is_some()).map(|(task, _)| task.clone()).collect()
    }

    /// Applies the decisions of an extension about the tasks that are not left out.
    fn apply(&mut self, decisions: Vec<ShowDecision>) {
        let remaining = self.added.iter_mut().filter(|added| added.is_some());
        for (added, decision) in remaining.zip(decisions) {
            match decision {
                ShowDecision::Unchanged => {}
                ShowDecision::Adds(entries) => added.get_or_insert_default().extend(entries),
                ShowDecision::LeavesOut(_) => *added = None,
            }
        }
    }
}

/// Asks each extension in order how the answer to a read of `tasks` differs from the stored tasks. All tasks are
/// arguments of one call per extension. The hook `activation` runs first, in the same instance. A task that one
/// extension leaves out is not shown to later extensions.
///
/// The hook never fails a read: if an extension fails or refuses, the reader is shown the tasks without this extension.
pub async fn show_tasks(extensions: &[Arc<Extension>], request: &TurnRequest<'_>, tasks: &[TaskToShow]) -> ShownTasks {
    let mut shown = ShownTasks::unchanged(tasks.len());
    let seen = request.seen();
    for extension in extensions {
        let remaining = shown.remaining(tasks);
        if remaining.is_empty() {
            break;
        }
        match Member::show(extension, request, &seen, &remaining).await {
            Ok(Some(decisions)) => {
                shown.active.push(extension.uri().clone());
                shown.apply(decisions);
            }
            Ok(None) => {}
            Err(HookError::Fault(fault)) => log_skipped(extension, &fault),
            Err(HookError::Refused(refusal)) => log_left_out(extension, &refusal),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use annex_protocol::Metadata;

    use super::ShownTasks;
    use crate::chain::task_to_show::{ShowDecision, TaskToShow};

    fn tasks(count: usize) -> Vec<TaskToShow> {
        let task = |number: usize| TaskToShow {
            id: format!("t-{number}").into(),
            context_id: "c".into(),
            state: annex_protocol::TaskState::Completed,
            metadata: Metadata::new(),
        };
        (0..count).map(task).collect()
    }

    fn adds(text: &str) -> ShowDecision {
        ShowDecision::Adds(Metadata::parse(text).expect("an object"))
    }

    fn text(shown: &ShownTasks) -> Vec<Option<String>> {
        shown.added.iter().map(|added| added.as_ref().map(Metadata::to_json_string)).collect()
    }

    #[test]
    fn decisions_of_a_later_extension_are_about_the_tasks_that_remain() {
        let tasks = tasks(3);
        let mut shown = ShownTasks::unchanged(3);
        shown.apply(vec![adds(r#"{"a":1}"#), ShowDecision::LeavesOut(String::new()), ShowDecision::Unchanged]);
        let remaining = shown.remaining(&tasks);
        let ids: Vec<&str> = remaining.iter().map(|task| task.id.as_str()).collect();
        assert_eq!(ids, ["t-0", "t-2"]);
        shown.apply(vec![adds(r#"{"b":2}"#), adds(r#"{"c":3}"#)]);
        let expected = [Some(r#"{"a":1,"b":2}"#.to_owned()), None, Some(r#"{"c":3}"#.to_owned())];
        assert_eq!(text(&shown), expected);
    }
}
