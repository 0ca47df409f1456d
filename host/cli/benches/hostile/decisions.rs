//! Attacks by the hooks that decide about turns and readers. The attacked agent is that of a tenant.

use anyhow::{Context, Result, ensure};

use crate::attacks::{TURNS, at_once, id_of};
use crate::http::{call, exchange, message};
use crate::process::Server;

/// The tenant whose extension decides about turns.
pub(crate) const TENANT: &str = "steered";
/// The URI of that extension.
const URI: &str = "https://annex.example/steering/v1";
/// The text to which the tenant's agent answers in many chunks.
const FLOOD: &str = "flood";
/// The number of these chunks, the maximum of a scripted answer.
const CHUNKS: usize = 1_000;
/// The readers of one task at the same time.
pub(crate) const READERS: usize = 50;

/// The config of the tenant.
pub(crate) fn tenant() -> String {
    let (agent, component) = (include_str!("steered.toml"), annex_components::TEST_STEERING);
    let words = "x ".repeat(CHUNKS);
    format!(
        "{agent}\n[[agent.model.scripted.rules]]\nwhen = \"^{FLOOD}$\"\nanswer = \"{words}\"\nchunks = {CHUNKS}\n\n\
         [[extension]]\ncomponent = {component:?}\n[extension.grants]\ncaller = {{ principal = true }}\n\
         task-metadata = true\nrewrite-answer = true\nanswer = true\nagent-steps = {{ steer = true }}\nreads = true\n\
         live-card = {{}}\nkeyvalue = {{}}\n"
    )
}

/// A message to the tenant's agent, with commands for the extension by function, as JSON.
fn turn(id: &str, text: &str, commands: &str) -> Vec<u8> {
    let message = message(id, text, &format!(r#","metadata":{{"steering/command":{commands}}}"#));
    call("SendMessage", &message.replacen('{', &format!(r#"{{"tenant":"{TENANT}","#), 1), URI)
}

/// In several turns at once, makes the extension execute the commands.
fn decide(server: &Server, text: &str, commands: &str) -> Result<()> {
    for answer in at_once(server, TURNS, |number| turn(&format!("decide-{number}"), text, commands))? {
        ensure!(answer.contains("TASK_STATE_FAILED"), "the attack was answered: {answer}");
    }
    Ok(())
}

/// Never returns from the revision of an answer.
pub(crate) fn output_loop(server: &Server) -> Result<()> {
    decide(server, "Hello", r#"{"revise":"loop"}"#)
}

/// Holds back every chunk of a long answer. The extension gets all of them again with each further chunk.
pub(crate) fn hold_flood(server: &Server) -> Result<()> {
    decide(server, FLOOD, r#"{"revise":"hold-for-ever"}"#)
}

/// Makes a remark with many parts.
pub(crate) fn remark_flood(server: &Server) -> Result<()> {
    decide(server, "Hello", r#"{"before-model":"remark-flood"}"#)
}

/// Never returns from the reads of many clients. Each of them gets the task nevertheless.
pub(crate) fn reads_loop(server: &Server) -> Result<()> {
    let sent = exchange(&server.address, &turn("read", "Hello", r#"{"begin":"set-command loop"}"#))?;
    let task = id_of(&sent).context("the task")?;
    let read = || call("GetTask", &format!(r#"{{"tenant":"{TENANT}","id":"{task}"}}"#), URI);
    for answer in at_once(server, READERS, |_| read())? {
        ensure!(answer.contains("TASK_STATE_COMPLETED"), "a read failed: {answer}");
    }
    Ok(())
}
