//! `$ref`, and the components and functions of a catalogue, which are found by their names.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::{Evaluated, NAMES_OF_A_STEP, Node, Walk};
use crate::catalogue::Document;

impl<'a> Walk<'a> {
    /// Follows a `$ref`. References to the unions of a catalogue become a look-up by name.
    pub(super) fn reference<'v>(&mut self, node: Node<'a>, value: &'v Value, depth: u32) -> Evaluated<'v> {
        let Some((document, pointer)) = node.schema.as_str().and_then(|reference| reference.split_once('#')) else {
            self.wrong("cannot be checked: the schema has a reference without #");
            return Vec::new();
        };
        let is_catalogue = document.ends_with("catalog.json") || document.is_empty();
        match pointer {
            "/$defs/anyComponent" if is_catalogue => return self.component(value, depth),
            "/$defs/anyFunction" if is_catalogue => return self.function(value, depth),
            _ => {}
        }
        let root = match document {
            "" => node.root,
            _ if document.ends_with("common_types.json") => self.common,
            _ if document.ends_with("catalog.json") => match self.surface {
                Document::Known(root) => root,
                Document::Opaque | Document::Missing => return all(value),
            },
            _ => {
                self.wrong(&format!("cannot be checked: the schema refers to {document}"));
                return Vec::new();
            }
        };
        match root.pointer(pointer) {
            Some(schema) => self.once(Node { root, schema }, value, depth),
            // A catalogue need not have a theme.
            None if !document.is_empty() && is_catalogue => all(value),
            None => {
                self.wrong(&format!("cannot be checked: the schema has no {pointer}"));
                Vec::new()
            }
        }
    }

    /// Checks by a schema to which a reference leads, once for each value.
    fn once<'v>(&mut self, node: Node<'a>, value: &'v Value, depth: u32) -> Evaluated<'v> {
        let Some(members) = value.as_object().filter(|_| !self.is_apart) else {
            return self.check(node, value, depth);
        };
        let key = (std::ptr::from_ref(node.schema).addr(), std::ptr::from_ref(value).addr());
        if let Some((names, violations)) = self.known.get(&key).cloned() {
            self.add(violations);
            return names.iter().filter_map(|name| Some(members.get_key_value(name)?.0.as_str())).collect();
        }
        let before = std::mem::take(&mut self.violations);
        let evaluated = self.check(node, value, depth);
        let violations = std::mem::replace(&mut self.violations, before);
        self.add(violations.iter().cloned());
        self.known.insert(key, (evaluated.iter().map(|name| (*name).to_owned()).collect(), violations));
        evaluated
    }

    /// A component: its name leads to its schema. In 0.8 the name is the only member.
    fn component<'v>(&mut self, value: &'v Value, depth: u32) -> Evaluated<'v> {
        let wrapped = value.as_object().filter(|_| self.common.get("$defs").is_none());
        let (name, value, is_wrapped) = match wrapped.map(|members| (members.len(), members.iter().next())) {
            Some((1, Some((name, member)))) => (Some(name.as_str()), member, true),
            Some(_) => (None, value, true),
            None => (value.get("component").and_then(Value::as_str), value, false),
        };
        let Some(name) = name else {
            let reason = if wrapped.is_some() {
                "has one member, the name of the component"
            } else {
                "has no name in `component`"
            };
            self.wrong(reason);
            return Vec::new();
        };
        let Some(document) = self.document_of(value) else { return all(value) };
        let key = if is_wrapped { name } else { "component" };
        let Document::Known(root) = document else { return all(value) };
        match root.get("components").and_then(|components| components.get(name)) {
            Some(schema) if is_wrapped => {
                self.below(key, |walk| walk.check(Node { root, schema }, value, depth));
                Vec::new()
            }
            Some(schema) => self.check(Node { root, schema }, value, depth),
            None => {
                self.below(key, |walk| walk.wrong(&format!("the catalogue has no component {name}")));
                all(value)
            }
        }
    }

    /// A call of a function: its name leads to its schema.
    fn function<'v>(&mut self, value: &'v Value, depth: u32) -> Evaluated<'v> {
        let key = if value.get("@call").is_some() { "@call" } else { "call" };
        let Some(name) = value.get(key).and_then(Value::as_str) else {
            self.wrong("is no call of a function");
            return Vec::new();
        };
        let Some(document) = self.document_of(value) else { return all(value) };
        // Names that begin with @ are not of a catalogue.
        let is_of_catalogue = !name.starts_with('@');
        let Document::Known(root) = document else {
            if !is_of_catalogue {
                self.wrong(&format!("the catalogue has no function {name}"));
            }
            return all(value);
        };
        match root.get("functions").filter(|_| is_of_catalogue) {
            Some(Value::Object(functions)) if functions.contains_key(name) => {
                functions.get(name).map(|schema| self.once(Node { root, schema }, value, depth)).unwrap_or_default()
            }
            Some(Value::Array(list)) if self.listed_function((root, list), name, value, depth) => all(value),
            _ => {
                self.below(key, |walk| walk.wrong(&format!("the catalogue has no function {name}")));
                all(value)
            }
        }
    }

    /// A function of a list, the form that catalogues of clients have: the schema is that of its arguments. False if the
    /// list does not have the function.
    fn listed_function(
        &mut self,
        (root, list): (&'a Value, &'a [Value]),
        name: &str,
        value: &Value,
        depth: u32,
    ) -> bool {
        static NONE: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
        self.take(list.len() / NAMES_OF_A_STEP);
        let Some(entry) = list.iter().find(|entry| entry.get("name").is_some_and(|found| found == name)) else {
            return false;
        };
        if let Some(schema) = entry.get("parameters") {
            let args = value.get("args").unwrap_or(&NONE);
            self.below("args", |walk| walk.once(Node { root, schema }, args, depth).len());
        }
        true
    }

    /// The catalogue of a component or a call: its own one, or that of the surface. `None` if the client does not offer it.
    fn document_of(&mut self, value: &Value) -> Option<Document<'a>> {
        let Some(id) = value.get("catalogId").and_then(Value::as_str) else { return Some(self.surface) };
        match self.catalogues.find(id) {
            Document::Missing => {
                let reason = format!("the client does not offer the catalogue {id}");
                self.below("catalogId", |walk| walk.wrong(&reason));
                None
            }
            found => Some(found),
        }
    }
}

/// All members of a value without a schema.
fn all(value: &Value) -> Evaluated<'_> {
    value.as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect()
}
