//! The operator's parameters.

use annex_sdk::members::Members;
use annex_sdk::{Identity, Presence};
use serde::Deserialize;
use serde_json::Value;

/// The URI of our own wire.
pub const URI: &str = "https://annex.example/approval/v1";
/// The URI of agentstack's wire, as its published library has it.
pub const AGENTSTACK_URI: &str = "https://a2a-extensions.agentstack.beeai.dev/interactions/approval/v1";

/// The maximum number of patterns and of approvers.
const MAX_ENTRIES: usize = 100;
/// The maximum number of callers who must approve.
const MAX_QUORUM: u64 = 5;
/// The longest time for a decision: a week.
const MAX_SECONDS: u64 = 604_800;

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = include_str!("../parameters.json");

/// The form of requests and decisions in metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wire {
    /// Our own form. A decision names the call and its digest.
    Own,
    /// The form of agentstack. A decision does not name the call.
    Agentstack,
}

/// The operator's parameters with defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The form of requests and decisions.
    #[serde(default = "own")]
    pub wire: Wire,
    uri: Option<String>,
    #[serde(default = "all_tools")]
    tools: Vec<String>,
    approvers: Option<Vec<String>>,
    /// The number of callers who must approve.
    #[serde(default = "one")]
    pub quorum: u64,
    /// The seconds for which a request is open.
    #[serde(default = "hour")]
    pub seconds: u64,
    /// True if the results of tasks need an acceptance.
    #[serde(default)]
    pub acceptance: bool,
    /// The text for the client.
    #[serde(default = "default_text")]
    pub text: String,
}

impl Parameters {
    /// The URI of the extension, which is also its metadata key.
    pub fn uri(&self) -> &str {
        match (&self.uri, self.wire) {
            (Some(uri), _) => uri,
            (None, Wire::Own) => URI,
            (None, Wire::Agentstack) => AGENTSTACK_URI,
        }
    }

    /// The `params` on the card, a JSON object. Clients of agentstack need an object, which has no members.
    pub fn card_params(&self) -> String {
        match self.wire {
            Wire::Own => {
                format!(r#"{{"quorum":{},"seconds":{},"acceptance":{}}}"#, self.quorum, self.seconds, self.acceptance)
            }
            Wire::Agentstack => "{}".to_owned(),
        }
    }

    /// True if calls of the tool need an approval.
    pub fn covers(&self, tool: &str) -> bool {
        self.tools.iter().any(|pattern| matches(pattern, tool))
    }

    /// True if the caller may decide. `owner` is the principal that began the task.
    pub fn allows(&self, caller: &Identity, owner: Option<&str>) -> bool {
        match &self.approvers {
            Some(approvers) => names(approvers, caller),
            // A caller whose principal the grant does not show must not pass for an anonymous one.
            None => {
                let is_known = caller.presence == Presence::Anonymous || caller.is_authenticated() && owner.is_some();
                is_known && caller.principal.as_deref() == owner
            }
        }
    }

    /// True if the caller may decide about no task at all.
    pub fn refuses(&self, caller: &Identity) -> bool {
        self.approvers.as_ref().is_some_and(|approvers| !names(approvers, caller))
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// A parameter is invalid. The error fails the load of the extension.
    pub fn check(&self) -> Result<(), String> {
        if self.tools.len() > MAX_ENTRIES || self.tools.iter().any(String::is_empty) {
            return Err(format!("`tools` must have at most {MAX_ENTRIES} names, and no empty one"));
        }
        if !(1..=MAX_QUORUM).contains(&self.quorum) {
            return Err(format!("`quorum` must be between 1 and {MAX_QUORUM}"));
        }
        if !(1..=MAX_SECONDS).contains(&self.seconds) {
            return Err(format!("`seconds` must be between 1 and {MAX_SECONDS}"));
        }
        let Some(approvers) = &self.approvers else {
            return match self.quorum {
                1 => Ok(()),
                _ => Err("`quorum` above 1 needs `approvers`: without them only the task's owner decides".to_owned()),
            };
        };
        if approvers.is_empty() || approvers.len() > MAX_ENTRIES {
            return Err(format!("`approvers` must have 1 to {MAX_ENTRIES} entries"));
        }
        for (number, approver) in approvers.iter().enumerate() {
            let is_usable = match approver.split_once(':') {
                Some(("principal", id)) => !id.is_empty(),
                Some(("claim", claim)) => {
                    claim.split_once('=').is_some_and(|(name, value)| !name.is_empty() && !value.is_empty())
                }
                _ => false,
            };
            if !is_usable {
                return Err(format!(
                    "`approvers[{number}]` is {approver:?}: write \"principal:ID\" for one caller, or \
                     \"claim:NAME=VALUE\" for all whose token has the claim"
                ));
            }
        }
        Ok(())
    }
}

/// True if an entry names the caller. A caller without a principal could decide twice, so no entry names it.
fn names(approvers: &[String], caller: &Identity) -> bool {
    caller.is_authenticated()
        && caller.principal.is_some()
        && approvers.iter().any(|approver| match approver.split_once(':') {
            Some(("principal", id)) => caller.principal.as_deref() == Some(id),
            Some(("claim", claim)) => {
                claim.split_once('=').is_some_and(|(name, value)| has_claim(&caller.claims, name, value))
            }
            _ => false,
        })
}

/// True if the claim has this value, or is a list that contains this value. The claim `scope` is a list of words.
fn has_claim(claims: &str, name: &str, value: &str) -> bool {
    let claim = Members::of(claims).and_then(|claims| serde_json::from_str::<Value>(claims.get(name)?).ok());
    match claim {
        Some(Value::String(words)) if name == "scope" => words.split_ascii_whitespace().any(|word| word == value),
        Some(Value::String(text)) => text == value,
        Some(Value::Array(list)) => list.iter().any(|item| item.as_str() == Some(value)),
        _ => false,
    }
}

/// True if `text` matches the pattern, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(start) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let end = pieces.pop().unwrap_or_default();
    // The first place of each piece leaves the most text for the pieces after it.
    for piece in pieces {
        let Some(place) = left.find(piece) else { return false };
        left = left.get(place + piece.len()..).unwrap_or_default();
    }
    left.ends_with(end)
}

fn own() -> Wire {
    Wire::Own
}

fn all_tools() -> Vec<String> {
    vec!["*".to_owned()]
}

fn one() -> u64 {
    1
}

fn hour() -> u64 {
    3_600
}

fn default_text() -> String {
    "Approval is required.".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, expected) in [
            ("*", "pay", true),
            ("pay", "pay", true),
            ("pay", "payout", false),
            ("pay*", "payout", true),
            ("pay*", "repay", false),
            ("*pay", "repay", true),
            ("a*b*c", "a-bb-c", true),
            ("a*b*c", "acb", false),
            ("ab*ba", "aba", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_claim_has_the_value_or_a_list_with_it() {
        for (claims, name, expected) in [
            (r#"{"role":"boss"}"#, "role", true),
            (r#"{"role":["clerk","boss"]}"#, "role", true),
            (r#"{"scope":"read boss"}"#, "scope", true),
            (r#"{"role":"read boss"}"#, "role", false),
            (r#"{"role":"bossy"}"#, "role", false),
            ("{}", "role", false),
        ] {
            assert_eq!(has_claim(claims, name, "boss"), expected, "{claims}");
        }
    }

    #[test]
    fn parameters_that_cannot_work_stop_the_load() {
        for (parameters, expected) in [
            (json!({"quorum": 2}), "needs `approvers`"),
            (json!({"quorum": 6, "approvers": ["principal:a"]}), "between 1 and 5"),
            (json!({"seconds": 0}), "between 1 and"),
            (json!({"approvers": []}), "1 to 100"),
            (json!({"approvers": ["ada"]}), "write \"principal:ID\""),
            (json!({"approvers": ["claim:role"]}), "approvers[0]"),
            (json!({"tools": [""]}), "no empty one"),
        ] {
            let error = serde_json::from_value::<Parameters>(parameters.clone()).unwrap().check().unwrap_err();
            assert!(error.contains(expected), "{parameters}: {error}");
        }
    }
}
