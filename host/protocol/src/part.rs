//! Parts: the content of messages and artifacts (specification section 4.1.6).

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base64::{is_base64, standard};
use crate::proto_json::{FieldName, FieldValue, choose, chosen, read_field, skip_field};
use crate::{Json, Metadata};

/// A piece of content, with its metadata, file name and media type.
///
/// ```
/// use annex_protocol::{Part, PartContent};
///
/// let part: Part = serde_json::from_str(r#"{"data":{"count":42.0},"media_type":"application/json"}"#)?;
/// assert!(matches!(part.content, PartContent::Data(_)));
/// assert_eq!(serde_json::to_string(&part)?, r#"{"data":{"count":42.0},"mediaType":"application/json"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The content itself.
    pub content: PartContent,
    /// Free-form metadata of this part.
    pub metadata: Metadata,
    /// The file name; empty if the content is not a file.
    pub filename: String,
    /// The media type of the content; empty if unknown.
    pub media_type: String,
}

/// The content of a part, one of four kinds.
#[derive(Clone, Debug, PartialEq)]
pub enum PartContent {
    /// Plain text.
    Text(String),
    /// Bytes in base64, as received. When they are sent, they are written in the standard alphabet. Validation of the
    /// request checks that the text is base64.
    Raw(String),
    /// The URL of the content.
    Url(String),
    /// Any JSON value, `null` included.
    Data(Json),
}

impl Part {
    /// A part that is plain text.
    pub fn text(text: impl Into<String>) -> Self {
        PartContent::Text(text.into()).into()
    }

    /// Copies the parts. Neighbouring parts that are plain text, without metadata, file name and media type, become one part.
    ///
    /// ```
    /// use annex_protocol::Part;
    ///
    /// let pieces = [Part::text("4111 1111 "), Part::text("1111 1111")];
    /// assert_eq!(Part::joined(&pieces), [Part::text("4111 1111 1111 1111")]);
    /// ```
    pub fn joined(parts: &[Self]) -> Vec<Self> {
        let mut joined: Vec<Self> = Vec::with_capacity(parts.len());
        for part in parts {
            match (joined.last_mut().and_then(Self::plain_text_mut), part.plain_text()) {
                (Some(text), Some(more)) => text.push_str(more),
                _ => joined.push(part.clone()),
            }
        }
        joined
    }

    fn plain_text(&self) -> Option<&str> {
        match &self.content {
            PartContent::Text(text) if self.is_bare() => Some(text),
            _ => None,
        }
    }

    fn plain_text_mut(&mut self) -> Option<&mut String> {
        let is_bare = self.is_bare();
        match &mut self.content {
            PartContent::Text(text) if is_bare => Some(text),
            _ => None,
        }
    }

    /// True if the part is nothing but its content.
    fn is_bare(&self) -> bool {
        self.metadata.is_empty() && self.filename.is_empty() && self.media_type.is_empty()
    }
}

impl PartContent {
    /// Makes the content of a part from base64 that a peer has sent. White space in it, such as the line breaks of MIME, is
    /// removed. Invalid base64 becomes text, because clients could not decode it.
    ///
    /// ```
    /// use annex_protocol::PartContent;
    ///
    /// assert_eq!(PartContent::raw_or_text("AAAA\nAAAA\n".to_owned()), PartContent::Raw("AAAAAAAA".to_owned()));
    /// assert_eq!(PartContent::raw_or_text("no base64!".to_owned()), PartContent::Text("no base64!".to_owned()));
    /// ```
    pub fn raw_or_text(sent: String) -> Self {
        if is_base64(&sent) {
            return Self::Raw(sent);
        }
        let joined: String = sent.split_ascii_whitespace().collect();
        if is_base64(&joined) { Self::Raw(joined) } else { Self::Text(sent) }
    }

    /// True if clients can read the content. False only for a [`PartContent::Raw`] whose text is not base64.
    pub fn is_readable(&self) -> bool {
        match self {
            Self::Raw(base64) => is_base64(base64),
            Self::Text(_) | Self::Url(_) | Self::Data(_) => true,
        }
    }
}

/// The part without metadata, filename and media type.
impl From<PartContent> for Part {
    fn from(content: PartContent) -> Self {
        Self { content, metadata: Metadata::new(), filename: String::new(), media_type: String::new() }
    }
}

/// The parts of a message or an artifact. Clones share the parts until one clone is changed. The session's event, the
/// task's history and the task's events all hold the same parts.
#[derive(Clone, Debug, Default)]
pub struct Parts(Option<Arc<Vec<Part>>>);

impl Parts {
    /// Replaces each [`PartContent::Raw`] whose text is not base64, as [`PartContent::raw_or_text`] does. Returns true if there
    /// was such a part.
    pub fn replace_unreadable(&mut self) -> bool {
        // Shared parts are copied only if one is replaced.
        if self.iter().all(|part| part.content.is_readable()) {
            return false;
        }
        for part in self.iter_mut() {
            if let PartContent::Raw(sent) = &mut part.content {
                part.content = PartContent::raw_or_text(mem::take(sent));
            }
        }
        true
    }
}

impl Deref for Parts {
    type Target = Vec<Part>;

    fn deref(&self) -> &Vec<Part> {
        static NONE: Vec<Part> = Vec::new();
        self.0.as_deref().unwrap_or(&NONE)
    }
}

/// Lets the caller change the parts. Copies the parts first if a clone shares them.
impl DerefMut for Parts {
    fn deref_mut(&mut self) -> &mut Vec<Part> {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl From<Vec<Part>> for Parts {
    fn from(parts: Vec<Part>) -> Self {
        Self((!parts.is_empty()).then(|| Arc::new(parts)))
    }
}

impl From<Parts> for Vec<Part> {
    fn from(parts: Parts) -> Self {
        parts.0.map(Arc::unwrap_or_clone).unwrap_or_default()
    }
}

impl FromIterator<Part> for Parts {
    fn from_iter<T: IntoIterator<Item = Part>>(parts: T) -> Self {
        Vec::from_iter(parts).into()
    }
}

impl IntoIterator for Parts {
    type Item = Part;
    type IntoIter = std::vec::IntoIter<Part>;

    fn into_iter(self) -> Self::IntoIter {
        Vec::from(self).into_iter()
    }
}

impl<'a> IntoIterator for &'a Parts {
    type Item = &'a Part;
    type IntoIter = std::slice::Iter<'a, Part>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Parts {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<const N: usize> PartialEq<[Part; N]> for Parts {
    fn eq(&self, other: &[Part; N]) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Serialize for Parts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&**self)
    }
}

impl<'de> Deserialize<'de> for Parts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}

impl FieldValue for Parts {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::read(deserializer).map(Self::from)
    }

    fn is_default(&self) -> bool {
        self.is_empty()
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.content {
            PartContent::Text(text) => map.serialize_entry("text", text)?,
            PartContent::Raw(base64) => map.serialize_entry("raw", &standard(base64))?,
            PartContent::Url(url) => map.serialize_entry("url", url)?,
            PartContent::Data(json) => map.serialize_entry("data", json)?,
        }
        if !self.metadata.is_default() {
            map.serialize_entry("metadata", &self.metadata)?;
        }
        if !self.filename.is_default() {
            map.serialize_entry("filename", &self.filename)?;
        }
        if !self.media_type.is_default() {
            map.serialize_entry("mediaType", &self.media_type)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PartVisitor)
    }
}

struct PartVisitor;

impl<'de> Visitor<'de> for PartVisitor {
    type Value = Part;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object (Part)")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Part, A::Error> {
        const NAMES: &[&str] = &["text", "raw", "url", "data", "metadata", "filename", "mediaType"];
        const CONTENT: &[&str] = &["text", "raw", "url", "data"];
        let mut content = None;
        let mut null_data = None;
        let mut metadata = None;
        let mut filename = None;
        let mut media_type = None;
        while let Some(name) = map.next_key_seed(FieldName(NAMES))? {
            let value = match name {
                Some("text") => map.next_value::<Option<String>>()?.map(PartContent::Text),
                Some("raw") => map.next_value::<Option<String>>()?.map(PartContent::Raw),
                Some("url") => map.next_value::<Option<String>>()?.map(PartContent::Url),
                Some("data") => {
                    // Not an `Option`, which would lose `null`: it is a value of `data` (`google.protobuf.Value`).
                    let json = map.next_value::<Json>()?;
                    if json.is_null() {
                        // Other content may still follow, so the meaning of this `null` is decided at the end.
                        null_data = Some(PartContent::Data(json));
                        continue;
                    }
                    Some(PartContent::Data(json))
                }
                Some("metadata") => read_field(&mut map, "metadata", &mut metadata).map(|()| None)?,
                Some("filename") => read_field(&mut map, "filename", &mut filename).map(|()| None)?,
                Some("mediaType") => read_field(&mut map, "mediaType", &mut media_type).map(|()| None)?,
                _ => skip_field(&mut map).map(|()| None)?,
            };
            choose(&mut content, value, CONTENT)?;
        }
        Ok(Part {
            // `"data": null` is a value if the part has no other content; otherwise the field counts as absent.
            content: chosen(content.or(null_data), CONTENT)?,
            metadata: metadata.unwrap_or_default(),
            filename: filename.unwrap_or_default(),
            media_type: media_type.unwrap_or_default(),
        })
    }
}
