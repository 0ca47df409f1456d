//! A compiled schema, and validation of instances.

use std::fmt;
use std::time::Duration;

use annex_text::cut;
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::budget::Reservation;
use crate::cost::{Cost, MATCHER_TABLES};
use crate::measure::measure;
use crate::pattern::MAX_AUTOMATON;
use crate::size::Size;
use crate::strict;

/// Maximum length of a schema, in bytes.
const MAX_SCHEMA_BYTES: usize = 64 << 10;
/// Maximum number of violations reported for one instance.
const MAX_VIOLATIONS: usize = 64;
/// Maximum length of the message of a violation, in bytes. The message may quote the instance.
const MAX_MESSAGE_BYTES: usize = 512;
/// Maximum length of an instance that is parsed, in bytes. Parsed values take many times the bytes of the text.
const MAX_INSTANCE: usize = 1 << 20;
/// Maximum work for a validation on a thread that serves other requests, in nanoseconds.
const SMALL_WORK: u64 = 2_000_000;
/// Maximum length of an instance that is parsed on a thread that serves other requests, in bytes.
const SMALL_INSTANCE: usize = 16 << 10;
/// Maximum size of a list of violations that is made on a thread that serves other requests, in bytes.
const SMALL_LIST: u64 = 4 << 20;
/// Maximum work for one validation, in nanoseconds.
const MAX_WORK: u64 = 1_000_000_000;
/// Maximum size of a list of violations, in bytes.
const MAX_LIST: u64 = 32 << 20;

/// A violation: a JSON pointer into the instance, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer; empty for the whole instance.
    pub pointer: String,
    /// The reason. It may quote the instance.
    pub message: String,
}

/// A compiled schema with its measured cost.
pub struct Schema {
    validator: Validator,
    cost: Cost,
    /// Reservation of the schema's bytes, if the schema is cached or pinned.
    _kept: Option<Reservation>,
    is_pinned: bool,
}

/// The maximum work of a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Work that is acceptable on a thread that serves other requests.
    Small,
    /// The maximum work that any validation may take.
    Full,
}

/// The outcome of a validation with [`Effort::Small`].
pub(crate) enum Attempt {
    Done(Result<Vec<Violation>, String>),
    /// The validation needs more than small work, so it must run on a worker.
    TooMuch,
}

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// The text is not JSON, its cost has no bound, or it is not a JSON Schema. The error says which.
    pub fn compile(text: &str) -> Result<Self, String> {
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(format!("the schema has {} bytes; at most {MAX_SCHEMA_BYTES} are allowed", text.len()));
        }
        let document = strict::parse(text).map_err(|error| format!("the schema is not JSON: {error}"))?;
        let unusable = |error: String| format!("the schema is not usable: {error}");
        let cost = measure(&document).map_err(unusable)?;
        let tables = usize::try_from(MATCHER_TABLES / 4).unwrap_or(usize::MAX);
        let patterns = PatternOptions::regex().size_limit(MAX_AUTOMATON).dfa_size_limit(tables);
        // Since draft 2019-09 `format` is an annotation by default. Extensions promise their clients that it is
        // checked.
        let options = jsonschema::options().should_validate_formats(true).with_pattern_options(patterns);
        // The error message may quote the whole schema.
        let validator =
            options.build(&document).map_err(|error| unusable(cut(error.to_string(), MAX_MESSAGE_BYTES)))?;
        Ok(Self { validator, cost, _kept: None, is_pinned: false })
    }

    /// Upper bound of the memory that the compiled schema takes, in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        usize::try_from(self.cost.weight()).unwrap_or(usize::MAX)
    }

    pub(crate) fn keep(self, reservation: Reservation) -> Self {
        Self { _kept: Some(reservation), ..self }
    }

    pub(crate) fn pin(self, reservation: Reservation) -> Self {
        Self { is_pinned: true, ..self.keep(reservation) }
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.is_pinned
    }

    /// Validates on this thread if the work is small. Otherwise returns [`Attempt::TooMuch`].
    pub(crate) fn attempt(&self, instance: &str) -> Attempt {
        // Parsing alone would take too long on a thread that serves other requests.
        if instance.len() > SMALL_INSTANCE {
            return Attempt::TooMuch;
        }
        self.validate_with(instance, Effort::Small).map_or(Attempt::TooMuch, Attempt::Done)
    }

    /// Upper bound of the CPU time for validating an instance. The bound includes the time for listing the violations,
    /// unless the list would be too large to be made. The validation refuses an instance whose bound is above one
    /// second.
    ///
    /// # Errors
    /// The instance is not JSON.
    pub fn bound(&self, instance: &str) -> Result<Duration, String> {
        let document = strict::parse(instance).map_err(|error| error.to_string())?;
        let size = Size::of(&document, instance.len());
        let listed = self.cost.to_list(&size);
        let is_listed = listed <= MAX_WORK && self.cost.violations(&size) <= MAX_LIST;
        Ok(Duration::from_nanos(if is_listed { listed } else { self.cost.to_judge(&size) }))
    }

    /// Validates an instance on this thread, in at most one second. Returns the violations, up to a limit.
    ///
    /// # Errors
    /// The instance is not JSON, or too large for this schema.
    pub fn validate(&self, instance: &str) -> Result<Vec<Violation>, String> {
        let too_large =
            || Err("the instance is not usable: it is too large for this schema to be validated".to_owned());
        self.validate_with(instance, Effort::Full).unwrap_or_else(too_large)
    }

    /// Validates an instance with at most this work. `None` if the validation would need more.
    fn validate_with(&self, instance: &str, effort: Effort) -> Option<Result<Vec<Violation>, String>> {
        if instance.len() > MAX_INSTANCE {
            let reason = format!("it has {} bytes; at most {MAX_INSTANCE} are allowed", instance.len());
            return Some(Err(format!("the instance is not usable: {reason}")));
        }
        let document = match strict::parse(instance) {
            Ok(document) => document,
            Err(error) => return Some(Err(format!("the instance is not usable: {error}"))),
        };
        let size = Size::of(&document, instance.len());
        let (work, list) = effort.limits();
        if self.cost.to_judge(&size) > work {
            return None;
        }
        // Listing violations costs more than deciding whether there are any, so it happens only for invalid
        // instances.
        if self.validator.is_valid(&document) {
            return Some(Ok(Vec::new()));
        }
        if self.cost.to_list(&size) <= work && self.cost.violations(&size) <= list {
            return Some(Ok(self.violations(&document)));
        }
        match effort {
            Effort::Small => None,
            Effort::Full => {
                // The instance is invalid, so the answer is no even if listing the reasons costs too much.
                let message = "does not match the schema; it is too large to say where".to_owned();
                Some(Ok(vec![Violation { pointer: String::new(), message }]))
            }
        }
    }

    fn violations(&self, document: &Value) -> Vec<Violation> {
        self.validator.iter_errors(document).take(MAX_VIOLATIONS).map(|error| Violation::of(&error)).collect()
    }
}

impl Effort {
    /// The limits on nanoseconds of work, and on bytes of violations.
    fn limits(self) -> (u64, u64) {
        match self {
            Self::Small => (SMALL_WORK, SMALL_LIST),
            Self::Full => (MAX_WORK, MAX_LIST),
        }
    }
}

impl Violation {
    fn of(error: &jsonschema::ValidationError<'_>) -> Self {
        Self { pointer: error.instance_path().to_string(), message: cut(error.to_string(), MAX_MESSAGE_BYTES) }
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Schema").field("cost", &self.cost).finish_non_exhaustive()
    }
}
