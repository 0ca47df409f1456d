//! The versions of A2UI, and what differs between them.

use std::cell::OnceCell;

use serde::Deserialize;
use serde_json::Value;

/// The media types of A2UI parts. The second one is older, and libraries still write it.
const MEDIA_TYPES: [&str; 2] = ["application/a2ui+json", "application/json+a2ui"];

/// A version of A2UI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Version {
    /// 0.8, whose messages have no `version`.
    #[serde(rename = "0.8")]
    V0_8,
    /// 0.9.
    #[serde(rename = "0.9")]
    V0_9,
    /// 0.9.1, whose agents and clients also speak 0.9.
    #[default]
    #[serde(rename = "0.9.1")]
    V0_9_1,
    /// 1.0.
    #[serde(rename = "1.0")]
    V1_0,
}

impl Version {
    /// The extension's URI.
    pub fn uri(self) -> &'static str {
        match self {
            Self::V0_8 => "https://a2ui.org/a2a-extension/a2ui/v0.8",
            Self::V0_9 => "https://a2ui.org/a2a-extension/a2ui/v0.9",
            Self::V0_9_1 => "https://a2ui.org/a2a-extension/a2ui/v0.9.1",
            Self::V1_0 => "https://a2ui.org/a2a-extension/a2ui/v1.0",
        }
    }

    /// The metadata key of the client's capabilities. Version 1.0 renamed it.
    pub fn capabilities_key(self) -> &'static str {
        match self {
            Self::V0_8 | Self::V0_9 | Self::V0_9_1 => "a2uiClientCapabilities",
            Self::V1_0 => "a2uiRendererCapabilities",
        }
    }

    /// The metadata keys in which a client may put its capabilities. Clients of 1.0 also write the older one.
    pub fn capabilities_keys(self) -> &'static [&'static str] {
        match self {
            Self::V0_8 | Self::V0_9 | Self::V0_9_1 => &["a2uiClientCapabilities"],
            Self::V1_0 => &["a2uiRendererCapabilities", "a2uiClientCapabilities"],
        }
    }

    /// The metadata key of the client's data model. Version 0.8 has none.
    pub fn data_model_key(self) -> Option<&'static str> {
        match self {
            Self::V0_8 => None,
            Self::V0_9 | Self::V0_9_1 => Some("a2uiClientDataModel"),
            Self::V1_0 => Some("a2uiRendererDataModel"),
        }
    }

    /// The values of `version` in a message, which are also the members of the capabilities. The best one comes first.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::V0_8 => &["v0.8"],
            Self::V0_9 => &["v0.9"],
            Self::V0_9_1 => &["v0.9.1", "v0.9"],
            Self::V1_0 => &["v1.0"],
        }
    }

    /// True if a message names its version.
    pub fn is_named_in_messages(self) -> bool {
        self != Self::V0_8
    }

    /// The id of the basic catalogue, which 0.8 calls the standard one.
    pub fn basic_catalogue(self) -> &'static str {
        match self {
            Self::V0_8 => "https://a2ui.org/specification/v0_8/standard_catalog_definition.json",
            Self::V0_9 | Self::V0_9_1 => "https://a2ui.org/specification/v0_9/catalogs/basic/catalog.json",
            Self::V1_0 => "https://a2ui.org/specification/v1_0/catalogs/basic/catalog.json",
        }
    }

    /// True if the id is that of the basic catalogue. The text of 0.9.1 has an id that its catalogue does not have.
    pub fn is_basic(self, id: &str) -> bool {
        id == self.basic_catalogue()
            || self == Self::V0_9_1 && id == "https://a2ui.org/specification/v0_9_1/catalogs/basic/catalog.json"
    }

    /// The media types of A2UI parts. The one to write comes first.
    pub fn media_types(self) -> [&'static str; 2] {
        let [new, old] = MEDIA_TYPES;
        match self {
            Self::V0_8 => [old, new],
            Self::V0_9 | Self::V0_9_1 | Self::V1_0 => [new, old],
        }
    }

    /// The schemas of the version. `src/schemas/README.md` says where they come from.
    pub fn schemas(self) -> Result<Value, String> {
        let text = match self {
            Self::V0_8 => include_str!("schemas/0.8.json"),
            Self::V0_9 | Self::V0_9_1 => include_str!("schemas/0.9.1.json"),
            Self::V1_0 => include_str!("schemas/1.0.json"),
        };
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

thread_local! {
    /// The parsed schemas. An instance has one version, and turns without A2UI need no schema.
    static SCHEMAS: OnceCell<Result<&'static Value, String>> = const { OnceCell::new() };
}

/// The document of the basic catalogue.
pub fn catalogue(schemas: &Value) -> &Value {
    static NONE: Value = Value::Null;
    schemas.get("catalog").unwrap_or(&NONE)
}

/// The schemas of a version, parsed once per instance.
pub fn schemas(version: Version) -> Result<&'static Value, String> {
    if cfg!(test) {
        // One test thread may use several versions.
        return version.schemas().map(|schemas| &*Box::leak(Box::new(schemas)));
    }
    SCHEMAS.with(|cell| {
        let parsed = || version.schemas().map(|schemas| &*Box::leak(Box::new(schemas)));
        cell.get_or_init(parsed).clone()
    })
}
