//! The artifacts of a conversation.

use std::sync::Arc;

use annex_database::{Database, Row, Value};
use annex_protocol::Parts;

use super::statements;
use crate::encoding::encoded_name;
use crate::entry::Event;
use crate::error::AppendError;
use crate::limits::Limits;
use crate::size;

/// An artifact, encoded.
pub(super) struct EncodedArtifact {
    pub(super) name: String,
    pub(super) json: String,
    pub(super) size: usize,
}

impl EncodedArtifact {
    pub(super) fn new(name: &str, parts: &Parts) -> Result<Self, serde_json::Error> {
        let (name, json) = (encoded_name(name), serde_json::to_string(parts)?);
        Ok(Self { name, json, size: size::of_parts(parts) })
    }
}

/// The artifacts that these events bring, in the order of the events. Two events may write the same artifact.
pub(super) fn artifacts_of(events: &[&Arc<Event>]) -> Result<Vec<EncodedArtifact>, serde_json::Error> {
    let artifacts = events.iter().flat_map(|event| &event.artifacts);
    artifacts.map(|(name, parts)| EncodedArtifact::new(name, parts)).collect()
}

/// Stores a new version of an artifact. If the artifacts then exceed a limit, the oldest ones are deleted.
pub(super) async fn put<D: Database>(
    transaction: &mut D::Transaction,
    id: i64,
    artifact: &EncodedArtifact,
    limits: &Limits,
) -> Result<(), AppendError> {
    let EncodedArtifact { name, json, size: added } = artifact;
    // Names and sizes only: the contents may be megabytes.
    let others = D::query(transaction, statements::SELECT_ARTIFACTS, &[Value::Int(id)]).await?;
    let (mut count, mut size, mut position) = (1, *added, 1);
    for row in &others {
        let other = row.text(0)?;
        position = position.max(row.int(2)?.saturating_add(1));
        if other == *name {
            continue;
        }
        count += 1;
        size += usize::try_from(row.int(1)?).unwrap_or_default();
        // The last written one comes first, so that the oldest do not fit.
        if count > limits.artifacts.max(1) || size > limits.artifact_bytes {
            D::execute(transaction, statements::DELETE_ARTIFACT, &[Value::Int(id), Value::Text(&other)]).await?;
        }
    }
    let values = [Value::Int(id), Value::Text(name), Value::Text(json), Value::count(*added), Value::Int(position)];
    D::execute(transaction, statements::PUT_ARTIFACT, &values).await?;
    Ok(())
}
