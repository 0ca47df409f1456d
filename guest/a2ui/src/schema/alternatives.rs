//! Keywords that try schemas: `anyOf`, `oneOf`, `if`.

use annex_sdk::Violation;
use serde_json::{Map, Value};

use super::{Evaluated, Node, Walk};

impl<'a> Walk<'a> {
    /// `anyOf` and `oneOf`. If no schema fits, the violations are those of the schema that came furthest.
    pub(super) fn alternatives<'v>(
        &mut self,
        keyword: &str,
        node: Node<'a>,
        value: &'v Value,
        depth: u32,
    ) -> Evaluated<'v> {
        let mut evaluated = Vec::new();
        let mut fitting = 0;
        let mut nearest: Option<(usize, Vec<Violation>)> = None;
        let schemas = node.schema.as_array().map(Vec::as_slice).unwrap_or_default();
        for schema in schemas {
            match self.attempt(Node { schema, ..node }, value, depth) {
                Ok(found) => {
                    fitting += 1;
                    self.adopt(&mut evaluated, found);
                }
                Err(violations) => {
                    let reach = violations.iter().map(|violation| violation.pointer.len()).min().unwrap_or_default();
                    if nearest.as_ref().is_none_or(|(best, _)| reach > *best) {
                        nearest = Some((reach, violations));
                    }
                }
            }
        }
        if fitting == 0 {
            match nearest {
                Some((reach, violations)) if reach > self.at.len() || schemas.len() == 1 => {
                    self.add(violations);
                }
                _ => self.wrong("has none of the forms that are allowed here"),
            }
        } else if fitting > 1 && keyword == "oneOf" {
            self.wrong("has more than one of the forms of which one is allowed here");
        }
        evaluated
    }

    /// `if`, with its `then` and `else`.
    pub(super) fn condition<'v>(
        &mut self,
        schema: &'a Map<String, Value>,
        node: Node<'a>,
        value: &'v Value,
        depth: u32,
    ) -> Evaluated<'v> {
        let fits = self.fits(node, value, depth);
        let branch = schema.get(if fits.is_some() { "then" } else { "else" });
        let mut evaluated = fits.unwrap_or_default();
        if let Some(schema) = branch {
            let names = self.check(Node { schema, ..node }, value, depth);
            self.adopt(&mut evaluated, names);
        }
        evaluated
    }

    /// The members that the schema evaluates, if the value fits.
    pub(super) fn fits<'v>(&mut self, node: Node<'a>, value: &'v Value, depth: u32) -> Option<Evaluated<'v>> {
        self.attempt(node, value, depth).ok()
    }

    /// Checks, and takes the violations out of the walk.
    fn attempt<'v>(&mut self, node: Node<'a>, value: &'v Value, depth: u32) -> Result<Evaluated<'v>, Vec<Violation>> {
        // The limit on violations counts those of this attempt alone.
        let before = std::mem::take(&mut self.violations);
        let evaluated = self.check(node, value, depth);
        let violations = std::mem::replace(&mut self.violations, before);
        if violations.is_empty() { Ok(evaluated) } else { Err(violations) }
    }
}
