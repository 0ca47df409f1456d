//! Catalogues of components and functions: which ones a surface may use, and their documents.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::parameters::Parameters;

/// The document of a catalogue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Document<'a> {
    /// The document is here.
    Known(&'a Value),
    /// The catalogue may be used, but its document is not here. Components are checked for their common members alone.
    Opaque,
    /// The catalogue may not be used.
    Missing,
}

/// The catalogues that a client offers in a turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Offer {
    /// The ids of its capabilities. `None` without capabilities: then the catalogues of the agent count.
    pub ids: Option<Vec<String>>,
    /// The catalogues that the client brings.
    pub inline: Vec<Value>,
}

/// The catalogues that surfaces may use in a turn.
#[derive(Debug)]
pub struct Catalogues<'a>(BTreeMap<&'a str, Document<'a>>);

impl<'a> Catalogues<'a> {
    /// The catalogues of an offer. `basic` is the document that ships.
    pub fn new(parameters: &'a Parameters, offer: &'a Offer, basic: &'a Value) -> Self {
        let ids = offer.ids.as_ref().unwrap_or(&parameters.supported_catalogs);
        let known = ids.iter().map(|id| (id.as_str(), document(parameters, id, basic)));
        let inline = offer.inline.iter().filter_map(|inline| Some((id_of(inline)?, Document::Known(inline))));
        Self(known.chain(inline).collect())
    }

    /// The catalogue of an id.
    pub fn find(&self, id: &str) -> Document<'a> {
        self.0.get(id).copied().unwrap_or(Document::Missing)
    }

    /// The documents for a surface whose catalogue is not known. A catalogue without document takes everything, so it is
    /// enough by itself.
    pub fn documents(&self) -> Vec<Document<'a>> {
        if self.0.values().any(|document| *document == Document::Opaque) {
            return vec![Document::Opaque];
        }
        self.0.values().copied().collect()
    }
}

/// The id of a document.
pub fn id_of(document: &Value) -> Option<&str> {
    document.get("catalogId").and_then(Value::as_str)
}

fn document<'a>(parameters: &'a Parameters, id: &str, basic: &'a Value) -> Document<'a> {
    // An own document comes first, so that the operator can narrow the basic catalogue.
    match parameters.catalogs.iter().find(|own| id_of(own) == Some(id)) {
        Some(own) => Document::Known(own),
        None if parameters.version.is_basic(id) => Document::Known(basic),
        None => Document::Opaque,
    }
}
