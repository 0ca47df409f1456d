//! The agent's steps in this turn (import `agent-steps`, needs the grant of that name).

use crate::Json;
use crate::imports::agent_steps;

/// The steps so far, as a JSON array.
pub fn recorded() -> Json {
    agent_steps::recorded()
}
