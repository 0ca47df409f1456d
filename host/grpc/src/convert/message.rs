//! Converts messages and parts from and to Protobuf.

use annex_protocol::{ExtensionUri, Message, Part, PartContent, Role, TaskId};
use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, STANDARD};

use super::json::write_metadata;
use super::{
    FieldError, FromProto, IntoProto, enumeration, non_empty, read, read_all, read_optional, reads_answer, strings,
    text, write, write_all,
};
use crate::pb;

/// The decoder for base64 in the standard alphabet without padding.
const UNPADDED: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, NO_PAD.with_decode_allow_trailing_bits(true));

impl FromProto<pb::Message> for Message {
    fn from_proto(mut proto: pb::Message) -> Result<Self, FieldError> {
        let role = enumeration("role", "Role", proto.role, Role::ALL)?;
        // In a user's message a part without content is an error. In an agent's message it is dropped.
        if role == Role::Agent || reads_answer() {
            proto.parts.retain(|part| part.content.is_some());
        }
        Ok(Self {
            message_id: proto.message_id.into(),
            context_id: non_empty(proto.context_id),
            task_id: non_empty(proto.task_id),
            role,
            parts: read_all("parts", proto.parts)?.into(),
            metadata: read_optional("metadata", proto.metadata)?.unwrap_or_default(),
            extensions: proto.extensions.into_iter().map(ExtensionUri::from).collect(),
            reference_task_ids: proto.reference_task_ids.into_iter().map(TaskId::from).collect(),
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
            parts: write_all("parts", self.parts.into())?,
            metadata: write_metadata("metadata", self.metadata)?,
            extensions: strings(self.extensions),
            reference_task_ids: strings(self.reference_task_ids),
        })
    }
}

impl FromProto<pb::Part> for Part {
    fn from_proto(proto: pb::Part) -> Result<Self, FieldError> {
        let content = match proto.content {
            Some(pb::part::Content::Text(text)) => PartContent::Text(text),
            // The protocol types hold base64, the form of the other two bindings, so that a task reads the same on
            // each.
            Some(pb::part::Content::Raw(bytes)) => PartContent::Raw(STANDARD.encode(bytes)),
            Some(pb::part::Content::Url(url)) => PartContent::Url(url),
            Some(pb::part::Content::Data(value)) => PartContent::Data(read("data", value)?),
            None => return Err(FieldError::new("", "one of `text`, `raw`, `url`, `data` is required")),
        };
        Ok(Self {
            content,
            metadata: read_optional("metadata", proto.metadata)?.unwrap_or_default(),
            filename: proto.filename,
            media_type: proto.media_type,
        })
    }
}

impl IntoProto<pb::Part> for Part {
    fn into_proto(self) -> Result<pb::Part, FieldError> {
        let content = match self.content {
            PartContent::Text(text) => pb::part::Content::Text(text),
            PartContent::Raw(base64) => pb::part::Content::Raw(bytes_of(&base64)?),
            PartContent::Url(url) => pb::part::Content::Url(url),
            PartContent::Data(json) => pb::part::Content::Data(write("data", json)?),
        };
        Ok(pb::Part {
            content: Some(content),
            metadata: write_metadata("metadata", self.metadata)?,
            filename: self.filename,
            media_type: self.media_type,
        })
    }
}

/// Decodes base64 in the standard or the URL-safe alphabet, with or without padding. The JSON bindings allow both.
fn bytes_of(base64: &str) -> Result<Vec<u8>, FieldError> {
    let standard = base64.trim_end_matches('=').replace('-', "+").replace('_', "/");
    // ProtoJSON wants both alphabets read, with padding or without, and the decoder knows one form.
    UNPADDED.decode(standard).map_err(|_| FieldError::new("raw", "is not base64"))
}
