//! The JSON of the admin API about components that are uploaded for tenants.

use serde::{Deserialize, Serialize};

/// A component.
#[derive(Debug, Deserialize, Serialize)]
pub struct Component<Text = String> {
    /// Its digest, by which texts of tenants name it.
    pub digest: Text,
    /// Its bytes.
    pub size: u64,
    /// When it was uploaded first; absent in the answer to an upload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uploaded_at: Option<Text>,
}

/// All components that were uploaded.
#[derive(Debug, Deserialize, Serialize)]
pub struct List<Text = String> {
    /// Them, by digest.
    pub components: Vec<Component<Text>>,
    /// The most that there may be.
    pub max_uploads: u64,
    /// The most bytes that they may have together.
    pub max_upload_bytes: u64,
}

/// A component that was removed.
#[derive(Debug, Deserialize, Serialize)]
pub struct Removed<Text = String> {
    /// Its digest.
    pub removed: Text,
}
