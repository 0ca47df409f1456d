//! Parses commands, and carries out the commands that every hook supports. `test-steering` uses this file too.

use std::hint::black_box;
use std::process::abort;
use std::sync::atomic::{AtomicUsize, Ordering};

use annex_sdk::{ExtensionError, Violation, log, schema};

/// An error code outside of the ranges of JSON-RPC and A2A.
const OWN_CODE: i32 = -32_950;
/// The code of A2A's `TaskNotFoundError`.
const FORGED_CODE: i32 = -32_001;

/// The default number of lines of `log-flood`.
const DEFAULT_LINES: usize = 100_000;
/// The default number of bytes of `big-result`.
const DEFAULT_BYTES: usize = 1 << 20;
/// The default number of levels of `deep-json`.
const DEFAULT_DEPTH: usize = 10_000;

/// The number of calls in this instance in which the command `turn` has behaved well.
static BEHAVED: AtomicUsize = AtomicUsize::new(0);

/// The command for a hook: `name`, or `name amount`.
pub(crate) struct Command<'a> {
    hook: &'static str,
    pub(crate) name: &'a str,
    amount: Option<usize>,
}

impl<'a> Command<'a> {
    /// Parses a command. A command that comes to an end by itself, such as a flood of log lines, a schema or a loop, is
    /// run here. The hook then continues as if it had no command.
    pub(crate) fn of(hook: &'static str, text: Option<&'a str>) -> Self {
        let text = text.unwrap_or("ok");
        let (name, amount) = text.split_once(' ').unwrap_or((text, ""));
        let amount = amount.parse().ok();
        match (name, amount) {
            ("log-flood", lines) => {
                (0..lines.unwrap_or(DEFAULT_LINES)).for_each(|line| log::info(&format!("line {line}")));
            }
            ("new-schema", number) => {
                let schema = format!(r#"{{"const":{}}}"#, number.unwrap_or_default());
                schema::validate(&schema, "1").unwrap_or_else(|error| fail(&error));
            }
            // `black_box` keeps the compiler from removing a loop that does nothing.
            ("loop", Some(rounds)) => (0..rounds).for_each(|_| black_box(())),
            _ => return Self { hook, name, amount },
        }
        Self { hook, name: "ok", amount: None }
    }

    /// The text of an error without a code.
    pub(crate) fn refusal(&self) -> String {
        format!("{} was told to fail", self.hook)
    }

    /// An error with a code of the extension's own, or with a code that no extension may use.
    pub(crate) fn extension_error(&self) -> ExtensionError {
        // The codes of A2A belong to the host, which must refuse this one.
        let code = if self.name == "forged-code" { FORGED_CODE } else { OWN_CODE };
        let data = match self.name {
            "bad-json" => "{".to_owned(),
            "big-result" => format!("\"{}\"", self.filler()),
            "deep-json" | "odd-json" => self.unreadable(),
            _ => format!(r#"{{"hook":"{}"}}"#, self.hook),
        };
        ExtensionError { code, message: format!("{} was told to refuse", self.hook), data: Some(data) }
    }

    /// A text of the requested length.
    pub(crate) fn filler(&self) -> String {
        "x".repeat(self.amount.unwrap_or(DEFAULT_BYTES))
    }

    /// JSON that some readers refuse. `odd-json` selects by number: half of a surrogate pair, 400 digits, a large
    /// exponent, or a repeated key. Other commands give nested arrays of the requested depth.
    pub(crate) fn unreadable(&self) -> String {
        match (self.name, self.amount) {
            ("odd-json", Some(0)) => r#""\ud800""#.to_owned(),
            ("odd-json", Some(1)) => "9".repeat(400),
            ("odd-json", Some(2)) => "1e999999".to_owned(),
            ("odd-json", _) => r#"{"k":1,"k":2}"#.to_owned(),
            (_, depth) => {
                let depth = depth.unwrap_or(DEFAULT_DEPTH);
                "[".repeat(depth) + &"]".repeat(depth)
            }
        }
    }

    /// The requested number of violations, each with a long text.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        (0..self.amount.unwrap_or_default())
            .map(|number| Violation::new(format!("/{number}"), "x".repeat(20)))
            .collect()
    }

    /// Counts the call. The command `turn` behaves well in as many calls as its argument says. Returns true in each
    /// later call.
    pub(crate) fn has_turned(&self) -> bool {
        BEHAVED.fetch_add(1, Ordering::Relaxed) >= self.amount.unwrap_or_default()
    }

    /// Misbehaves as the command names. Every hook supports these commands.
    pub(crate) fn misbehave(&self) -> ! {
        match self.name {
            "loop" => spin(),
            "trap" => abort(),
            "panic" => fail(&format!("{} was told to panic", self.hook)),
            "memory-bomb" => fill_memory(),
            "costly-pattern" => match_for_ever(),
            "costly-schema" => compare_for_ever(),
            "schema" => misuse_schemas(self.amount.unwrap_or_default()),
            "stack-overflow" => fail(&format!("survived {} levels", recurse(0))),
            other => fail(&format!("{} knows no command `{other}`", self.hook)),
        }
    }
}

fn spin() -> ! {
    loop {
        black_box(());
    }
}

fn fill_memory() -> ! {
    let mut blocks = Vec::new();
    loop {
        // Ones and not zeros, because the host allocates no memory for unwritten pages.
        blocks.push(black_box(vec![1_u8; 1 << 20]));
    }
}

/// Makes host calls without end. Each call is the largest work that the host accepts.
fn validate_for_ever(schema: &str, instance: &str) -> ! {
    loop {
        if let Err(error) = schema::validate(schema, instance) {
            fail(&error);
        }
    }
}

/// Validates many patterns on a long text, without end.
fn match_for_ever() -> ! {
    let patterns = vec![r#"{"pattern":"(a|b|ab)*c"}"#; 50].join(",");
    validate_for_ever(&format!(r#"{{"anyOf":[{patterns}]}}"#), &format!("\"{}\"", "ab".repeat(2_500)))
}

/// Validates many items against many values that none of them has, without end.
fn compare_for_ever() -> ! {
    let values = vec![r#"{"const":1}"#; 1_500].join(",");
    validate_for_ever(&format!(r#"{{"items":{{"anyOf":[{values}]}}}}"#), &format!("[{}]", vec!["2"; 199].join(",")))
}

/// Validates by costly schemas, without end. `number` selects a schema that would cost the host seconds or gigabytes in
/// one call.
fn misuse_schemas(number: usize) -> ! {
    let text = |length: usize| format!("\"{}\"", "ab".repeat(length / 2));
    let list = |count: usize, schema: &dyn Fn(usize) -> String| (0..count).map(schema).collect::<Vec<_>>().join(",");
    match number {
        // Unevaluated properties, at 45 levels.
        0 => validate_for_ever(&unevaluated(), r#"{"a":1}"#),
        // Different patterns with large automata.
        1 => {
            let patterns = list(1_500, &|count| format!(r#"{{"pattern":"\\p{{L}}{{{count}}}"}}"#));
            validate_for_ever(&format!(r#"{{"anyOf":[{patterns}]}}"#), &text(10))
        }
        // One pattern that remembers much of a long text.
        2 => validate_for_ever(r#"{"pattern":"[ab]*a[ab]{1500}c"}"#, &text(250_000)),
        // Violations that each quote a long text.
        3 => {
            let lengths = list(2_000, &|length| format!(r#"{{"minLength":{}}}"#, 1_000_000 + length));
            validate_for_ever(&format!(r#"{{"anyOf":[{lengths}]}}"#), &text(900_000))
        }
        // The maximum work in one call that the host accepts: many texts, each read by many subschemas.
        4 => {
            let lengths = list(150, &|length| format!(r#"{{"maxLength":{}}}"#, length % 9));
            let texts = list(20_000, &|_| "\"0123456789\"".to_owned());
            validate_for_ever(&format!(r#"{{"items":{{"anyOf":[{lengths}]}}}}"#), &format!("[{texts}]"))
        }
        // A new schema in each call, so that each is compiled.
        5 => {
            for number in 0_u64..=u64::MAX {
                let pattern = format!("^[a-z0-9]{{1,{}}}x{number}$", 1 + number % 200);
                let _ = black_box(schema::validate(&format!(r#"{{"pattern":"{pattern}"}}"#), "\"a\""));
            }
        }
        other => fail(&format!("there is no schema {other}")),
    }
    spin()
}

/// A schema of less than two kilobytes, each of whose 45 levels doubles the time of a validation.
pub(crate) fn unevaluated() -> String {
    (0..45).fold("true".to_owned(), |inner, _| format!(r#"{{"anyOf":[{inner}],"unevaluatedProperties":false}}"#))
}

/// Recurses without end, unless the compiler turns it into a loop.
fn recurse(level: u64) -> u64 {
    let frame = black_box([level; 64]);
    // The addition follows the call, so that it is not a tail call.
    if black_box(false) { level } else { recurse(level + 1) + frame.len() as u64 }
}

#[track_caller]
#[expect(clippy::panic, reason = "it is what the component is for")]
pub(crate) fn fail(message: &str) -> ! {
    panic!("{message}")
}
