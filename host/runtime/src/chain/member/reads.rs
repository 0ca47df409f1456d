//! The hook `reads`.

use std::sync::Arc;

use annex_protocol::Metadata;
use annex_text::cut;

use super::Member;
use crate::bindings::SeenRequest;
use crate::chain::task_to_show::{ShowDecision, TaskToShow};
use crate::chain::{TurnRequest, outgoing};
use crate::contract::{LogLevel, ShownTask, TaskVisibility};
use crate::error::{Fault, HookError};
use crate::extension::Extension;
use crate::hook::Hook;
use crate::load::descriptor::Descriptor;
use crate::recording::step::StepResult;

/// Maximum size of the metadata of one task that the hook gets, in bytes.
const MAX_SHOWN: usize = 4 << 10;
/// Maximum size of the metadata that an extension adds to one task, in bytes.
const MAX_ADDED: usize = 4 << 10;
/// Maximum length of the reason why a task is left out, in bytes. A longer reason is cut.
const MAX_REASON: usize = 256;

impl Member {
    /// Asks the extension how the answer to a read differs from the stored tasks. Returns one decision per task, or
    /// `None` if the extension takes no part in the read.
    pub(in crate::chain) async fn show(
        extension: &Arc<Extension>,
        request: &TurnRequest<'_>,
        seen: &SeenRequest,
        tasks: &[TaskToShow],
    ) -> Result<Option<Vec<ShowDecision>>, HookError> {
        let mut member = Self::admit(extension, Arc::clone(&request.view)).await?;
        member.notes(|recorder| recorder.read(request.head(), tasks));
        let shown = member.show_if_active(seen, tasks).await;
        member.noted(&shown, |decisions| decisions.clone().map_or(StepResult::Inactive, StepResult::Shows));
        member.fails_by(&shown);
        shown
    }

    async fn show_if_active(
        &mut self,
        seen: &SeenRequest,
        tasks: &[TaskToShow],
    ) -> Result<Option<Vec<ShowDecision>>, HookError> {
        if !self.takes_part_in_read(Hook::Reads, seen).await? {
            return Ok(None);
        }
        let decided = self.ask_to_show(seen, tasks).await;
        Ok(Some(self.counted(Hook::Reads, decided)?))
    }

    /// True if the extension has `hook` and takes part in a read. The hook `activation` decides.
    pub(super) async fn takes_part_in_read(&mut self, hook: Hook, seen: &SeenRequest) -> Result<bool, HookError> {
        // A replay may run a version without the hook.
        if !self.extension.program.hooks.has(hook) {
            return Ok(false);
        }
        // Also a required extension may stay out of a read.
        let activated = self.decide_on(seen).await;
        self.counted(Hook::Activation, activated)
    }

    async fn ask_to_show(&mut self, seen: &SeenRequest, tasks: &[TaskToShow]) -> Result<Vec<ShowDecision>, Fault> {
        let extension = Arc::clone(&self.extension);
        let hooks = &extension.program.hooks;
        let limit = extension.profile.limits.input;
        let given = shown_tasks(tasks, &extension.descriptor.metadata_keys, limit);
        let given = given.map_err(|size| Fault::EventTooLarge { uri: extension.uri().clone(), size, limit })?;
        let views =
            self.call(Hook::Reads, async |store, component| hooks.show(store, component, seen, given).await).await?;
        let views = views.map_err(|message| self.failed(Hook::Reads, &message))?;
        let decisions = decisions(views, tasks.len(), &extension.descriptor);
        let mut decisions = decisions.map_err(|reason| self.broke(Hook::Reads, &reason))?;
        self.log_left_out(&mut decisions);
        Ok(decisions)
    }

    /// Writes one line for all tasks that the extension leaves out. Each reason becomes one line without secrets.
    fn log_left_out(&self, decisions: &mut [ShowDecision]) {
        let all = decisions.len();
        let mut reasons = decisions.iter_mut().filter_map(|decision| match decision {
            ShowDecision::LeavesOut(reason) => {
                *reason = cut(self.extension.profile.words(reason), MAX_REASON);
                Some(&*reason)
            }
            ShowDecision::Unchanged | ShowDecision::Adds(_) => None,
        });
        let Some(first) = reasons.next() else { return };
        let count = reasons.count() + 1;
        let line = format!("{count} of {all} tasks are left out; the reason for the first one: {first}");
        self.log.write(LogLevel::Info, "reads", &line);
    }
}

/// The tasks as the guest gets them, with metadata under `keys`. All tasks are arguments of one call, so they share the
/// limit. An entry that does not fit is left out.
///
/// # Errors
/// The size of the tasks without metadata, if it exceeds the limit.
fn shown_tasks(tasks: &[TaskToShow], keys: &[String], limit: usize) -> Result<Vec<ShownTask>, usize> {
    let shown = tasks.iter().map(|task| ShownTask {
        id: task.id.to_string(),
        context_id: task.context_id.to_string(),
        state: task.state.name().to_owned(),
        metadata: Vec::new(),
    });
    let mut shown: Vec<ShownTask> = shown.collect();
    let size: usize = shown.iter().map(|task| task.id.len() + task.context_id.len() + task.state.len()).sum();
    let mut left = limit.checked_sub(size).ok_or(size)?;
    for (shown, task) in shown.iter_mut().zip(tasks) {
        let mut left_of_task = MAX_SHOWN.min(left);
        for (key, value) in keys.iter().filter_map(|key| Some((key, task.metadata.get(key)?.get()))) {
            let bytes = key.len() + value.len();
            if bytes <= left_of_task {
                left_of_task -= bytes;
                left -= bytes;
                shown.metadata.push((key.clone(), value.to_owned()));
            }
        }
    }
    Ok(shown)
}

/// Checks the views of an extension.
///
/// # Errors
/// The number of views is not that of the tasks, or an entry is too large, is no JSON or belongs to others.
fn decisions(views: Vec<TaskVisibility>, count: usize, descriptor: &Descriptor) -> Result<Vec<ShowDecision>, String> {
    if views.len() != count {
        return Err(format!("the number of its views is {}, and that of the tasks is {count}", views.len()));
    }
    let decision = |(index, view): (usize, TaskVisibility)| match view {
        TaskVisibility::Unchanged => Ok(ShowDecision::Unchanged),
        TaskVisibility::Add(entries) => added(index, entries, descriptor).map(ShowDecision::Adds),
        TaskVisibility::LeaveOut(reason) => Ok(ShowDecision::LeavesOut(reason)),
    };
    views.into_iter().enumerate().map(decision).collect()
}

fn added(index: usize, entries: Vec<(String, String)>, descriptor: &Descriptor) -> Result<Metadata, String> {
    let bytes: usize = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAX_ADDED {
        return Err(format!("it adds {bytes} bytes to tasks[{index}].metadata; at most {MAX_ADDED} are allowed"));
    }
    let checked = outgoing::checked_entries(&format!("tasks[{index}]"), descriptor, entries, None)?;
    Ok(checked.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use annex_protocol::{Metadata, TaskState};

    use super::{MAX_SHOWN, shown_tasks};
    use crate::chain::task_to_show::TaskToShow;

    /// A task whose ids and state have 25 bytes.
    fn task(metadata: &str) -> TaskToShow {
        TaskToShow {
            id: "t-1".into(),
            context_id: "c-1".into(),
            state: TaskState::Completed,
            metadata: Metadata::parse(metadata).expect("an object"),
        }
    }

    fn keys(tasks: &[TaskToShow], limit: usize) -> Result<Vec<Vec<String>>, usize> {
        let own = ["a".to_owned(), "b".to_owned()];
        let shown = shown_tasks(tasks, &own, limit)?;
        Ok(shown.into_iter().map(|task| task.metadata.into_iter().map(|(key, _)| key).collect()).collect())
    }

    #[test]
    fn a_guest_gets_its_own_metadata_of_a_task_as_far_as_it_fits() {
        assert_eq!(keys(&[task(r#"{"c":1,"b":2,"a":3}"#)], 1 << 20), Ok(vec![vec!["a".to_owned(), "b".to_owned()]]));
        for (bytes, expected) in [(MAX_SHOWN - 1, "a"), (MAX_SHOWN, "b")] {
            let large = format!(r#"{{"a":"{}","b":2}}"#, "x".repeat(bytes - 2));
            assert_eq!(keys(&[task(&large)], 1 << 20), Ok(vec![vec![expected.to_owned()]]), "{bytes}");
        }
    }

    #[test]
    fn all_tasks_of_a_page_share_the_limit_of_one_call() {
        let size = "t-1c-1TASK_STATE_COMPLETED".len();
        let two = [task(r#"{"a":1}"#), task(r#"{"a":1}"#)];
        assert_eq!(keys(&two, 2 * size + 4), Ok(vec![vec!["a".to_owned()], vec!["a".to_owned()]]));
        assert_eq!(keys(&two, 2 * size + 3), Ok(vec![vec!["a".to_owned()], vec![]]));
        assert_eq!(keys(&two, 2 * size - 1), Err(2 * size));
    }
}
