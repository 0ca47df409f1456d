//! Answers a question that was asked before in the conversation, without the agent.
use std::sync::Mutex;

use annex_sdk::keyvalue::Keys;
use annex_sdk::{Descriptor, Event, EventKinds, Extension, NoParameters, Patch, ReadyAnswer, Reply, Request, Response};

/// The question of the turn, and its answer so far.
static TURN: Mutex<(String, String)> = Mutex::new((String::new(), String::new()));

struct Cache;

impl Extension for Cache {
    type Parameters = NoParameters;
    fn descriptor(_: &NoParameters) -> Result<Descriptor, String> {
        let cache = Descriptor::new("https://annex.example/cache/v1", "Answers questions again without the agent.");
        Ok(Descriptor { events: EventKinds::ARTIFACT, payload: true, ..cache })
    }
}

impl Reply for Cache {
    fn before_agent(_: &NoParameters, _: Request, message: String) -> Result<Option<ReadyAnswer>, String> {
        let question = annex_sdk::parts::text(&message);
        // A key has at most 512 bytes. The agent answers longer questions.
        let stored = if question.len() > 512 { None } else { Keys::of_context()?.get(&question)? };
        *TURN.lock().map_err(|error| error.to_string())? = (question, String::new());
        Ok(stored.map(|answer| ReadyAnswer::text(&String::from_utf8_lossy(&answer))))
    }
}

impl Response for Cache {
    fn respond(_: &NoParameters, event: Event) -> Result<Option<Patch>, String> {
        let (question, answer) = &mut *TURN.lock().map_err(|error| error.to_string())?;
        answer.push_str(&annex_sdk::parts::text(event.payload.as_deref().unwrap_or_default()));
        let is_whole = event.last_chunk && question.len() <= 512;
        if is_whole { Keys::of_context()?.set(question, answer.as_bytes()).map(|()| None) } else { Ok(None) }
    }
}
annex_sdk::export!(Cache: reply, response);
