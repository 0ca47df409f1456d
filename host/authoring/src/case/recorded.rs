//! Converts a recorded turn to the inputs of a case.

use std::collections::{BTreeMap, BTreeSet};

use annex_protocol::{ExtensionUri, Json as RawJson, ListTasksResponse, Message, Timestamp};
use annex_runtime::{HostCall, HttpAnswer, Octets, Presence, RecordedTurn, StepInput, VisibleCaller};
use toml::{Table, Value};

use super::outcome::state_name as name;
use super::scene::{BUCKETS, CONTEXT};
use super::toml_json;

mod answer;
mod ids;
mod steps;
mod values;

use self::answer::answer;
use self::ids::with_ids_of_cases;
use self::steps::{shown_entry, shown_task};
use self::values::{json, said};

/// The text that replaces a secret in a recording.
const SECRET: &str = "(secret)";

/// The inputs of a case, made from a recorded turn.
#[derive(Debug)]
pub(super) struct GivenTurn {
    pub(super) given: Table,
    /// The differences between the case and the recorded turn.
    pub(super) remarks: Vec<&'static str>,
}

/// Converts a turn of `extension` to the inputs of a case.
///
/// # Errors
/// When the turn cannot be a case. The error is the reason.
pub(super) fn given(turn: &RecordedTurn, extension: &ExtensionUri) -> Result<GivenTurn, String> {
    if turn.resumed {
        return Err("its task is resumed, which a case cannot express".to_owned());
    }
    let turn = &with_ids_of_cases(turn)?;
    let mut converted = GivenTurn { given: Table::new(), remarks: Vec::new() };
    if turn.hides_what_was_given() {
        converted
            .remarks
            .push("The recording hides something that the extension was given. The case has the mark for it.");
    }
    converted.asked(turn, extension)?;
    converted.seen(turn)?;
    if let Some(caller) = &turn.caller {
        converted.caller(caller)?;
    }
    converted.keys(turn)?;
    converted.time_and_numbers(turn);
    converted.requests(turn)?;
    converted.tasks(turn)?;
    Ok(converted)
}

impl GivenTurn {
    fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.given.insert(key.to_owned(), value.into());
    }

    /// Adds the request: a message with the agent's answer, or a call of a method.
    fn asked(&mut self, turn: &RecordedTurn, extension: &ExtensionUri) -> Result<(), String> {
        if turn.requested != [extension.clone()] {
            let requested = turn.requested.iter().map(|uri| Value::from(uri.as_str()));
            self.set("requested", Value::Array(requested.collect()));
        }
        match turn.steps.first().map(|step| &step.input) {
            Some(StepInput::Request { message: asked, metadata }) => {
                if turn.operation != "SendMessage" {
                    self.set("operation", turn.operation.as_str());
                }
                self.set("message", message(asked)?);
                if !metadata.is_empty() {
                    self.set("metadata", said(metadata, "the metadata of its request")?);
                }
                let waits_in = turn.steps.iter().find_map(|step| match &step.input {
                    StepInput::Begin { waits_in, .. } => *waits_in,
                    _ => None,
                });
                if let Some(state) = waits_in {
                    self.set("waits_in", name(state));
                }
                self.steps(turn)?;
                self.set("answer", answer(&turn.steps)?);
                Ok(())
            }
            Some(StepInput::Read { tasks }) => {
                self.set("hook", "reads");
                self.set("operation", turn.operation.as_str());
                self.set("tasks", tasks.iter().map(shown_task).collect::<Result<Vec<_>, _>>()?);
                Ok(())
            }
            Some(StepInput::ExtendedCard(entry)) => {
                self.set("hook", "extended-card");
                self.set("entry", shown_entry(entry)?);
                Ok(())
            }
            Some(StepInput::Call { params }) => {
                let mut method = Table::from_iter([("name".to_owned(), turn.operation.as_str().into())]);
                if !params.is_null() {
                    let params = json(params)?;
                    if !params.is_object() {
                        return Err("its parameters are no object".to_owned());
                    }
                    method.insert("params".to_owned(), toml_json::toml(&params));
                }
                self.set("method", method);
                Ok(())
            }
            _ => Err("it begins with neither a message nor a read nor a call of a method".to_owned()),
        }
    }

    /// Adds the session and the agent's steps, which the extension could read.
    fn seen(&mut self, turn: &RecordedTurn) -> Result<(), String> {
        let mut sessions = turn.steps.iter().filter_map(|step| step.session.as_ref());
        if let Some(session) = sessions.next().filter(|session| !session.is_empty()) {
            self.set("session", said(session, "its session")?);
        }
        if sessions.next().is_some() {
            self.remarks.push("The session changed during the turn. The case has it as it was at the beginning.");
        }
        if turn.steps.iter().any(|step| step.task.is_some()) {
            self.remarks.push("The extension could read the whole task. The case has only its ids and its state.");
        }
        let steps: Vec<&RawJson> = turn.steps.iter().filter_map(|step| step.agent_steps.as_ref()).collect();
        let steps: Vec<&RawJson> = steps.into_iter().filter(|steps| steps.get() != "[]").collect();
        if let Some(last) = steps.last() {
            self.set("steps", said(last, "the steps of its agent")?);
        }
        if steps.len() > 1 {
            self.remarks.push("The agent's steps grew during the turn. The case has all of them from the beginning.");
        }
        Ok(())
    }

    /// Adds the caller as the extension could see it.
    fn caller(&mut self, caller: &VisibleCaller) -> Result<(), String> {
        let VisibleCaller { presence, principal, claims, headers, .. } = caller;
        let mut table = Table::new();
        if *presence == Presence::Earlier {
            table.insert("presence".to_owned(), said(presence, "its caller")?);
        }
        if let Some(principal) = principal {
            table.insert("principal".to_owned(), principal.as_str().into());
        }
        if !claims.is_empty() {
            table.insert("claims".to_owned(), said(claims, "the claims of its caller")?);
        }
        // The grant may show nothing of an authenticated caller.
        if *presence == Presence::Authenticated && table.is_empty() {
            table.insert("presence".to_owned(), said(presence, "its caller")?);
        }
        let mut fields: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for (name, value) in headers {
            fields.entry(name).or_default().push(value.as_str().into());
        }
        if !fields.is_empty() {
            let fields = fields.into_iter().map(|(name, values)| (name.to_owned(), Value::Array(values)));
            table.insert("headers".to_owned(), fields.collect::<Table>().into());
        }
        if !table.is_empty() {
            self.set("caller", table);
        }
        Ok(())
    }

    /// Adds the keys as they were before the turn.
    fn keys(&mut self, turn: &RecordedTurn) -> Result<(), String> {
        let mut keys: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
        for known in &turn.keys {
            let Some(value) = &known.value else { continue };
            let Octets::Text(value) = value else { return Err(format!("the key {:?} has no text", known.key)) };
            keys.entry(bucket(&known.bucket)?).or_default().insert(known.key.clone(), value.clone());
        }
        let is_known = |name: &str, key: &str| turn.keys.iter().any(|known| known.bucket == name && known.key == key);
        for call in calls(turn) {
            let HostCall::Keys { bucket: name, keys: listed, .. } = call else { continue };
            // A key that the turn itself has set is known not to have been there.
            for key in listed.iter().filter(|key| !is_known(name, key)) {
                let remark = "Keys that the extension listed and did not read are empty in the case.";
                if !self.remarks.contains(&remark) {
                    self.remarks.push(remark);
                }
                keys.entry(bucket(name)?).or_default().insert(key.clone(), String::new());
            }
        }
        if !keys.is_empty() {
            let table = |values: BTreeMap<String, String>| {
                Value::Table(values.into_iter().map(|(key, value)| (key, value.into())).collect())
            };
            let keys = keys.into_iter().map(|(bucket, values)| (bucket.to_owned(), table(values)));
            self.set("keys", keys.collect::<Table>());
        }
        Ok(())
    }

    fn time_and_numbers(&mut self, turn: &RecordedTurn) {
        let mut times: Vec<Timestamp> = calls(turn)
            .filter_map(|call| match call {
                HostCall::Time { seconds, nanoseconds } => {
                    let seconds = i64::try_from(*seconds).unwrap_or(i64::MAX).saturating_mul(1_000);
                    Some(Timestamp::from_millis(seconds.saturating_add(i64::from(nanoseconds / 1_000_000))))
                }
                _ => None,
            })
            .collect();
        // The last time repeats.
        while times.len() > 1 && times.iter().rev().nth(1) == times.last() {
            times.pop();
        }
        let clock = match times.as_slice() {
            [] => time(turn.at),
            [one] => time(*one),
            several => Value::Array(several.iter().copied().map(time).collect()),
        };
        self.set("clock", clock);
        let random: String = calls(turn)
            .filter_map(|call| match call {
                HostCall::Random(bytes) => Some(bytes.bytes()),
                _ => None,
            })
            .flatten()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        if !random.is_empty() {
            self.set("random", random);
        }
    }

    fn requests(&mut self, turn: &RecordedTurn) -> Result<(), String> {
        let mut unreachable = BTreeSet::new();
        let mut answers: Vec<(&str, &HttpAnswer)> = Vec::new();
        for call in calls(turn) {
            let HostCall::Http { request, answer, .. } = call else { continue };
            if request.contains(SECRET) {
                return Err("the address of a request has a secret, which the recording does not have".to_owned());
            }
            match answer {
                Some(answer) => answers.push((request, answer)),
                None => drop(unreachable.insert(request.as_str())),
            }
        }
        if answers.iter().any(|(request, _)| unreachable.contains(request)) {
            return Err("a request was answered once and failed another time, which a case cannot express".to_owned());
        }
        let answers: Vec<Value> = answers.into_iter().map(http).collect::<Result<_, _>>()?;
        if !answers.is_empty() {
            self.set("http", answers);
        }
        Ok(())
    }

    fn tasks(&mut self, turn: &RecordedTurn) -> Result<(), String> {
        let mut listed: Option<ListTasksResponse> = None;
        for call in calls(turn) {
            match call {
                HostCall::Tasks { answer: Some(answer), .. } => {
                    let answer: ListTasksResponse = answer.to().map_err(|error| error.to_string())?;
                    if !answer.next_page_token.is_empty() {
                        return Err("a list of tasks has further pages, which a case cannot express".to_owned());
                    }
                    if listed.as_ref().is_some_and(|listed| listed.tasks != answer.tasks) {
                        return Err("its lists of tasks differ, and a case has one".to_owned());
                    }
                    listed = Some(answer);
                }
                HostCall::Tasks { answer: None, .. } => {
                    return Err("a list of tasks was refused, which a case cannot express".to_owned());
                }
                HostCall::Resume { error: Some(_), .. } => {
                    return Err("a task could not be resumed, which a case cannot express".to_owned());
                }
                _ => {}
            }
        }
        match listed {
            Some(listed) if !listed.tasks.is_empty() => self.set("tasks", said(&listed.tasks, "its list of tasks")?),
            _ => {}
        }
        Ok(())
    }
}

fn calls(turn: &RecordedTurn) -> impl Iterator<Item = &HostCall> {
    turn.steps.iter().flat_map(|step| &step.calls)
}

/// The name that a case uses for the bucket `name` of a recording.
fn bucket(name: &str) -> Result<&'static str, String> {
    let bucket = BUCKETS.into_iter().find(|(_, kind)| kind.name() == name);
    bucket.map(|(bucket, _)| bucket).ok_or_else(|| format!("it has a key in {name:?}, and there is no such bucket"))
}

fn time(time: Timestamp) -> Value {
    let text = time.to_string().replace(".000Z", "Z");
    text.parse().map_or(Value::String(text), Value::Datetime)
}

/// Converts a message to TOML: a table, or a string if the message has nothing but one text.
fn message(message: &Message) -> Result<Value, String> {
    let mut message = said(message, "its message")?;
    let Some(table) = message.as_table_mut() else { return Ok(message) };
    table.remove("messageId");
    drop_default(table, "role", "ROLE_USER");
    drop_default(table, "contextId", CONTEXT);
    let is_alone = table.len() == 1;
    let text = table.get("parts").and_then(|parts| match parts.as_array()?.as_slice() {
        [Value::Table(part)] if part.len() == 1 => part.get("text").cloned(),
        _ => None,
    });
    Ok(text.filter(|_| is_alone).unwrap_or(message))
}

fn drop_default(table: &mut Table, key: &str, default: &str) {
    if table.get(key).and_then(Value::as_str) == Some(default) {
        table.remove(key);
    }
}

/// Converts a response to an HTTP request to an entry of `given.http`.
fn http((request, answer): (&str, &HttpAnswer)) -> Result<Value, String> {
    let Octets::Text(body) = &answer.body else {
        return Err(format!("the answer to {request} is no text, and a case has texts"));
    };
    let mut table = Table::from_iter([("request".to_owned(), request.into())]);
    if answer.status != 200 {
        table.insert("status".to_owned(), i64::from(answer.status).into());
    }
    let mut headers: BTreeMap<&str, String> = BTreeMap::new();
    for (name, value) in &answer.headers {
        // Several fields of one name are equivalent to one field with all values.
        headers
            .entry(name)
            .and_modify(|values| values.push_str(&format!(", {value}")))
            .or_insert_with(|| value.clone());
    }
    if !headers.is_empty() {
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value.into()));
        table.insert("headers".to_owned(), headers.collect::<Table>().into());
    }
    if !body.is_empty() {
        table.insert("body".to_owned(), body.as_str().into());
    }
    Ok(Value::Table(table))
}

#[cfg(test)]
mod tests;
