//! `annex send --template`: a skeleton of the state that an agent takes, from the JSON Schema on its card.
//!
//! The schema comes from an untrusted agent, so it is checked before it is walked. No reference may lead back to
//! itself, and the schema must not be too large after every reference is expanded.

use annex_protocol::{AgentCard, ExtensionUri, Json, JsonObject};
use annex_schema::Schema;
use anyhow::{Context, anyhow};

use crate::pretty::pretty;
use crate::{output, state};

/// Prints the skeleton, and notes the optional properties.
///
/// # Errors
/// When no extension on the card takes state, or the schema cannot be used.
pub(crate) fn print(card: &AgentCard, requested: &[ExtensionUri]) -> anyhow::Result<()> {
    let uri = state::extension(requested, card)?;
    let schema = state::schema(card, &uri).with_context(|| format!("{uri} declares no state_schema"))?;
    let template = Template::of(schema)?;
    output::json(&template.json)?;
    output::note(&format!("This is what {uri} takes. Fill in what stands in <>, and send it with --state @FILE."));
    if !template.optional.is_empty() {
        output::note(&format!("May be left out: {}", template.optional.join(", ")));
    }
    Ok(())
}

/// A sample value for a schema. For a part of the schema with neither a default nor an example, it has a placeholder
/// such as `"<string>"`.
#[derive(Debug)]
struct Template {
    /// The sample value as indented JSON.
    json: String,
    /// JSON pointers to the optional properties.
    optional: Vec<String>,
}

impl Template {
    fn of(schema: &Json) -> anyhow::Result<Self> {
        let unusable = |reason: String| anyhow!("the agent's state schema cannot be used: {reason}");
        // Compiled only to check the schema: the walk below would not end in a schema with circular references.
        Schema::compile(schema.get()).map_err(unusable)?;
        let mut walk = Walk { root: schema, optional: Vec::new() };
        let json = walk.value(schema, "");
        let json = Json::parse(json).context("the agent's state schema has an example that is not JSON")?;
        Ok(Self { json: pretty(&json), optional: walk.optional })
    }
}

struct Walk<'a> {
    root: &'a Json,
    optional: Vec<String>,
}

impl Walk<'_> {
    /// Writes a sample value for `schema` as JSON text. The recursion ends because no reference leads back to itself.
    fn value(&mut self, schema: &Json, pointer: &str) -> String {
        let Ok(members) = JsonObject::parse(schema.get()) else { return placeholder("any value") };
        if let Some(target) = members.get("$ref").and_then(|reference| self.target(reference)) {
            return self.value(&target, pointer);
        }
        if let Some(known) = known_value(&members) {
            return known.get().to_owned();
        }
        let properties = self.properties(&members);
        let kind = kind(&members);
        if !properties.is_empty() || kind == "object" {
            return self.object(&properties, pointer);
        }
        match (kind.as_str(), members.get("items")) {
            ("array", Some(items)) => format!("[{}]", self.value(&items.clone(), &format!("{pointer}/0"))),
            ("array", None) => "[]".to_owned(),
            ("null", _) => "null".to_owned(),
            ("string", _) => placeholder(&text(&members, "format").unwrap_or(kind)),
            ("", _) => placeholder("any value"),
            _ => placeholder(&kind),
        }
    }

    fn object(&mut self, properties: &[Property], pointer: &str) -> String {
        let mut members = Vec::new();
        for Property { name, schema, is_required } in properties {
            let pointer = format!("{pointer}/{name}");
            if !is_required {
                self.optional.push(pointer.clone());
            }
            members.push(format!("{}:{}", Json::string(name).get(), self.value(schema, &pointer)));
        }
        format!("{{{}}}", members.join(","))
    }

    /// The properties of an object. If the schema has `allOf`, the properties of each of its schemas are included. Of
    /// `anyOf` and `oneOf`, only the first schema is used.
    fn properties(&self, members: &JsonObject) -> Vec<Property> {
        let required: Vec<String> = member(members, "required").unwrap_or_default();
        let own: JsonObject = member(members, "properties").unwrap_or_default();
        let own =
            own.into_iter().map(|(name, schema)| Property { is_required: required.contains(&name), name, schema });
        let mut found: Vec<Property> = own.collect();
        let list = |name: &str| member::<Vec<Json>>(members, name).unwrap_or_default();
        let first = |name: &str| list(name).into_iter().next();
        for part in list("allOf").into_iter().chain(first("anyOf")).chain(first("oneOf")) {
            let Ok(part) = JsonObject::parse(part.get()) else { continue };
            let target = part.get("$ref").and_then(|reference| self.target(reference));
            let part = target.and_then(|target| JsonObject::parse(target.get()).ok()).unwrap_or(part);
            for property in self.properties(&part) {
                if found.iter().all(|known| known.name != property.name) {
                    found.push(property);
                }
            }
        }
        // A schema may require a property that only one of its parts describes.
        for property in &mut found {
            property.is_required |= required.contains(&property.name);
        }
        found
    }

    /// The part of the schema that a `$ref` of the form `#/…` leads to.
    fn target(&self, reference: &Json) -> Option<Json> {
        let reference: String = reference.to().ok()?;
        let mut target = self.root.clone();
        for segment in reference.strip_prefix('#')?.split('/').skip(1) {
            // In this order (RFC 6901 section 4): `~01` stands for `~1` and not for a slash.
            let name = segment.replace("~1", "/").replace("~0", "~");
            let inside = JsonObject::parse(target.get()).ok().and_then(|members| members.get(&name).cloned());
            let item = || target.to::<Vec<Json>>().ok()?.get(name.parse::<usize>().ok()?).cloned();
            target = inside.or_else(item)?;
        }
        Some(target)
    }
}

struct Property {
    name: String,
    schema: Json,
    is_required: bool,
}

/// A value that the schema itself contains: its `default`, its `const`, its first example or its first `enum` value.
/// `None` if it contains none.
fn known_value(members: &JsonObject) -> Option<Json> {
    let first = |name: &str| member::<Vec<Json>>(members, name).and_then(|values| values.into_iter().next());
    let whole = members.get("default").or_else(|| members.get("const")).cloned();
    whole.or_else(|| first("examples")).or_else(|| first("enum"))
}

/// The type that the schema states. If the schema lists several types, the first one other than `null`.
fn kind(members: &JsonObject) -> String {
    let several = member::<Vec<String>>(members, "type").unwrap_or_default();
    let one = several.into_iter().find(|kind| kind != "null");
    text(members, "type").or(one).unwrap_or_default()
}

fn text(members: &JsonObject, name: &str) -> Option<String> {
    member(members, name)
}

fn member<T: serde::de::DeserializeOwned>(members: &JsonObject, name: &str) -> Option<T> {
    members.get(name)?.to().ok()
}

fn placeholder(what: &str) -> String {
    Json::string(&format!("<{what}>")).get().to_owned()
}

#[cfg(test)]
mod tests;
