//! The operator's parameters.

use annex_sdk::{log, secrets};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The URI of version 0.1, as its specification and its published library have it.
pub const URI_0_1: &str = "https://github.com/google-a2a/a2a-x402/v0.1";
/// The URI of version 0.2.
pub const URI_0_2: &str = "https://github.com/google-agentic-commerce/a2a-x402/blob/main/spec/v0.2";

/// The maximum number of ways to pay. A client gets all of them with each request for a payment.
const MAX_ACCEPTS: usize = 10;

/// The longest time for which an offer is valid, in seconds. Used nonces are recorded for about this time.
const MAX_TIMEOUT_SECONDS: u64 = 86_400;

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = include_str!("../parameters.json");

/// A version of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Version {
    /// Version 0.1.
    #[serde(rename = "0.1")]
    V0_1,
    /// Version 0.2.
    #[serde(rename = "0.2")]
    V0_2,
}

/// The time at which a verified payment is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Settle {
    /// Before the agent runs.
    Before,
    /// After the agent has begun to answer, and before its first content goes out.
    After,
}

/// The operator's parameters with defaults filled in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The version of the specification.
    #[serde(default = "latest")]
    pub version: Version,
    uri: Option<String>,
    facilitator: String,
    authorization: Option<String>,
    accepts: Vec<Accept>,
    /// The time of the settlement.
    #[serde(default = "before")]
    pub settle: Settle,
    min_valid_seconds: Option<u64>,
    /// The text for a client that has to pay.
    #[serde(default = "default_text")]
    pub text: String,
}

/// The default of `min_valid_seconds` with `after`, in seconds. The agent gets at least this time until the settlement.
const MIN_VALID_SECONDS: u64 = 60;

/// A way to pay.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Accept {
    network: String,
    asset: String,
    pay_to: String,
    amount: String,
    #[serde(default = "exact")]
    scheme: String,
    resource: Option<String>,
    #[serde(default = "default_description")]
    description: String,
    #[serde(default = "default_mime_type")]
    mime_type: String,
    #[serde(default = "default_timeout")]
    max_timeout_seconds: u64,
    #[serde(default)]
    extra: Map<String, Value>,
}

impl Parameters {
    /// The URI of the extension.
    pub fn uri(&self) -> &str {
        match (&self.uri, self.version) {
            (Some(uri), _) => uri,
            (None, Version::V0_1) => URI_0_1,
            (None, Version::V0_2) => URI_0_2,
        }
    }

    /// The URL of an endpoint of the facilitator: `verify` or `settle`.
    pub fn endpoint(&self, name: &str) -> String {
        format!("{}/{name}", self.facilitator.trim_end_matches('/'))
    }

    /// The field `Authorization` of requests to the facilitator.
    ///
    /// # Errors
    /// The secret is missing. The text is for the operator.
    pub fn authorization(&self) -> Result<Option<String>, String> {
        let Some(name) = &self.authorization else { return Ok(None) };
        let missing =
            || format!("there is no secret {name:?}: give it with secrets = {{ {name} = {{ env = \"…\" }} }}");
        secrets::get(name)?.ok_or_else(missing).map(Some)
    }

    /// The time for which a payment must still be valid before the agent runs, in seconds.
    pub fn min_valid_seconds(&self) -> u64 {
        self.min_valid_seconds.unwrap_or(match self.settle {
            Settle::Before => 0,
            Settle::After => MIN_VALID_SECONDS,
        })
    }

    /// The `PaymentRequirements` for a task, one for each way to pay, and the seconds for which the offer is valid.
    pub fn requirements(&self, task_id: &str) -> (Vec<Value>, u64) {
        let seconds = self.accepts.iter().map(|accept| accept.max_timeout_seconds).min().unwrap_or_default();
        (self.accepts.iter().map(|accept| accept.requirement(task_id)).collect(), seconds)
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// A parameter is invalid. The error fails the load of the extension.
    pub fn check(&self) -> Result<(), String> {
        let Some((scheme, rest)) = self.facilitator.split_once("://") else {
            return Err("`facilitator` must be a URL that begins with https://".to_owned());
        };
        if rest.is_empty() || rest.contains(['?', '#']) {
            return Err("`facilitator` must be a URL with a host, and without a query or a fragment".to_owned());
        }
        if scheme == "http" {
            log::warn("`facilitator` begins with http://: its answers can be forged on the way");
        }
        if self.accepts.is_empty() || self.accepts.len() > MAX_ACCEPTS {
            return Err(format!("`accepts` must have 1 to {MAX_ACCEPTS} ways to pay"));
        }
        for (number, accept) in self.accepts.iter().enumerate() {
            accept.check().map_err(|error| format!("`accepts[{number}]` {error}"))?;
            if accept.max_timeout_seconds <= self.min_valid_seconds() {
                return Err(format!(
                    "`accepts[{number}]` has a `max_timeout_seconds` that is not above `min_valid_seconds` ({})",
                    self.min_valid_seconds()
                ));
            }
            // A payment does not name the token, so these two could not be told apart.
            let is_same = |other: &&Accept| other.identity() == accept.identity();
            if self.accepts.iter().filter(is_same).count() > 1 {
                return Err(format!(
                    "`accepts[{number}]` has the network, `pay_to` and `amount` of another entry: change the amount"
                ));
            }
        }
        self.authorization().map(drop)
    }
}

impl Accept {
    fn identity(&self) -> (&str, String, &str) {
        (&self.network, self.pay_to.to_ascii_lowercase(), &self.amount)
    }

    fn check(&self) -> Result<(), String> {
        if self.scheme != "exact" {
            return Err(format!("has the scheme {:?}, and only \"exact\" is supported", self.scheme));
        }
        let is_amount = !self.amount.starts_with('0') && self.amount.bytes().all(|byte| byte.is_ascii_digit());
        if !is_amount || self.amount.is_empty() {
            return Err("has an `amount` that is not a whole number above 0 in the token's smallest unit".to_owned());
        }
        if !(1..=MAX_TIMEOUT_SECONDS).contains(&self.max_timeout_seconds) {
            return Err(format!("has a `max_timeout_seconds` that is not between 1 and {MAX_TIMEOUT_SECONDS}"));
        }
        Ok(())
    }

    fn requirement(&self, task_id: &str) -> Value {
        let resource = self.resource.clone().unwrap_or_else(|| format!("urn:a2a:task:{task_id}"));
        let mut requirement = json!({
            "scheme": self.scheme,
            "network": self.network,
            "maxAmountRequired": self.amount,
            "resource": resource,
            "description": self.description,
            "mimeType": self.mime_type,
            "payTo": self.pay_to,
            "maxTimeoutSeconds": self.max_timeout_seconds,
            "asset": self.asset,
        });
        if let (Some(members), false) = (requirement.as_object_mut(), self.extra.is_empty()) {
            members.insert("extra".to_owned(), Value::Object(self.extra.clone()));
        }
        requirement
    }
}

fn latest() -> Version {
    Version::V0_2
}

fn before() -> Settle {
    Settle::Before
}

fn exact() -> String {
    "exact".to_owned()
}

fn default_text() -> String {
    "Payment is required.".to_owned()
}

fn default_description() -> String {
    "Payment for this task".to_owned()
}

fn default_mime_type() -> String {
    "application/json".to_owned()
}

fn default_timeout() -> u64 {
    600
}
