//! The integration extension of Google's Agent Development Kit (ADK): tells clients of ADK that the agent answers in the
//! form that ADK's servers have since version 2 of their executor.
//!
//! The mark is metadata of the task, where ADK's client looks for it, or of a message that is the whole answer.

use annex_sdk::{
    Beginning, Descriptor, Entry, Event, EventKinds, Extension, NoParameters, Patch, Request, Response, Ruling,
    StateChange, Transition, task_metadata,
};

/// The URI and the metadata key, as ADK has them.
pub const URI: &str = "https://google.github.io/adk-docs/a2a/a2a-extension/";

/// The mark, as ADK's executor writes it.
pub const MARK: &str = r#"{"adk_agent_executor_v2":true}"#;

/// The extension. The type has no data.
#[derive(Debug)]
pub struct AdkIntegration;

impl Extension for AdkIntegration {
    type Parameters = NoParameters;

    fn descriptor(_: &NoParameters) -> Result<Descriptor, String> {
        Ok(Descriptor {
            name: "adk-integration".to_owned(),
            metadata_keys: vec![URI.to_owned()],
            events: EventKinds::MESSAGE,
            ..Descriptor::new(URI, "Answers clients of Google's ADK in the form of its own servers.")
        })
    }
}

impl Transition for AdkIntegration {
    fn begin(_: &NoParameters, _request: Request, _beginning: Beginning) -> Result<Entry, String> {
        task_metadata::set(URI, MARK)?;
        Ok(Entry::Proceed)
    }

    fn change(_: &NoParameters, _change: StateChange) -> Result<Ruling, String> {
        Ok(Ruling::Pass)
    }
}

impl Response for AdkIntegration {
    fn respond(_: &NoParameters, _event: Event) -> Result<Option<Patch>, String> {
        Ok(Some(Patch::entry(URI, MARK)))
    }
}

annex_sdk::export!(AdkIntegration: transition, response);

#[cfg(test)]
mod tests {
    use annex_sdk::testing::{self, Host};
    use annex_sdk::{Entry, EventKind, Patch};

    use crate::{AdkIntegration, MARK, URI};

    #[test]
    fn the_mark_is_on_the_task_and_on_a_message_without_a_task() {
        let host = Host::new();
        let entry = host.begin::<AdkIntegration>(testing::request(), testing::beginning());
        assert_eq!(entry, Ok(Entry::Proceed));
        assert_eq!(host.task_metadata(), [(URI.to_owned(), MARK.to_owned())]);
        let patch = host.respond::<AdkIntegration>(testing::event(EventKind::Message));
        assert_eq!(patch, Ok(Some(Patch::entry(URI, MARK))));
    }
}
