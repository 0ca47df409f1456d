//! Random schemas of all admitted keywords, and random instances.

use fastrand::Rng;
use serde_json::{Map, Value, json};

const NAMES: [&str; 8] = ["a", "b", "c", "name", "p0", "p1", "items", "x-long-property-name"];
const PATTERNS: [&str; 12] = [
    "^[a-z]+$",
    "a",
    "^(a|b|c)$",
    "[ab]*a[ab]{20}c",
    "(a+)+$",
    "\\d{2,40}",
    "\\p{L}{1,5}",
    "^x-",
    "(x|y|(z{3}))*w",
    ".*.*=.*",
    "^\\S*$",
    "[^a]{1,60}b",
];
const FORMATS: [&str; 18] = [
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "iri",
    "iri-reference",
    "json-pointer",
    "relative-json-pointer",
    "time",
    "uri",
    "uri-reference",
    "uri-template",
    "uuid",
    "idn-hostname",
    "unknown",
];
const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];

fn of<'a>(random: &mut Rng, from: &[&'a str]) -> &'a str {
    random.choice(from).expect("not empty")
}

/// A random schema, usually an admitted one.
pub(crate) fn schema(random: &mut Rng) -> Value {
    let depth = random.usize(1..6);
    let mut root = object(random, depth);
    let definitions: Map<String, Value> =
        (0..3).map(|number| (format!("d{number}"), without_references(subschema(random, 2)))).collect();
    let members = root.as_object_mut().expect("an object");
    members.insert("$defs".to_owned(), definitions.into());
    if random.u8(..4) == 0 {
        let draft = *random
            .choice(
                [
                    "http://json-schema.org/draft-04/schema#",
                    "http://json-schema.org/draft-06/schema#",
                    "http://json-schema.org/draft-07/schema#",
                    "https://json-schema.org/draft/2019-09/schema",
                ]
                .as_slice(),
            )
            .expect("not empty");
        members.insert("$schema".to_owned(), draft.into());
    }
    root
}

/// Removes the references of a schema that other schemas refer to, so that no reference is circular.
fn without_references(schema: Value) -> Value {
    match schema {
        Value::Object(members) => {
            let members = members.into_iter().filter(|(name, _)| name != "$ref");
            Value::Object(members.map(|(name, member)| (name, without_references(member))).collect())
        }
        Value::Array(items) => items.into_iter().map(without_references).collect(),
        other => other,
    }
}

fn subschema(random: &mut Rng, depth: usize) -> Value {
    match random.u8(..10) {
        0 => Value::Bool(random.bool()),
        _ => object(random, depth),
    }
}

fn object(random: &mut Rng, depth: usize) -> Value {
    let mut members = Map::new();
    for _ in 0..random.usize(1..6) {
        let (name, value) =
            if depth == 0 || random.u8(..3) == 0 { assertion(random) } else { applicator(random, depth - 1) };
        members.insert(name.to_owned(), value);
    }
    Value::Object(members)
}

fn assertion(random: &mut Rng) -> (&'static str, Value) {
    let number = random.u32(..40);
    match random.u8(..24) {
        0 => ("type", of(random, &TYPES).into()),
        1 => ("minimum", number.into()),
        2 => ("exclusiveMaximum", number.into()),
        3 => ("multipleOf", (f64::from(number) / 8.0 + 0.125).into()),
        4 => ("minLength", number.into()),
        5 => ("maxLength", number.into()),
        6 => ("pattern", of(random, &PATTERNS).into()),
        7 => ("format", of(random, &FORMATS).into()),
        8 => ("minItems", number.into()),
        9 => ("maxItems", number.into()),
        10 => ("uniqueItems", true.into()),
        11 => ("minProperties", number.into()),
        12 => ("maxProperties", number.into()),
        13 => ("required", names(random)),
        14 => ("dependentRequired", json!({of(random, &NAMES): names(random)})),
        15 => ("const", value(random, 2)),
        16 => ("enum", (0..random.usize(1..30)).map(|_| value(random, 1)).collect()),
        17 => ("contentEncoding", "base64".into()),
        18 => ("contentMediaType", "application/json".into()),
        19 if random.u8(..10) == 0 => ("unevaluatedProperties", random.bool().into()),
        20 if random.u8(..10) == 0 => ("unevaluatedItems", random.bool().into()),
        21 => ("minContains", number.into()),
        22 => ("maxContains", number.into()),
        _ => ("$ref", format!("#/$defs/d{}", random.u8(..3)).into()),
    }
}

fn names(random: &mut Rng) -> Value {
    if random.u8(..8) == 0 {
        // Each name may be missing.
        return (0..random.usize(1..400)).map(|number| Value::from(format!("n{number}"))).collect();
    }
    let mut names: Vec<&str> = NAMES.to_vec();
    random.shuffle(&mut names);
    names.truncate(random.usize(1..4));
    names.into()
}

fn applicator(random: &mut Rng, depth: usize) -> (&'static str, Value) {
    let one = |random: &mut Rng| subschema(random, depth);
    let list = |random: &mut Rng| (0..random.usize(1..5)).map(|_| subschema(random, depth)).collect::<Value>();
    let map = |random: &mut Rng, keys: &[&str]| {
        let members = (0..random.usize(1..5)).map(|_| (of(random, keys).to_owned(), subschema(random, depth)));
        Value::Object(members.collect())
    };
    match random.u8(..18) {
        0 => ("allOf", list(random)),
        1 => ("anyOf", list(random)),
        2 => ("oneOf", list(random)),
        3 => ("not", one(random)),
        4 => ("if", one(random)),
        5 => ("then", one(random)),
        6 => ("else", one(random)),
        7 => ("dependentSchemas", map(random, &NAMES)),
        8 => ("items", one(random)),
        9 => ("prefixItems", list(random)),
        10 => ("contains", one(random)),
        11 => ("additionalProperties", one(random)),
        12 => ("propertyNames", one(random)),
        13 => ("patternProperties", map(random, &PATTERNS)),
        14 => ("dependencies", map(random, &NAMES)),
        15 => ("additionalItems", one(random)),
        16 => ("contentSchema", one(random)),
        _ => ("properties", map(random, &NAMES)),
    }
}

/// A random instance: a small one of any form, or a large one with few or many values.
pub(crate) fn instance(random: &mut Rng) -> Value {
    match random.u8(..10) {
        0 => text(random, 200_000),
        1 => (0..random.usize(..20_000)).map(|_| value(random, 0)).collect(),
        2 => (0..random.usize(..3_000)).map(|_| value(random, 2)).collect(),
        3 => Value::Object((0..random.usize(..3_000)).map(|number| (format!("a{number}"), value(random, 1))).collect()),
        // One long key that is part of the path of every value inside.
        4 => json!({"k".repeat(random.usize(..300_000)): value(random, 3)}),
        5 => (0..random.usize(..5_000)).map(|_| json!({})).collect(),
        _ => value(random, 5),
    }
}

fn value(random: &mut Rng, depth: usize) -> Value {
    match random.u8(..if depth == 0 { 6 } else { 10 }) {
        0 => Value::Null,
        1 => random.bool().into(),
        2 => random.u64(..50).into(),
        3 => random.u64(..).into(),
        4 => (random.f64() * 100.0).into(),
        5 => text(random, 60),
        6 | 7 => (0..random.usize(..18)).map(|_| value(random, depth - 1)).collect(),
        _ => {
            let members = (0..random.usize(..6)).map(|_| (of(random, &NAMES).to_owned(), value(random, depth - 1)));
            Value::Object(members.collect())
        }
    }
}

fn text(random: &mut Rng, most: usize) -> Value {
    let piece = of(random, &["ab", "a", "x-", "1", "é", "a.b@", "xn--a-", "{x}", "/~0", "=", "((a"]);
    piece.repeat(random.usize(..=most) / piece.len()).into()
}
