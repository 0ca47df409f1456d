//! Messages and their parts.

use annex_protocol::v0_3::rest::{base64_of_bytes, bytes_of_base64};
use annex_protocol::v0_3::{data_object, part_metadata, read_data_marks};
use annex_protocol::{ExtensionUri, Json, JsonObject, Message, Part, PartContent, Role};

use crate::convert::json::write_metadata;
use crate::convert::{
    FieldError, FromProto, IntoProto, enumeration, non_empty, read, read_all, read_optional, strings, text, write,
    write_all,
};
use crate::pb::v0_3 as pb;

impl FromProto<pb::Message> for Message {
    fn from_proto(proto: pb::Message) -> Result<Self, FieldError> {
        Ok(Self {
            message_id: proto.message_id.into(),
            context_id: non_empty(proto.context_id),
            task_id: non_empty(proto.task_id),
            role: enumeration("role", "Role", proto.role, Role::ALL)?,
            parts: read_all("content", proto.content)?.into(),
            metadata: read_optional("metadata", proto.metadata)?.unwrap_or_default(),
            extensions: proto.extensions.into_iter().map(ExtensionUri::from).collect(),
            // `a2a.v1` has no field for references.
            reference_task_ids: Vec::new(),
        })
    }
}

impl IntoProto<pb::Message> for Message {
    fn into_proto(self) -> Result<pb::Message, FieldError> {
        Ok(pb::Message {
            message_id: self.message_id.into(),
            context_id: text(self.context_id),
            task_id: text(self.task_id),
            role: self.role.number(),
            content: write_all("content", self.parts.into())?,
            metadata: write_metadata("metadata", self.metadata)?,
            extensions: strings(self.extensions),
        })
    }
}

impl FromProto<pb::Part> for Part {
    fn from_proto(proto: pb::Part) -> Result<Self, FieldError> {
        let mut part = match proto.part {
            Some(pb::part::Part::Text(text)) => Part::text(text),
            Some(pb::part::Part::File(file)) => read("file", file)?,
            Some(pb::part::Part::Data(data)) => read("data", data)?,
            None => return Err(FieldError::new("", "one of `text`, `file`, `data` is required")),
        };
        part.metadata = read_optional("metadata", proto.metadata)?.unwrap_or_default();
        read_data_marks(&mut part);
        Ok(part)
    }
}

impl FromProto<pb::FilePart> for Part {
    fn from_proto(proto: pb::FilePart) -> Result<Self, FieldError> {
        let content = match proto.file {
            Some(pb::file_part::File::FileWithUri(uri)) => PartContent::Url(uri),
            Some(pb::file_part::File::FileWithBytes(bytes)) => PartContent::Raw(base64_of_bytes(&bytes)),
            None => return Err(FieldError::new("", "one of `fileWithBytes`, `fileWithUri` is required")),
        };
        let mut part = Part::from(content);
        part.media_type = proto.mime_type;
        part.filename = proto.name;
        Ok(part)
    }
}

/// Reads data that was not sent as the empty object.
impl FromProto<pb::DataPart> for Part {
    fn from_proto(proto: pb::DataPart) -> Result<Self, FieldError> {
        let object: JsonObject = read_optional("data", proto.data)?.unwrap_or_default();
        // Also checks that the object nests at most `Json::MAX_DEPTH` deep.
        let data = Json::from_serialize(&object).map_err(|error| FieldError::new("data", error.to_string()))?;
        Ok(PartContent::Data(data).into())
    }
}

impl IntoProto<pb::Part> for Part {
    fn into_proto(self) -> Result<pb::Part, FieldError> {
        let metadata = write_metadata("metadata", part_metadata(&self).into_owned())?;
        let part = match self.content {
            PartContent::Text(text) => pb::part::Part::Text(text),
            PartContent::Raw(base64) => {
                let file = pb::file_part::File::FileWithBytes(bytes_of_base64(&base64));
                pb::part::Part::File(file_part(file, self.media_type, self.filename))
            }
            PartContent::Url(uri) => {
                let file = pb::file_part::File::FileWithUri(uri);
                pb::part::Part::File(file_part(file, self.media_type, self.filename))
            }
            PartContent::Data(data) => {
                let object = data_object(&data).map_err(|error| FieldError::new("data", error.to_string()))?;
                pb::part::Part::Data(pb::DataPart { data: Some(write("data", object)?) })
            }
        };
        Ok(pb::Part { part: Some(part), metadata })
    }
}

fn file_part(file: pb::file_part::File, mime_type: String, name: String) -> pb::FilePart {
    pb::FilePart { file: Some(file), mime_type, name }
}
