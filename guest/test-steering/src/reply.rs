//! The hook `reply`.

use annex_sdk::{Json, Outcome, ReadyAnswer, Reply, Request};

use crate::imports::{self, command_for};
use crate::{RESULT_KEY, TestSteering, requested, told};

impl Reply for TestSteering {
    fn before_agent(
        parameters: &Self::Parameters,
        request: Request,
        message: Json,
    ) -> Result<Option<ReadyAnswer>, String> {
        // A resumed turn does not call `check`.
        requested(&message);
        let command = command_for("before-agent", told(parameters, |hooks| &hooks.before_agent));
        let answer = ReadyAnswer::text("answered");
        let waiting = |text: &str| ReadyAnswer::status(Outcome::InputRequired, text);
        let of_part = |part: Json| ReadyAnswer { parts: vec![part], ..ReadyAnswer::text("") };
        let with_entry = |key: &str, value: Json| ReadyAnswer {
            metadata: vec![(key.to_owned(), value)],
            ..ReadyAnswer::text("answered")
        };
        Ok(Some(match command.name {
            "ok" => return Ok(None),
            "answer" => answer,
            "caller" => ReadyAnswer::text(&imports::caller()),
            name if imports::is_done(name) => return Ok(None),
            "seen" => ReadyAnswer::text(&seen(&request, &message)),
            "message" => ReadyAnswer::status(Outcome::Completed, "answered"),
            "fail" => ReadyAnswer::status(Outcome::Failed, "answered"),
            "reject" => ReadyAnswer::status(Outcome::Rejected, "answered"),
            "wait" => waiting("Go on?"),
            "authorize" => ReadyAnswer::status(Outcome::AuthRequired, "Who are you?"),
            // The next message of the client continues the task, and the agent answers it.
            "first" if request.task_id.is_none() => waiting("Go on?"),
            "first" => return Ok(None),
            "wait-with-artifact" => ReadyAnswer { artifact: answer.artifact, ..waiting("Go on?") },
            "own-key" => with_entry(RESULT_KEY, "true".to_owned()),
            "foreign-key" => with_entry("someone/else", "true".to_owned()),
            "foreign-metadata" => of_part(r#"{"text":"x","metadata":{"someone/else":true}}"#.to_owned()),
            "no-parts" => ReadyAnswer { parts: Vec::new(), ..answer },
            "no-content" => of_part("{}".to_owned()),
            "bad-json" => of_part("{".to_owned()),
            "deep-json" | "odd-json" => of_part(format!(r#"{{"data":{}}}"#, command.unreadable())),
            "big-result" => ReadyAnswer::text(&command.filler()),
            "long-name" => ReadyAnswer { artifact: Some("x".repeat(257)), ..answer },
            "odd-name" => ReadyAnswer { artifact: Some("a\nb".to_owned()), ..answer },
            "error" => return Err(command.refusal()),
            _ => command.misbehave(),
        }))
    }
}

/// The request as received from the host.
fn seen(request: &Request, message: &str) -> String {
    let task = request.task_id.as_deref().unwrap_or("no task");
    format!("{} with {task}: {message}", request.operation)
}
