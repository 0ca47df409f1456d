//! Parts (A2A 0.3 section 6.5). The field `kind` says whether a part is text, a file or data.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base64::standard;
use crate::proto_json::{FieldName, FieldValue, choose, chosen, read_field, skip_field};
use crate::{Json, JsonObject, Metadata, PartContent};

/// The metadata key that marks a data part whose value is in `data.value`. Data in 0.3 must be an object; the official
/// SDKs wrap other values this way.
const WRAPPED: &str = "data_part_compat";

/// The metadata key with the media type of a data part. A data part of 0.3 has no field for its media type. Clients and
/// agents of A2UI read and write the media type under this key.
const MIME_TYPE: &str = "mimeType";

/// A part, written as 0.3 JSON. A text part loses its file name and media type, and a data part its file name: 0.3 does
/// not have them.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a>(pub &'a crate::Part);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    mime_type: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(part) = self;
        let mime_type = part.media_type.as_str();
        let name = part.filename.as_str();
        let mut map = serializer.serialize_map(None)?;
        match &part.content {
            PartContent::Text(text) => {
                map.serialize_entry("kind", "text")?;
                map.serialize_entry("text", text)?;
            }
            PartContent::Raw(bytes) => {
                map.serialize_entry("kind", "file")?;
                map.serialize_entry("file", &File { bytes: Some(standard(bytes)), uri: None, mime_type, name })?;
            }
            PartContent::Url(uri) => {
                map.serialize_entry("kind", "file")?;
                map.serialize_entry("file", &File { bytes: None, uri: Some(uri), mime_type, name })?;
            }
            PartContent::Data(data) => {
                map.serialize_entry("kind", "data")?;
                map.serialize_entry("data", &DataObject(data))?;
            }
        }
        serialize_metadata(part, &mut map)?;
        map.end()
    }
}

/// Data as an object. Data that is not an object becomes `{"value": data}`.
pub(super) struct DataObject<'a>(pub(super) &'a Json);

impl Serialize for DataObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(data) = self;
        if is_object(data) { data.serialize(serializer) } else { serializer.collect_map([("value", data)]) }
    }
}

/// Writes the metadata of `part` as [`part_metadata`] returns it.
pub(super) fn serialize_metadata<M: SerializeMap>(part: &crate::Part, map: &mut M) -> Result<(), M::Error> {
    let metadata = part_metadata(part);
    if metadata.is_empty() { Ok(()) } else { map.serialize_entry("metadata", &*metadata) }
}

/// The metadata of a part for 0.3. The metadata of a data part also has the mark for wrapped data, and the media type of the
/// part under `mimeType`.
pub fn part_metadata(part: &crate::Part) -> Cow<'_, Metadata> {
    let PartContent::Data(data) = &part.content else { return Cow::Borrowed(&part.metadata) };
    let mark = (!is_object(data)).then(|| Json::from_serialize(&true).ok()).flatten();
    let media_type = part.media_type.as_str();
    let is_named = media_type.is_empty() || named_type(&part.metadata).is_some_and(|named| named == media_type);
    if mark.is_none() && is_named {
        return Cow::Borrowed(&part.metadata);
    }
    // A copy, because the part itself must not carry the marks: clients of 1.0 also get the part.
    let mut metadata = part.metadata.clone();
    metadata.extend(mark.map(|mark| (WRAPPED.to_owned(), mark)));
    if !is_named {
        metadata.insert(MIME_TYPE.to_owned(), Json::string(media_type));
    }
    Cow::Owned(metadata)
}

/// The data of a part for 0.3, which has objects only. Data that is not an object becomes `{"value": data}`.
///
/// # Errors
/// When the data is an object that cannot be read as one.
pub fn data_object(data: &Json) -> Result<JsonObject, serde_json::Error> {
    if is_object(data) { data.to() } else { Ok(JsonObject::from_iter([("value".to_owned(), data.clone())])) }
}

/// Reads the marks in the metadata of a data part of 0.3. Data under the mark for wrapped data is unwrapped. A text under
/// `mimeType` becomes the media type of the part, and stays in the metadata, where extensions of 0.3 look for it.
pub fn read_data_marks(part: &mut crate::Part) {
    unwrap_data(part);
    if let PartContent::Data(_) = part.content
        && part.media_type.is_empty()
        && let Some(media_type) = named_type(&part.metadata)
    {
        part.media_type = media_type;
    }
}

/// The media type in the metadata of a data part. `None` if the metadata has no text under `mimeType`.
fn named_type(metadata: &Metadata) -> Option<String> {
    metadata.get(MIME_TYPE)?.to().ok()
}

fn is_object(json: &Json) -> bool {
    json.get().starts_with('{')
}

/// The field names of parts in one of the bindings of 0.3.
pub(super) trait PartForm {
    /// The fields of a part.
    const FIELDS: &'static [&'static str];
    /// The names of two fields of a file: the field with its bytes, and the field with its URL.
    const CONTENT: [&'static str; 2];
    /// The names of all fields of a file.
    const FILE_FIELDS: &'static [&'static str];
    /// The type of the field `data`.
    type Data: DeserializeOwned + Into<Json>;
    /// Returns the base64 of a file. `text` is the content of the field with the bytes.
    fn base64(text: String) -> String;
}

/// The form of parts in the JSON-RPC binding.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JsonRpc;

impl PartForm for JsonRpc {
    const FIELDS: &'static [&'static str] = &["kind", "text", "file", "data", "metadata"];
    const CONTENT: [&'static str; 2] = ["bytes", "uri"];
    const FILE_FIELDS: &'static [&'static str] = &["bytes", "uri", "mimeType", "name"];
    type Data = AnyObject;

    fn base64(text: String) -> String {
        text
    }
}

/// A JSON object, byte for byte.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AnyObject(Json);

impl<'de> Deserialize<'de> for AnyObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = <Json as Deserialize>::deserialize(deserializer)?;
        if is_object(&json) { Ok(Self(json)) } else { Err(D::Error::custom("data must be a JSON object")) }
    }
}

/// The empty object.
impl Default for AnyObject {
    fn default() -> Self {
        // An object without entries always encodes.
        Self(Json::from_serialize(&JsonObject::new()).unwrap_or_else(|_| Json::string("")))
    }
}

impl FieldValue for AnyObject {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }

    fn is_default(&self) -> bool {
        false
    }
}

impl From<AnyObject> for Json {
    fn from(AnyObject(json): AnyObject) -> Self {
        json
    }
}

/// Reads a part as the binding `F` writes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WirePart<F>(crate::Part, PhantomData<F>);

impl<F> WirePart<F> {
    pub(super) fn into_part(self) -> crate::Part {
        self.0
    }
}

impl<'de, F: PartForm> Deserialize<'de> for WirePart<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PartVisitor(PhantomData))
    }
}

struct PartVisitor<F>(PhantomData<F>);

impl<'de, F: PartForm> Visitor<'de> for PartVisitor<F> {
    type Value = WirePart<F>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object (Part)")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WirePart<F>, A::Error> {
        const CONTENT: &[&str] = &["text", "file", "data"];
        let mut content = None;
        let mut metadata = None::<Metadata>;
        let mut kind = None::<String>;
        while let Some(name) = map.next_key_seed(FieldName(F::FIELDS))? {
            let value = match name {
                Some("text") => map.next_value::<Option<String>>()?.map(|text| ("text", crate::Part::text(text))),
                Some("file") => map.next_value::<Option<WireFile<F>>>()?.map(|file| ("file", file.part)),
                Some("data") => {
                    map.next_value::<Option<F::Data>>()?.map(|data| ("data", PartContent::Data(data.into()).into()))
                }
                Some("kind") => read_field(&mut map, "kind", &mut kind).map(|()| None)?,
                Some("metadata") => read_field(&mut map, "metadata", &mut metadata).map(|()| None)?,
                _ => skip_field(&mut map).map(|()| None)?,
            };
            // A part with two contents is refused, because readers could choose different ones.
            choose(&mut content, value, CONTENT)?;
        }
        let (found, mut part) = chosen(content, CONTENT)?;
        check_kind(kind.as_deref().unwrap_or_default(), found)?;
        part.metadata = metadata.unwrap_or_default();
        read_data_marks(&mut part);
        Ok(WirePart(part, PhantomData))
    }
}

/// Checks that `kind`, if present, fits the content. The official SDKs allow a part without `kind`.
fn check_kind<E: Error>(kind: &str, found: &'static str) -> Result<(), E> {
    match kind {
        "" => Ok(()),
        "text" | "file" | "data" if kind == found => Ok(()),
        "text" | "file" | "data" => Err(E::custom(format_args!("kind is `{kind}` but the content is in `{found}`"))),
        _ => Err(E::custom("unknown kind, expected one of `text`, `file`, `data`")),
    }
}

fn unwrap_data(part: &mut crate::Part) {
    // Without the mark, `{"value": …}` is the object that the client meant.
    let marked = part.metadata.get(WRAPPED).is_some_and(|mark| mark.get() == "true");
    if let (true, PartContent::Data(data)) = (marked, &mut part.content)
        && let Some(value) = data.to::<JsonObject>().ok().and_then(|mut object| object.remove("value"))
    {
        *data = value;
        part.metadata.remove(WRAPPED);
    }
}

struct WireFile<F> {
    part: crate::Part,
    form: PhantomData<F>,
}

impl<'de, F: PartForm> Deserialize<'de> for WireFile<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FileVisitor(PhantomData))
    }
}

struct FileVisitor<F>(PhantomData<F>);

impl<'de, F: PartForm> Visitor<'de> for FileVisitor<F> {
    type Value = WireFile<F>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object (file)")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WireFile<F>, A::Error> {
        let [bytes, uri] = F::CONTENT;
        let mut content = None;
        let mut media_type = None;
        let mut filename = None;
        while let Some(name) = map.next_key_seed(FieldName(F::FILE_FIELDS))? {
            let value = match name {
                Some(name) if name == bytes => map.next_value::<Option<String>>()?.map(F::base64).map(PartContent::Raw),
                Some(name) if name == uri => map.next_value::<Option<String>>()?.map(PartContent::Url),
                Some("mimeType") => read_field(&mut map, "mimeType", &mut media_type).map(|()| None)?,
                Some("name") => read_field(&mut map, "name", &mut filename).map(|()| None)?,
                _ => skip_field(&mut map).map(|()| None)?,
            };
            choose(&mut content, value, &F::CONTENT)?;
        }
        let mut part = crate::Part::from(chosen(content, &F::CONTENT)?);
        part.media_type = media_type.unwrap_or_default();
        part.filename = filename.unwrap_or_default();
        Ok(WireFile { part, form: PhantomData })
    }
}
