//! The grant `agent-steps`: reading the agent's steps, or also steering them.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The key `agent-steps = true` or `agent-steps = { steer = true }`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum AgentStepsGrantConfig {
    /// `false`, which is the default: the extension does not see the agent's steps.
    #[default]
    Denied,
    /// `true`: the extension reads the agent's steps in the turn.
    Read,
    /// `{ steer = true }`: the extension reads the agent's steps and steers the calls of the model and of tools.
    Steer,
}

/// The table in `agent-steps = { steer = true }`.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Table {
    steer: bool,
}

impl AgentStepsGrantConfig {
    pub(super) fn reads(self) -> bool {
        self != Self::Denied
    }

    pub(super) fn steers(self) -> bool {
        self == Self::Steer
    }
}

impl Serialize for AgentStepsGrantConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Denied | Self::Read => serializer.serialize_bool(self.reads()),
            Self::Steer => Table { steer: true }.serialize(serializer),
        }
    }
}

/// Reads a grant. A derived untagged enum would not name an unknown key of the table.
impl<'de> Deserialize<'de> for AgentStepsGrantConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(GrantVisitor)
    }
}

struct GrantVisitor;

impl<'de> Visitor<'de> for GrantVisitor {
    type Value = AgentStepsGrantConfig;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("`true`, or `{ steer = true }`")
    }

    fn visit_bool<E: Error>(self, reads: bool) -> Result<Self::Value, E> {
        Ok(if reads { AgentStepsGrantConfig::Read } else { AgentStepsGrantConfig::Denied })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let table = Table::deserialize(MapAccessDeserializer::new(map))?;
        Ok(if table.steer { AgentStepsGrantConfig::Steer } else { AgentStepsGrantConfig::Read })
    }
}

#[cfg(test)]
mod tests {
    use super::AgentStepsGrantConfig;
    use crate::config::GrantsConfig;

    #[test]
    fn agent_steps_are_read_as_a_flag_and_as_a_table() {
        let read = |text: &str| toml::from_str::<GrantsConfig>(text).map(|grants| grants.agent_steps);
        assert_eq!(read(""), Ok(AgentStepsGrantConfig::Denied));
        assert_eq!(read("agent-steps = false"), Ok(AgentStepsGrantConfig::Denied));
        assert_eq!(read("agent-steps = true"), Ok(AgentStepsGrantConfig::Read));
        assert_eq!(read("agent-steps = { steer = false }"), Ok(AgentStepsGrantConfig::Read));
        assert_eq!(read("agent-steps = { steer = true }"), Ok(AgentStepsGrantConfig::Steer));
        let refused = read("agent-steps = 1").expect_err("a number").to_string();
        assert!(refused.contains("`true`, or `{ steer = true }`"), "{refused}");
        let refused = read("agent-steps = { stear = true }").expect_err("a typo").to_string();
        assert!(refused.contains("stear") && refused.contains("steer"), "{refused}");
    }
}
