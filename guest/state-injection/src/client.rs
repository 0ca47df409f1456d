//! The client's side, as in the article that introduced the extension: adds the program's state to the message, and
//! gives the program the state that is in the answer.

use annex_sdk::members::Members;
use annex_sdk::{Addition, Incoming, Json, Outgoing, Rejection, Violation};

use crate::parameters::Parameters;

/// The addition to a call. A message without state also activates the extension, so that the conversation continues
/// with the session's state.
pub fn add_to_call(parameters: &Parameters, call: &Outgoing) -> Result<Addition, Rejection> {
    if call.message.is_none() {
        return Ok(Addition::none());
    }
    match (&call.input, &call.declaration) {
        (None, None) => Ok(Addition::none()),
        (None, Some(_)) => Ok(Addition::activation()),
        (Some(_), None) => {
            let message = format!("cannot be sent: the agent does not declare {}", parameters.uri);
            Err(Violation::new("", message).into())
        }
        (Some(state), Some(_)) if Members::of(state).is_none() => {
            Err(Violation::new("", "must be a JSON object").into())
        }
        (Some(state), Some(_)) => Ok(Addition::entry(parameters.state_key.clone(), state.clone())),
    }
}

/// The state in an answer. If the answer has several states, returns the last one. `None` if the answer has no state.
pub fn returned_state(parameters: &Parameters, event: Incoming) -> Option<Json> {
    let own = |(key, state): (String, Json)| (key == parameters.state_key).then_some(state);
    // An agent that has not activated the extension may have written anything under the key.
    if event.active { event.metadata.into_iter().rev().find_map(own) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Parameters {
        Parameters::look_up(|_| Ok(None)).unwrap()
    }

    fn call(input: Option<&str>, is_declared: bool) -> Outgoing {
        Outgoing {
            operation: "SendMessage".to_owned(),
            agent: "http://a.example/card.json".to_owned(),
            declaration: is_declared.then(|| r#"{"uri":"x"}"#.to_owned()),
            input: input.map(str::to_owned),
            message: Some("{}".to_owned()),
        }
    }

    #[test]
    fn state_goes_beside_the_message_as_it_is() {
        let addition = add_to_call(&parameters(), &call(Some(r#"{"n":1.0}"#), true)).unwrap();
        assert!(addition.activate);
        let [entry] = addition.metadata.as_slice() else { panic!("one entry") };
        assert_eq!((entry.key.as_str(), entry.value.as_str()), (parameters().state_key.as_str(), r#"{"n":1.0}"#));
    }

    #[test]
    fn a_message_without_state_activates_what_the_agent_declares() {
        assert!(add_to_call(&parameters(), &call(None, true)).unwrap().activate);
        assert!(!add_to_call(&parameters(), &call(None, false)).unwrap().activate);
        let no_message = Outgoing { message: None, ..call(Some("{}"), true) };
        assert!(!add_to_call(&parameters(), &no_message).unwrap().activate);
    }

    #[test]
    fn state_that_nobody_would_take_is_refused_before_it_is_sent() {
        for (input, is_declared, expected) in [("{}", false, "does not declare"), ("[]", true, "JSON object")] {
            match add_to_call(&parameters(), &call(Some(input), is_declared)) {
                Err(Rejection::Violations(violations)) => assert!(violations[0].message.contains(expected)),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn the_last_state_that_came_back_counts_if_the_extension_was_active() {
        let key = parameters().state_key;
        let metadata = vec![(key.clone(), "1".to_owned()), (key, "2".to_owned()), ("x".to_owned(), "3".to_owned())];
        let event = |active| Incoming { active, event: "{}".to_owned(), metadata: metadata.clone() };
        assert_eq!(returned_state(&parameters(), event(true)).as_deref(), Some("2"));
        assert_eq!(returned_state(&parameters(), event(false)), None);
    }
}
