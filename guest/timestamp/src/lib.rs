//! The Timestamp extension, version 1: adds the time of creation to the metadata of messages and artifacts.
//!
//! This file has the hooks; their decisions are in [`logic`].

pub mod logic;

use annex_sdk::{
    Addition, Client, Descriptor, Event, EventKinds, Extension, Incoming, Json, Outgoing, Patch, Rejection, Response,
    clock, json,
};

use crate::logic::{PARAMETER_SCHEMA, Parameters};

/// The extension. The type has no data: each hook gets the parameters as an argument.
#[derive(Debug)]
pub struct Timestamp;

impl Extension for Timestamp {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        Ok(Descriptor {
            name: "timestamp".to_owned(),
            metadata_keys: vec![parameters.key.clone()],
            events: EventKinds::all(),
            ..Descriptor::new(parameters.uri.clone(), "Adds the time to the metadata of messages and artifacts.")
        })
    }
}

impl Response for Timestamp {
    fn respond(parameters: &Parameters, event: Event) -> Result<Option<Patch>, String> {
        let stamp = || Patch::entry(parameters.key.clone(), json::string(&clock::now()));
        Ok(logic::wants_stamp(parameters, &event).then(stamp))
    }
}

/// Runs in a client. Adds a timestamp to the client's message if the agent declares the extension. Gives the calling
/// program the timestamp of the agent's answer.
impl Client for Timestamp {
    fn before(parameters: &Parameters, call: Outgoing) -> Result<Addition, Rejection> {
        // An agent that does not declare the extension would not read the stamp.
        if call.message.is_none() || call.declaration.is_none() {
            return Ok(Addition::none());
        }
        Ok(Addition::entry(parameters.key.clone(), json::string(&clock::now())))
    }

    fn after(_: &Parameters, event: Incoming) -> Result<Option<Json>, String> {
        Ok(logic::newest_stamp(event))
    }
}

annex_sdk::export!(Timestamp: response, client);

#[cfg(test)]
mod tests {
    use annex_sdk::EventKind;
    use annex_sdk::testing::{self, Host};

    use super::*;

    const STAMP: &str = r#""2026-11-20T09:41:07.250Z""#;

    fn host() -> Host {
        Host::new().parameters(r#"{"key": "time"}"#).clock("2026-11-20T09:41:07.25Z")
    }

    #[test]
    fn an_answer_has_the_time_at_which_it_was_made() {
        let answer = testing::event(EventKind::Message);
        assert_eq!(host().respond::<Timestamp>(answer.clone()), Ok(Some(Patch::entry("time", STAMP))));
        let stamped = Event { present: vec!["time".to_owned()], ..answer };
        assert_eq!(host().respond::<Timestamp>(stamped), Ok(None));
    }

    #[test]
    fn a_client_stamps_its_messages_to_agents_that_read_stamps() {
        assert_eq!(host().before::<Timestamp>(testing::outgoing()), Ok(Addition::entry("time", STAMP)));
        let calls =
            [Outgoing { message: None, ..testing::outgoing() }, Outgoing { declaration: None, ..testing::outgoing() }];
        for call in calls {
            assert_eq!(host().before::<Timestamp>(call), Ok(Addition::none()));
        }
    }

    #[test]
    fn the_program_gets_the_last_stamp_of_an_agent_that_is_active() {
        let metadata = vec![("time".to_owned(), "1".to_owned()), ("time".to_owned(), STAMP.to_owned())];
        let incoming = Incoming { active: true, event: "{}".to_owned(), metadata };
        assert_eq!(host().after::<Timestamp>(incoming.clone()), Ok(Some(STAMP.to_owned())));
        assert_eq!(host().after::<Timestamp>(Incoming { active: false, ..incoming }), Ok(None));
    }
}
