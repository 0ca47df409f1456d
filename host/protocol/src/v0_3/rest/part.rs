//! Parts, whose kind follows from the field that is set.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::base64_text;
use crate::base64::standard;
use crate::proto_json::readable;
use crate::v0_3::part::{AnyObject, DataObject, PartForm, serialize_metadata};
use crate::{Json, PartContent};

/// A part, written as ProtoJSON of `a2a.v1`. A text or data part loses its file name and media type, for which the
/// format has no field.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a>(pub &'a crate::Part);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    file_with_bytes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_with_uri: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    mime_type: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
}

#[derive(Serialize)]
struct Data<'a> {
    data: DataObject<'a>,
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(part) = self;
        let mime_type = part.media_type.as_str();
        let name = part.filename.as_str();
        let mut map = serializer.serialize_map(None)?;
        match &part.content {
            PartContent::Text(text) => map.serialize_entry("text", text)?,
            PartContent::Raw(bytes) => {
                let file_with_bytes = Some(base64_text::encode(&standard(bytes)));
                map.serialize_entry("file", &File { file_with_bytes, file_with_uri: None, mime_type, name })?;
            }
            PartContent::Url(uri) => {
                let file_with_uri = Some(uri.as_str());
                map.serialize_entry("file", &File { file_with_bytes: None, file_with_uri, mime_type, name })?;
            }
            PartContent::Data(data) => map.serialize_entry("data", &Data { data: DataObject(data) })?,
        }
        serialize_metadata(part, &mut map)?;
        map.end()
    }
}

/// The form of parts in the HTTP+JSON binding.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rest;

impl PartForm for Rest {
    const FIELDS: &'static [&'static str] = &["text", "file", "data", "metadata"];
    const CONTENT: [&'static str; 2] = ["fileWithBytes", "fileWithUri"];
    const FILE_FIELDS: &'static [&'static str] = &["fileWithBytes", "fileWithUri", "mimeType", "name"];
    type Data = DataPart;

    fn base64(text: String) -> String {
        base64_text::decode(text)
    }
}

readable! {
    pub(super) struct DataPart {
        data: AnyObject => "data",
    }
}

/// A data part without data is the empty object.
impl From<DataPart> for Json {
    fn from(part: DataPart) -> Self {
        part.data.into()
    }
}
