//! Checks a value by a JSON Schema of A2UI.
//!
//! The host's JSON Schema refuses schemas that refer to themselves, and `unevaluatedProperties` next to `allOf`. The schemas
//! of A2UI have both, so this module walks the schema, and the host checks patterns and formats alone. The walk is bounded
//! in depth and in steps, because clients may bring catalogues.

mod alternatives;
mod references;
mod values;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use annex_sdk::Violation;
use serde_json::{Map, Value};

use crate::catalogue::{Catalogues, Document};

/// Maximum nesting of the walk. A call of a function within another one takes about nine levels.
const MAX_DEPTH: u32 = 120;
/// The steps of all walks of a hook call. A step applies a schema to a value.
const MAX_STEPS: u32 = 60_000;
/// The steps for a pattern or a format, for which the host is called.
const HOST_STEPS: usize = 100;
/// The length of a pointer for which a schema takes one step more, in bytes.
const POINTER_OF_A_STEP: usize = 256;
/// The number of literals or names that a step compares or copies.
const NAMES_OF_A_STEP: usize = 16;
/// Maximum number of violations of one walk.
const MAX_VIOLATIONS: usize = 64;

/// A schema, and the document to which its `#` refers.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    pub(crate) root: &'a Value,
    pub(crate) schema: &'a Value,
}

/// The steps that are left to the walks of a hook call.
#[derive(Debug)]
pub(crate) struct Steps(Cell<u32>);

impl Steps {
    /// All steps of a hook call.
    pub(crate) fn new() -> Self {
        Self(Cell::new(MAX_STEPS))
    }

    /// Takes steps. False if there are not as many.
    fn take(&self, steps: usize) -> bool {
        let left = u32::try_from(steps).ok().and_then(|steps| self.0.get().checked_sub(steps));
        self.0.set(left.unwrap_or_default());
        left.is_some()
    }
}

/// A walk.
pub(crate) struct Walk<'a> {
    /// The document of the common types.
    common: &'a Value,
    catalogues: &'a Catalogues<'a>,
    /// The catalogue of the surface.
    surface: Document<'a>,
    violations: Vec<Violation>,
    /// The pointer to the value that is being checked.
    at: String,
    steps: &'a Steps,
    /// The outcomes of references by the addresses of the schema and the value. The schemas of A2UI apply a reference to
    /// a call more than once, so without this map the work would double with each call within a call.
    known: BTreeMap<(usize, usize), Outcome>,
    /// True while the checked value is not part of the message, so that its address may belong to another value later.
    is_apart: bool,
    /// The limit that ended the walk. All that was found before is not complete.
    stopped: Option<Violation>,
}

/// The names that a reference evaluates, and its violations.
type Outcome = (Vec<String>, Vec<Violation>);

/// Names of members that a schema has evaluated, for `unevaluatedProperties`.
type Evaluated<'v> = Vec<&'v str>;

impl<'a> Walk<'a> {
    /// A walk whose references to a catalogue lead to `surface`. `at` is the pointer to the checked value.
    pub(crate) fn new(
        common: &'a Value,
        catalogues: &'a Catalogues<'a>,
        surface: Document<'a>,
        at: impl Into<String>,
        steps: &'a Steps,
    ) -> Self {
        let (violations, known) = (Vec::new(), BTreeMap::new());
        Self { common, catalogues, surface, violations, at: at.into(), steps, known, is_apart: false, stopped: None }
    }

    /// The violations of the schema by the value.
    pub(crate) fn violations(mut self, node: Node<'a>, value: &Value) -> Vec<Violation> {
        self.check(node, value, 0);
        self.stopped.map_or(self.violations, |stopped| vec![stopped])
    }

    fn check<'v>(&mut self, node: Node<'a>, value: &'v Value, depth: u32) -> Evaluated<'v> {
        if !self.may_go_on(depth) {
            return Vec::new();
        }
        let Value::Object(schema) = node.schema else {
            if node.schema == &Value::Bool(false) {
                self.wrong("nothing may stand here");
            }
            return Vec::new();
        };
        if let Some(types) = schema.get("type")
            && !values::has_type(value, types)
        {
            self.wrong(&format!("is not of the type {}", values::list(types)));
            return Vec::new();
        }
        let mut evaluated = Vec::new();
        for (keyword, argument) in schema {
            if !self.take(values::steps(keyword, argument, value)) {
                return evaluated;
            }
            if let Some(reason) = values::objection(keyword, argument, value) {
                self.wrong(&reason);
            }
            let inner = Node { root: node.root, schema: argument };
            match keyword.as_str() {
                "$ref" => {
                    let names = self.reference(inner, value, depth + 1);
                    self.adopt(&mut evaluated, names);
                }
                "allOf" => {
                    for schema in argument.as_array().into_iter().flatten() {
                        let names = self.check(Node { schema, ..inner }, value, depth + 1);
                        self.adopt(&mut evaluated, names);
                    }
                }
                "anyOf" | "oneOf" => {
                    let names = self.alternatives(keyword, inner, value, depth + 1);
                    self.adopt(&mut evaluated, names);
                }
                "not" if self.fits(inner, value, depth + 1).is_some() => self.wrong("has a form that is not allowed"),
                "if" => {
                    let names = self.condition(schema, inner, value, depth + 1);
                    self.adopt(&mut evaluated, names);
                }
                "items" => self.items(inner, value, depth + 1),
                "propertyNames" => self.names(inner, value, depth + 1),
                _ => {}
            }
        }
        // Each schema looks at all names again, however many schemas apply to the value.
        if let Value::Object(members) = value
            && self.take(members.len() / NAMES_OF_A_STEP)
        {
            self.members((node, schema), members, &mut evaluated, depth + 1);
        }
        evaluated
    }

    /// Adds the names that a schema within another one has evaluated to those of the outer schema.
    pub(super) fn adopt<'v>(&mut self, evaluated: &mut Evaluated<'v>, names: Evaluated<'v>) {
        if self.take(names.len() / NAMES_OF_A_STEP) {
            evaluated.extend(names);
        }
    }

    /// `properties`, `patternProperties`, `additionalProperties` and `unevaluatedProperties`.
    fn members<'v>(
        &mut self,
        (node, schema): (Node<'a>, &'a Map<String, Value>),
        members: &'v Map<String, Value>,
        evaluated: &mut Evaluated<'v>,
        depth: u32,
    ) {
        let properties = schema.get("properties").and_then(Value::as_object);
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        let mut others = Vec::new();
        for (name, member) in members {
            let mut known = false;
            if let Some(schema) = properties.and_then(|properties| properties.get(name)) {
                known = true;
                self.below(name, |walk| walk.check(Node { schema, ..node }, member, depth));
            }
            for (pattern, schema) in patterns.into_iter().flatten() {
                if self.take(HOST_STEPS) && values::matches(pattern, name) {
                    known = true;
                    self.below(name, |walk| walk.check(Node { schema, ..node }, member, depth));
                }
            }
            if known {
                evaluated.push(name);
            } else {
                others.push((name, member));
            }
        }
        if let Some(schema) = schema.get("additionalProperties") {
            for (name, member) in others {
                self.other(name, Node { schema, ..node }, member, depth);
                evaluated.push(name);
            }
        } else if let Some(schema) = schema.get("unevaluatedProperties") {
            let found: BTreeSet<&str> = evaluated.iter().copied().collect();
            for (name, member) in others.into_iter().filter(|(name, _)| !found.contains(name.as_str())) {
                self.other(name, Node { schema, ..node }, member, depth);
            }
            evaluated.extend(members.keys().map(String::as_str));
        }
    }

    /// A member without a schema of its own.
    fn other(&mut self, name: &str, node: Node<'a>, member: &Value, depth: u32) {
        self.below(name, |walk| {
            if node.schema == &Value::Bool(false) {
                walk.wrong("there is no member of this name");
            } else {
                walk.check(node, member, depth);
            }
        });
    }

    fn items(&mut self, node: Node<'a>, value: &Value, depth: u32) {
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            self.below(&index.to_string(), |walk| walk.check(node, item, depth));
        }
    }

    fn names(&mut self, node: Node<'a>, value: &Value, depth: u32) {
        let was_apart = std::mem::replace(&mut self.is_apart, true);
        for name in value.as_object().into_iter().flat_map(Map::keys) {
            self.below(name, |walk| walk.check(node, &Value::from(name.as_str()), depth).len());
        }
        self.is_apart = was_apart;
    }

    /// Runs `inner` with the pointer one token deeper.
    fn below<T>(&mut self, token: &str, inner: impl FnOnce(&mut Self) -> T) {
        let length = self.at.len();
        self.at = annex_sdk::pointer::child(&self.at, token);
        inner(self);
        self.at.truncate(length);
    }

    fn wrong(&mut self, reason: &str) {
        self.add([Violation::new(self.at.clone(), reason)]);
    }

    /// Adds violations. Schemas of A2UI find some violations twice.
    fn add(&mut self, violations: impl IntoIterator<Item = Violation>) {
        for violation in violations {
            if self.violations.len() < MAX_VIOLATIONS && !self.violations.contains(&violation) {
                self.violations.push(violation);
            }
        }
    }

    /// Takes the step of a schema.
    fn may_go_on(&mut self, depth: u32) -> bool {
        if depth > MAX_DEPTH {
            self.stop("nests too deeply to be checked");
        }
        // Each violation repeats the pointer, whose names a stranger chooses.
        self.take(1 + self.at.len() / POINTER_OF_A_STEP)
    }

    /// Takes steps. Without steps the walk ends.
    fn take(&mut self, steps: usize) -> bool {
        if !self.steps.take(steps) {
            self.stop("takes too long to be checked");
        }
        self.stopped.is_none()
    }

    /// Ends the walk at a limit: nothing is taken that was not checked.
    fn stop(&mut self, reason: &str) {
        self.stopped.get_or_insert_with(|| Violation::new(self.at.clone(), reason));
    }
}
