//! Measures the real cost of schemas and instances against the predicted bounds.

mod generate;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use annex_schema::{Schema, Schemas, ValidatorBudget, Workers};
use fastrand::Rng;
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// Held while memory is measured, because all tests share the process.
static MEASURED: Mutex<()> = Mutex::new(());

/// The factors hold for optimised code.
const SLOWER: u32 = if cfg!(debug_assertions) { 8 } else { 1 };
/// Time that is not caused by the schema: a kernel tick, the first use of a table, a page fault.
const GRACE: Duration = Duration::from_millis(12);
/// Most CPU time for compiling any schema.
const MAX_COMPILE: Duration = Duration::from_secs(1);
/// The most additional memory in bytes that a compilation or validation may use while it runs.
const MAX_WORKING: usize = 96 << 20;
/// Number of schemas in the property test, each with several instances.
const SCHEMAS: usize = 1_500;

/// Admitted keywords that do work.
const KEYWORDS: [&str; 44] = [
    "type",
    "minimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
    "minLength",
    "maxLength",
    "format",
    "contentEncoding",
    "contentMediaType",
    "pattern",
    "const",
    "enum",
    "required",
    "dependentRequired",
    "uniqueItems",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "contentSchema",
    "$defs",
    "dependentSchemas",
    "dependencies",
    "properties",
    "additionalProperties",
    "propertyNames",
    "patternProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$ref",
    "$schema",
];

/// CPU time of this thread, which the kernel updates at each of its ticks.
fn cpu_of<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let now = || {
        let counted = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
        let nanos = counted.split(' ').next().and_then(|nanos| nanos.parse().ok());
        Duration::from_nanos(nanos.expect("nanoseconds"))
    };
    let began = now();
    let done = work();
    (done, now().saturating_sub(began))
}

/// Compiles and validates, and compares the cost with the bounds.
fn check(schema: &str, instances: &[String]) {
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    let (compiled, time) = cpu_of(|| Schema::compile(schema));
    assert!(time <= MAX_COMPILE * SLOWER + GRACE, "compiling took {time:?}: {}", shown(schema));
    for instance in instances {
        let Ok(compiled) = &compiled else { break };
        let Ok(bound) = compiled.bound(instance) else { continue };
        let (_, parsing) = cpu_of(|| compiled.bound(instance));
        let (validated, time) = cpu_of(|| compiled.validate(instance));
        assert!(
            time <= bound * SLOWER + 2 * parsing + GRACE,
            "{time:?} of {bound:?}, {:?}\nschema: {}\ninstance: {}",
            validated.map(|violations| violations.len()),
            shown(schema),
            shown(instance),
        );
    }
    let working = ALLOCATED.peak_usage() - before;
    assert!(working <= MAX_WORKING, "{working} bytes: {}", shown(schema));
    if let Ok(compiled) = compiled {
        let kept = ALLOCATED.current_usage().saturating_sub(before);
        assert!(kept <= compiled.weight() + (64 << 10), "{kept} bytes of {}: {}", compiled.weight(), shown(schema));
    }
}

fn shown(text: &str) -> &str {
    text.get(..text.floor_char_boundary(4_000)).unwrap_or_default()
}

#[test]
fn no_validation_costs_more_than_its_bound() {
    let _measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    let schemas = std::env::var("ANNEX_SCHEMAS").ok().and_then(|count| count.parse().ok()).unwrap_or(SCHEMAS);
    let first = std::env::var("ANNEX_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut admitted = 0;
    let mut missing = KEYWORDS.to_vec();
    for seed in (first..).take(schemas) {
        let mut random = Rng::with_seed(seed);
        let schema = generate::schema(&mut random).to_string();
        let instances: Vec<String> = (0..4).map(|_| generate::instance(&mut random).to_string()).collect();
        if Schema::compile(&schema).is_ok() {
            admitted += 1;
            missing.retain(|keyword| !schema.contains(&format!("\"{keyword}\":")));
        }
        check(&schema, &instances);
    }
    assert!(missing.is_empty(), "these keywords were never tried: {missing:?}");
    assert!(admitted > schemas / 3, "only {admitted} of {schemas} were admitted, too few to tell");
}

/// The expected outcome of an attack.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    /// The schema is refused with this text.
    Refused(&'static str),
    /// The instance is too large for the schema.
    TooLarge,
    /// The instance is validated within its bound.
    Done,
}

/// Schemas and instances that once cost the host seconds or gigabytes, or were designed to.
fn attacks() -> Vec<(Outcome, Value, Value)> {
    let deep = (0..45).fold(
        json!({"unevaluatedProperties": false}),
        |inner, _| json!({"anyOf": [inner], "unevaluatedProperties": false}),
    );
    let properties = |count: usize, schema: &dyn Fn(usize) -> Value| json!({"properties": (0..count).map(|number| (format!("p{number}"), schema(number))).collect::<serde_json::Map<_, _>>()});
    let long = json!("x".repeat(900_000));
    let choice =
        |schema: &dyn Fn(usize) -> Value, count: usize| json!({"anyOf": (0..count).map(schema).collect::<Vec<_>>()});
    let trees: Vec<Value> = (0..1 << 14).map(tree).collect();
    let colliding: Vec<Value> = (0..40_000).map(|low: u64| json!((1_u64 << 63) + low)).collect();
    let nested = (0..60).fold(json!({"type": "integer"}), |inner, _| json!({"anyOf": [inner, false]}));
    let nothing = |count: usize| Value::from(vec![json!({}); count]);
    let names = |count: usize| (0..count).map(|number| json!(format!("n{number}"))).collect::<Value>();
    let groups: String = (0..80_000).map(|number| format!("(?<g{number}>)")).collect();
    let decoy: serde_json::Map<String, Value> = (0..40).map(|level| (format!("a{level}"), json!(true))).collect();
    let real: serde_json::Map<String, Value> = (0..40)
        .map(|level| {
            let next = json!({"$ref": format!("#/%24defs/a{}", level + 1)});
            (format!("a{level}"), json!({"allOf": [next, next]}))
        })
        .collect();
    let keys = properties(30_000, &|_| json!(1)).as_object().and_then(|object| object.get("properties").cloned());
    vec![
        (Outcome::Refused("no bound beside anyOf"), deep, json!({"a": 1})),
        (
            Outcome::Refused("automat"),
            properties(1_500, &|number| json!({"pattern": format!("\\p{{L}}{{{number}}}")})),
            json!({"p1": "a"}),
        ),
        (Outcome::TooLarge, json!({"pattern": "[ab]*a[ab]{1500}c"}), json!("ab".repeat(125_000))),
        (Outcome::TooLarge, json!({"pattern": "[ab]*a[ab]{150}c"}), json!("ab".repeat(125_000))),
        (Outcome::Done, json!({"pattern": "[ab]*a[ab]{150}c"}), json!("ab".repeat(25_000))),
        (Outcome::TooLarge, choice(&|number| json!({"minLength": 1_000_000 + number}), 2_000), long.clone()),
        (Outcome::TooLarge, choice(&|_| json!({"format": "uri"}), 500), long.clone()),
        (Outcome::Done, choice(&|number| json!({"const": format!("{number}")}), 2_000), long.clone()),
        (Outcome::TooLarge, json!({"uniqueItems": true}), Value::from(trees)),
        (Outcome::TooLarge, json!({"uniqueItems": true}), Value::from(colliding)),
        (Outcome::Refused("nests deeper"), nested, json!("x".repeat(200_000))),
        (Outcome::Done, properties(1, &|_| properties(400, &|_| json!({"type": "null"}))), json!({"p0": {"p1": 1}})),
        (Outcome::Done, json!({"pattern": "\\d".repeat(512)}), json!("1")),
        (Outcome::Refused("automat"), json!({"pattern": "\\p{L}|".repeat(170)}), json!("1")),
        (
            Outcome::Done,
            json!({"propertyNames": {"maxLength": 3, "pattern": "^[a-z]+$"}}),
            json!({"k".repeat(500_000): 1}),
        ),
        (Outcome::Done, json!({"additionalProperties": false}), keys.expect("an object")),
        // Each missing name is a violation that contains the whole path.
        (Outcome::Done, json!({"additionalProperties": {"required": names(4_000)}}), json!({"k".repeat(900_000): {}})),
        (Outcome::Done, json!({"items": {"required": names(2_000)}}), nothing(2_000)),
        (Outcome::Refused("format regex"), json!({"format": "regex"}), json!(groups)),
        // The validator decodes the reference and would reach another schema than the measurement.
        (
            Outcome::Refused("an escape with %"),
            json!({"$ref": "#/%24defs/a0", "%24defs": decoy, "$defs": real}),
            json!(1),
        ),
        (Outcome::TooLarge, json!(true), json!("x".repeat(2 << 20))),
    ]
}

/// A distinct nested array per number: the bits of the number open and close brackets.
fn tree(number: u32) -> Value {
    let mut open: Vec<Vec<Value>> = vec![Vec::new()];
    for bit in 0..14 {
        if number >> bit & 1 == 1 {
            open.push(Vec::new());
        } else if open.len() > 1 {
            let closed = Value::from(open.pop().unwrap_or_default());
            open.last_mut().expect("one is left").push(closed);
        }
    }
    open.into_iter().rev().fold(json!(null), |inner, mut items| {
        items.push(inner);
        Value::from(items)
    })
}

#[test]
fn attacks_are_refused_or_stay_within_their_bound() {
    let _measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    for (expected, schema, instance) in attacks() {
        let schema = schema.to_string();
        let instance = instance.to_string();
        check(&schema, std::slice::from_ref(&instance));
        let ended = Schema::compile(&schema).map(|compiled| compiled.validate(&instance));
        match (expected, ended) {
            (Outcome::Refused(words), Err(reason)) => assert!(reason.contains(words), "{reason}"),
            (Outcome::TooLarge, Ok(Err(reason))) => {
                assert!(reason.contains("too large") || reason.contains("at most"), "{reason}");
            }
            (Outcome::Done, Ok(Ok(_))) => {}
            (expected, ended) => unreachable!("{expected:?}: {ended:?} of {}", shown(&schema)),
        }
    }
}

#[test]
fn validators_are_weighed_and_the_oldest_go() {
    let _measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    let executor = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("an executor");
    executor.block_on(weigh());
}

async fn weigh() {
    let budget = ValidatorBudget::new(6 << 20);
    let schemas = Schemas::new(&budget, Workers::new(1));
    let before = ALLOCATED.current_usage();
    let mut spent = Duration::ZERO;
    for number in 0..300 {
        let pattern = format!(r#"{{"pattern": "^[a-z]{{{}}}x$"}}"#, number + 1);
        let instance = format!("{:?}", "a".repeat(1_000));
        schemas.validate(&pattern, &instance, Duration::from_secs(60), &mut spent).await.expect("usable");
        assert!(schemas.kept_bytes() <= 6 << 20, "{}", schemas.kept_bytes());
    }
    assert!(schemas.kept_bytes() > 3 << 20, "room is used: {}", schemas.kept_bytes());
    let kept = ALLOCATED.current_usage().saturating_sub(before);
    assert!(kept < 7 << 20, "{kept} bytes");
    drop(schemas);
    assert_eq!(budget.used(), 0, "what was kept is given back");
}
