//! Parts: the content of messages and artifacts (specification section 4.1.6).

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::proto_json::{FieldName, FieldValue, choose, chosen, read_field, skip_field};
use crate::{Json, Metadata};

/// One piece of content with what is known about it.
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
    /// Free-form entries about this part.
    pub metadata: Metadata,
    /// The name of the file that the content is; empty when it is none.
    pub filename: String,
    /// The media type of the content; empty when it is not said.
    pub media_type: String,
}

/// The content of a part, one of four kinds.
#[derive(Clone, Debug, PartialEq)]
pub enum PartContent {
    /// Plain text.
    Text(String),
    /// Bytes in base64, as they arrived. The request's check finds out whether they are valid base64.
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
}

/// The part without metadata, filename and media type.
impl From<PartContent> for Part {
    fn from(content: PartContent) -> Self {
        Self { content, metadata: Metadata::new(), filename: String::new(), media_type: String::new() }
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.content {
            PartContent::Text(text) => map.serialize_entry("text", text)?,
            PartContent::Raw(base64) => map.serialize_entry("raw", base64)?,
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
                        // Other content may still follow, so it is decided at the end which of the two this `null` is.
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
            // `"data": null` is a value of its own, but beside other content it is an absent field.
            content: chosen(content.or(null_data), CONTENT)?,
            metadata: metadata.unwrap_or_default(),
            filename: filename.unwrap_or_default(),
            media_type: media_type.unwrap_or_default(),
        })
    }
}
