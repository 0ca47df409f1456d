//! The policy that says when the user's event of a turn must be stored.

use crate::event::Event;
use crate::state::Scope;

/// The effects that may follow an event before the next event of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Following {
    /// Effects outside of the turn: the agent or an extension acts on other systems, or a client reads the task of the
    /// event.
    Effects,
    /// No effects outside of the turn.
    Answer,
}

/// The moment when an event is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Before the append returns.
    Now,
    /// With the next event of the turn, or by [`TurnSession::store`](crate::TurnSession::store).
    WithNext,
}

/// Decides when the user's event must be stored.
///
/// | the event | stored | because |
/// |---|---|---|
/// | is followed by effects | now | the event must survive a crash, as the effects do |
/// | is for an existing session | now | the conversation continues from the event, even if this turn fails |
/// | sets `user:` or `app:` state | now | other sessions read the state |
/// | has artifacts | now | artifacts are read from the store |
/// | is partial | now | a partial event is never stored, so no second write is saved |
/// | is none of these | with the next event | one write instead of two; until then only this turn knows the conversation |
pub(crate) fn durability(event: &Event, exists: bool, following: Following) -> Durability {
    let is_shared = event.state_delta.touches(Scope::User) || event.state_delta.touches(Scope::App);
    let has_effects = following == Following::Effects;
    if has_effects || exists || is_shared || event.partial || !event.artifacts.is_empty() {
        Durability::Now
    } else {
        Durability::WithNext
    }
}

#[cfg(test)]
mod tests {
    use annex_protocol::Part;

    use super::{Durability, Following, durability};
    use crate::event::Event;
    use crate::state::StateDelta;

    fn event(delta: &str) -> Event {
        let delta: StateDelta = serde_json::from_str(delta).expect("a delta");
        Event::of_user("invocation", vec![Part::text("Hello")], delta)
    }

    #[test]
    fn only_a_first_message_that_nothing_outside_of_the_turn_follows_is_stored_with_the_answer() {
        let plain = event(r#"{"a":1,"temp:b":2}"#);
        assert_eq!(durability(&plain, false, Following::Answer), Durability::WithNext);
        assert_eq!(durability(&plain, false, Following::Effects), Durability::Now);
        assert_eq!(durability(&plain, true, Following::Answer), Durability::Now);
        for shared in [r#"{"user:a":1}"#, r#"{"app:a":1}"#] {
            assert_eq!(durability(&event(shared), false, Following::Answer), Durability::Now, "{shared}");
        }
        let partial = Event { partial: true, ..event("{}") };
        assert_eq!(durability(&partial, false, Following::Answer), Durability::Now);
        let with_artifact =
            Event { artifacts: [("file".to_owned(), vec![Part::text("x")].into())].into(), ..event("{}") };
        assert_eq!(durability(&with_artifact, false, Following::Answer), Durability::Now);
    }
}
