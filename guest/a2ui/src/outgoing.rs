//! Checks messages of an agent by their schema, by the catalogue of their surface, and by the offer of the client.

use annex_sdk::{Violation, pointer};
use serde_json::{Map, Value};

use crate::catalogue::{Catalogues, Document};
use crate::parts;
use crate::schema::{Node, Steps, Walk};
use crate::surfaces::Surfaces;
use crate::version::Version;

/// Checks messages of one turn.
#[derive(Debug)]
pub struct Judge<'a> {
    /// The version of A2UI.
    pub version: Version,
    /// The schemas of the version.
    pub schemas: &'a Value,
    /// The catalogues that surfaces may use.
    pub catalogues: &'a Catalogues<'a>,
    /// The surfaces of the conversation.
    pub surfaces: &'a mut Surfaces,
    /// The work that is left.
    pub(crate) steps: &'a Steps,
}

/// The effect of a message on a surface.
enum Effect<'a> {
    Creates(&'a str, String),
    Deletes(&'a str),
    None,
}

impl<'a> Judge<'a> {
    /// The violations of a message, which stands at `at`. A message without violations has its effect on the surfaces.
    ///
    /// # Errors
    /// The host's store is not available.
    pub fn violations(&mut self, message: &Value, at: &str) -> Result<Vec<Violation>, String> {
        let schemas = self.schemas;
        let none = Map::new();
        let kinds = schemas.get("agent").and_then(Value::as_object).unwrap_or(&none);
        let (kind, body) = match parts::kind_of(self.version, kinds, message, at) {
            Ok(found) => found,
            Err(violation) => return Ok(vec![violation]),
        };
        let at = pointer::child(at, kind);
        let (documents, effect) = match self.surface(kind, body, &at)? {
            Ok(found) => found,
            Err(violation) => return Ok(vec![violation]),
        };
        let Some(schema) = kinds.get(kind) else { return Ok(Vec::new()) };
        let mut wrong = self.by_schema(schema, body, &at, &documents);
        wrong.extend(repeated_ids(body, &at));
        if wrong.is_empty() {
            match effect {
                Effect::Creates(surface, catalogue) => self.surfaces.create(surface, &catalogue),
                Effect::Deletes(surface) => self.surfaces.delete(surface),
                Effect::None => {}
            }
        }
        Ok(wrong)
    }

    /// The violations of messages. Each message has its pointer below `at`.
    ///
    /// # Errors
    /// The host's store is not available.
    pub fn all(&mut self, messages: &[(&Value, String)], at: &str) -> Result<Vec<Violation>, String> {
        let mut wrong = Vec::new();
        for (message, below) in messages {
            wrong.extend(self.violations(message, &format!("{at}{below}"))?);
        }
        Ok(wrong)
    }

    /// The catalogues that a message may use, and its effect.
    fn surface<'m>(
        &self,
        kind: &str,
        body: &'m Value,
        at: &str,
    ) -> Result<Result<(Vec<Document<'a>>, Effect<'m>), Violation>, String> {
        let Some(surface) = body.get("surfaceId").and_then(Value::as_str) else {
            // The schema says whether it is needed.
            return Ok(Ok((self.catalogues.documents(), Effect::None)));
        };
        let known = self.surfaces.catalogue_of(surface)?;
        let wrong = |member: &str, reason: String| Ok(Err(Violation::new(format!("{at}{member}"), reason)));
        if matches!(kind, "createSurface" | "beginRendering") {
            // In 0.8 a surface begins to be shown as often as the agent likes.
            if known.is_some() && self.surfaces.are_certain() && kind == "createSurface" {
                return wrong("/surfaceId", format!("there is a surface {surface} already"));
            }
            return Ok(self.created(kind, body, at, surface));
        }
        let must_exist = matches!(self.version, Version::V0_9 | Version::V0_9_1) && self.surfaces.are_certain();
        let effect = if kind == "deleteSurface" { Effect::Deletes(surface) } else { Effect::None };
        match known {
            None if must_exist => wrong("/surfaceId", format!("no surface {surface} was created")),
            Some(id) if !id.is_empty() => match self.catalogues.find(&id) {
                Document::Missing if kind != "deleteSurface" => {
                    wrong("/surfaceId", format!("the client no longer offers the catalogue {id} of the surface"))
                }
                Document::Missing => Ok(Ok((vec![Document::Opaque], effect))),
                document => Ok(Ok((vec![document], effect))),
            },
            _ => Ok(Ok((self.catalogues.documents(), effect))),
        }
    }

    fn created<'m>(
        &self,
        kind: &str,
        body: &'m Value,
        at: &str,
        surface: &'m str,
    ) -> Result<(Vec<Document<'a>>, Effect<'m>), Violation> {
        let default = (kind == "beginRendering").then(|| self.version.basic_catalogue());
        let Some(id) = body.get("catalogId").and_then(Value::as_str).or(default) else {
            return Ok((self.catalogues.documents(), Effect::Creates(surface, String::new())));
        };
        match self.catalogues.find(id) {
            Document::Missing => {
                Err(Violation::new(format!("{at}/catalogId"), format!("the client does not offer the catalogue {id}")))
            }
            document => Ok((vec![document], Effect::Creates(surface, id.to_owned()))),
        }
    }

    /// The violations by the first catalogue, unless the body fits another one.
    fn by_schema(&self, schema: &'a Value, body: &Value, at: &str, documents: &[Document<'a>]) -> Vec<Violation> {
        let Some(common) = self.schemas.get("common") else { return Vec::new() };
        let mut first = None;
        for document in documents {
            let walk = Walk::new(common, self.catalogues, *document, at, self.steps);
            let wrong = walk.violations(Node { root: self.schemas, schema }, body);
            if wrong.is_empty() {
                return wrong;
            }
            first.get_or_insert(wrong);
        }
        first.unwrap_or_else(|| vec![Violation::new(at, "the client offers no catalogue")])
    }
}

/// Components of a list have different ids.
fn repeated_ids(body: &Value, at: &str) -> Vec<Violation> {
    let mut seen = std::collections::BTreeSet::new();
    let components = body.get("components").and_then(Value::as_array).into_iter().flatten();
    let ids = components.enumerate().filter_map(|(index, component)| Some((index, component.get("id")?.as_str()?)));
    ids.filter(|(_, id)| !seen.insert(*id))
        .map(|(index, id)| {
            Violation::new(format!("{at}/components/{index}/id"), format!("{id} is the id of two components"))
        })
        .collect()
}
