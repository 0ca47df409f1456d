//! The hook `reads`.

use annex_sdk::{Reads, Request, ShownTask, View, json};

use crate::imports::{self, command_for};
use crate::{COMMAND_KEY, RESULT_KEY, TestSteering};

impl Reads for TestSteering {
    fn show(parameters: &Self::Parameters, request: Request, tasks: Vec<ShownTask>) -> Result<Vec<View>, String> {
        let mut views = Vec::with_capacity(tasks.len());
        for task in &tasks {
            let of_task = of_task(task);
            let command = command_for("show", parameters.reads.as_deref().or(of_task.as_deref()));
            let entry = |value: String| View::entry(RESULT_KEY, value);
            let view = match command.name {
                "ok" => View::Unchanged,
                name if imports::is_done(name) => View::Unchanged,
                "add" => entry(json::string("added")),
                "seen" => entry(json::string(&seen(&request, task))),
                "count" => entry(tasks.len().to_string()),
                "leave-out" => View::LeaveOut("it was told to".to_owned()),
                "too-few" => continue,
                "too-many" => {
                    views.push(View::Unchanged);
                    View::Unchanged
                }
                "foreign-key" => View::entry("someone/else", "true"),
                "bad-json" => entry("{".to_owned()),
                "deep-json" | "odd-json" => entry(command.unreadable()),
                "big-result" => entry(json::string(&command.filler())),
                "error" => return Err(command.refusal()),
                _ => command.misbehave(),
            };
            views.push(view);
        }
        Ok(views)
    }
}

/// The command in the metadata of a task, where it is a text.
fn of_task(task: &ShownTask) -> Option<String> {
    let (_, value) = task.metadata.iter().find(|(key, _)| key == COMMAND_KEY)?;
    serde_json::from_str(value).ok()
}

/// The task as received from the host.
fn seen(request: &Request, task: &ShownTask) -> String {
    format!("{}: {} in {}, {}, {:?}", request.operation, task.id, task.context_id, task.state, task.metadata)
}
