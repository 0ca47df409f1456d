//! Intents, routes, and the choice of a route for an intent.

use annex_sdk::members::Members;
use annex_sdk::{ExtensionError, Json, Rejection, Violation, json};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The error code if no squad offers the capability.
pub const ROUTE_NOT_FOUND: i32 = -32_200;
/// The error code if no route of the capability meets the constraints.
pub const POLICY_VIOLATION: i32 = -32_201;
/// The error code if the capability has only routes that are expired announcements.
pub const TABLE_STALE: i32 = -32_202;
/// The error code if the store for the routes is not available now.
pub const OUT_OF_ORDER: i32 = -32_209;

/// The maximum number of intents in one message. Each intent makes the extension read the routes.
const MAX_INTENTS: usize = 8;

/// The name of a constraint on a number. A route meets the constraint if its policy has the same number or a larger
/// one. Any other constraint requires the same value in the policy.
const SECURITY_LEVEL: &str = "security_level";

/// A task for a squad, with its conditions.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intent {
    /// The requested capability.
    pub target_capability: String,
    /// Arguments for the squad.
    #[serde(rename = "payload")]
    _payload: Map<String, Value>,
    /// The values that the policy of a route must have, by name. The published code calls this field `metadata`.
    #[serde(default, alias = "metadata")]
    pub policy_constraints: Map<String, Value>,
}

/// A squad's offer of a capability, with its price and its policy.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The capability that the squad offers.
    pub capability: String,
    /// Version of the capability's interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The path of the squad, such as `Squad_Finance/gateway`.
    pub path: String,
    /// The cost, in a unit on which the squads agree; not negative.
    #[serde(default, deserialize_with = "cost")]
    pub cost: f64,
    /// The policy of the squad.
    #[serde(default)]
    pub policy: Map<String, Value>,
}

/// The routes of one capability.
#[derive(Debug, Default)]
pub struct Table {
    /// The usable routes, the operator's first.
    pub live: Vec<Route>,
    /// True if the capability has further routes, whose announcements have expired.
    pub has_stale: bool,
}

/// Reads a cost. `-0.0` becomes 0, because it would sort before 0.
///
/// # Errors
/// The cost is negative or not a number.
pub(crate) fn cost<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let cost = f64::deserialize(deserializer)?;
    // Adding 0 makes 0 of -0 and leaves all other costs as they are.
    if cost < 0.0 { Err(D::Error::custom("a cost must not be negative")) } else { Ok(cost + 0.0) }
}

/// The intents of a message (JSON): its data parts with a `target_capability`.
///
/// # Errors
/// An intent is invalid.
pub fn intents(message: &str) -> Result<Vec<Intent>, Rejection> {
    let message = Members::of(message).unwrap_or_default();
    let parts: Vec<&RawValue> =
        message.get("parts").and_then(|parts| serde_json::from_str(parts).ok()).unwrap_or_default();
    let data = parts.iter().map(|part| Members::of(part.get()).and_then(|part| part.get("data")));
    let found: Vec<(usize, &str)> =
        data.enumerate().filter_map(|(number, data)| Some((number, data.filter(|data| is_intent(data))?))).collect();
    // Checked first, so that one message cannot make the host read the routes hundreds of times.
    if found.len() > MAX_INTENTS {
        return Err(Violation::new("/message/parts", format!("must have at most {MAX_INTENTS} intents")).into());
    }
    found.into_iter().map(|(number, data)| intent(data, &format!("/message/parts/{number}/data"))).collect()
}

fn is_intent(data: &str) -> bool {
    Members::of(data).is_some_and(|data| data.get("target_capability").is_some())
}

/// Parses an intent strictly.
///
/// # Errors
/// The text is not an intent. The violation is at `pointer`.
pub fn intent(text: &str, pointer: &str) -> Result<Intent, Rejection> {
    serde_json::from_str(text).map_err(|error| Violation::new(pointer, format!("is no intent: {error}")).into())
}

/// Chooses the cheapest route that meets all constraints. Among routes of equal cost, the first one is chosen. `table`
/// has the routes of the intent's capability.
///
/// # Errors
/// No route can be chosen: [`ROUTE_NOT_FOUND`], [`POLICY_VIOLATION`] or [`TABLE_STALE`], as defined by AGP.
pub fn choose(intent: &Intent, table: &Table) -> Result<Route, Rejection> {
    let complies = |route: &&Route| meets(route, &intent.policy_constraints);
    // Among equal costs `min_by` returns the first one, and the operator's routes come first.
    let best = table.live.iter().filter(complies).min_by(|one, other| one.cost.total_cmp(&other.cost));
    if let Some(route) = best {
        return Ok(route.clone());
    }
    let (code, name) = if !table.live.is_empty() {
        (POLICY_VIOLATION, "AGP_POLICY_VIOLATION: no route of this capability meets the constraints")
    } else if table.has_stale {
        (TABLE_STALE, "AGP_TABLE_STALE: the announcements of this capability are too old")
    } else {
        (ROUTE_NOT_FOUND, "AGP_ROUTE_NOT_FOUND: no squad has announced this capability")
    };
    let data = format!(r#"{{"target_capability":{}}}"#, json::string(&intent.target_capability));
    Err(ExtensionError { code, message: name.to_owned(), data: Some(data) }.into())
}

fn meets(route: &Route, constraints: &Map<String, Value>) -> bool {
    constraints.iter().all(|(name, wanted)| {
        let offered = route.policy.get(name);
        // Compared as numbers, because `serde_json` distinguishes 5 and 5.0.
        match (offered.and_then(Value::as_f64), wanted.as_f64()) {
            (Some(offered), Some(wanted)) if name == SECURITY_LEVEL => offered >= wanted,
            (Some(offered), Some(wanted)) => offered == wanted,
            _ => offered == Some(wanted),
        }
    })
}

/// The JSON text `{"routes": […]}`, with one route per intent in the order of the intents.
///
/// # Errors
/// A route cannot be written.
pub fn routes_text(routes: &[Route]) -> Result<Json, Rejection> {
    json::text(routes).map(|routes| format!(r#"{{"routes":{routes}}}"#)).map_err(|error| out_of_order(&error))
}

/// A route as JSON text.
///
/// # Errors
/// The route cannot be written.
pub fn route_text(route: &Route) -> Result<Json, Rejection> {
    json::text(route).map_err(|error| out_of_order(&error))
}

/// The error when the store is not available.
pub fn out_of_order(cause: &str) -> Rejection {
    ExtensionError { code: OUT_OF_ORDER, message: format!("the routing table is not available: {cause}"), data: None }
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(text: &str) -> Route {
        serde_json::from_str(text).unwrap()
    }

    fn table() -> Table {
        let live = [
            r#"{"capability": "billing", "path": "dear", "cost": 9, "policy": {"pii": true, "security_level": 5}}"#,
            r#"{"capability": "billing", "path": "cheap", "cost": 0.5, "policy": {"pii": false}}"#,
            r#"{"capability": "billing", "path": "same", "cost": 0.5, "policy": {"pii": false}}"#,
        ];
        Table { live: live.map(route).to_vec(), has_stale: true }
    }

    /// The path of the chosen route, or the error's code.
    fn chosen(table: &Table, constraints: &str) -> Result<String, i32> {
        let text =
            format!(r#"{{"target_capability": "billing", "payload": {{}}, "policy_constraints": {constraints}}}"#);
        match choose(&intent(&text, "").unwrap(), table) {
            Ok(route) => Ok(route.path),
            Err(Rejection::Error(error)) => Err(error.code),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_cheapest_route_that_meets_all_constraints_is_chosen() {
        assert_eq!(chosen(&table(), "{}"), Ok("cheap".to_owned()));
        assert_eq!(chosen(&table(), r#"{"pii": true}"#), Ok("dear".to_owned()));
        assert_eq!(chosen(&table(), r#"{"pii": true, "security_level": 5.0}"#), Ok("dear".to_owned()));
    }

    #[test]
    fn a_higher_security_level_is_good_enough_and_a_lower_one_is_not() {
        assert_eq!(chosen(&table(), r#"{"security_level": 3}"#), Ok("dear".to_owned()));
        assert_eq!(chosen(&table(), r#"{"security_level": 6}"#), Err(POLICY_VIOLATION));
        assert_eq!(chosen(&table(), r#"{"security_level": "3"}"#), Err(POLICY_VIOLATION));
    }

    #[test]
    fn what_cannot_be_routed_has_the_errors_of_agp() {
        assert_eq!(chosen(&Table::default(), "{}"), Err(ROUTE_NOT_FOUND));
        assert_eq!(chosen(&table(), r#"{"pii": "yes"}"#), Err(POLICY_VIOLATION));
        assert_eq!(chosen(&Table { live: Vec::new(), has_stale: true }, "{}"), Err(TABLE_STALE));
    }

    #[test]
    fn no_cost_goes_before_that_of_nothing() {
        let of = |cost: &str| {
            serde_json::from_str::<Route>(&format!(r#"{{"capability": "billing", "path": "{cost}", "cost": {cost}}}"#))
        };
        let live = ["0", "-0.0", "-0"].map(|cost| of(cost).unwrap()).to_vec();
        assert_eq!(chosen(&Table { live, has_stale: false }, "{}"), Ok("0".to_owned()));
        assert!(of("-0.5").unwrap_err().to_string().contains("must not be negative"));
    }

    #[test]
    fn intents_are_found_among_the_parts() {
        let message = r#"{"parts": [{"text": "hi"}, {"data": {"other": 1}},
            {"data": {"target_capability": "a", "payload": {}, "metadata": {"pii": true}}},
            {"data": {"target_capability": "b", "payload": {"x": 1}}}]}"#;
        let intents = intents(message).unwrap();
        let found: Vec<&str> = intents.iter().map(|intent| intent.target_capability.as_str()).collect();
        assert_eq!(found, ["a", "b"]);
        assert_eq!(intents[0].policy_constraints["pii"], true);
    }

    #[test]
    fn the_number_of_intents_in_a_message_is_bounded() {
        let part = r#"{"data": {"target_capability": "a", "payload": {}}}"#;
        let message = |count| format!(r#"{{"parts": [{}]}}"#, vec![part; count].join(","));
        assert_eq!(intents(&message(MAX_INTENTS)).unwrap().len(), MAX_INTENTS);
        assert!(intents(&message(MAX_INTENTS + 1)).is_err());
    }

    #[test]
    fn a_part_that_is_almost_an_intent_is_refused_where_it_stands() {
        let almost = [
            r#"{"target_capability": "a"}"#,
            r#"{"target_capability": 7, "payload": {}}"#,
            r#"{"target_capability": "a", "payload": []}"#,
            r#"{"target_capability": "a", "payload": {}, "more": 1}"#,
            r#"{"target_capability": "a", "payload": {}, "metadata": {}, "policy_constraints": {}}"#,
        ];
        for data in almost {
            let message = format!(r#"{{"parts": [{{"text": "hi"}}, {{"data": {data}}}]}}"#);
            match intents(&message) {
                Err(Rejection::Violations(violations)) => assert_eq!(violations[0].pointer, "/message/parts/1/data"),
                other => panic!("{data}: {other:?}"),
            }
        }
    }
}
