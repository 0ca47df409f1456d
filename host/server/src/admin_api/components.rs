//! The JSON of the admin API about components that are uploaded for tenants.

use serde::{Deserialize, Serialize};

/// A component that was uploaded for tenants.
#[derive(Debug, Deserialize, Serialize)]
pub struct Component<Text = String> {
    /// The digest. The texts of tenants name the component by its digest.
    pub digest: Text,
    /// The size in bytes.
    pub size: u64,
    /// When the component was uploaded first. Absent in the answer to an upload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uploaded_at: Option<Text>,
}

/// All uploaded components.
#[derive(Debug, Deserialize, Serialize)]
pub struct List<Text = String> {
    /// The components, by digest.
    pub components: Vec<Component<Text>>,
    /// The maximum number of components that may be uploaded.
    pub max_uploads: u64,
    /// The maximum size of all uploaded components together, in bytes.
    pub max_upload_bytes: u64,
}

/// A component that was removed.
#[derive(Debug, Deserialize, Serialize)]
pub struct RemovedComponent<Text = String> {
    /// The digest of the component.
    pub removed: Text,
}
