//! The style and the scripts of the console, which are in the binary. The path of a file has the hash of its content,
//! so browsers may keep the file for ever.

use std::iter;
use std::sync::LazyLock;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};

struct Asset {
    name: &'static str,
    content: &'static [u8],
}

static STYLE: Asset = Asset { name: "console.css", content: include_bytes!("../../console/console.css") };

/// The scripts that every page loads, in this order.
static SCRIPTS: [Asset; 3] = [
    Asset { name: "htmx.min.js", content: include_bytes!("../../console/vendor/htmx.min.js") },
    Asset { name: "upload.js", content: include_bytes!("../../console/upload.js") },
    Asset { name: "live.js", content: include_bytes!("../../console/live.js") },
];

/// A file with its hash and its path.
struct ServedAsset {
    asset: &'static Asset,
    hash: String,
    path: String,
}

/// The style, then the scripts.
static SERVED: LazyLock<Vec<ServedAsset>> =
    LazyLock::new(|| iter::once(&STYLE).chain(&SCRIPTS).map(ServedAsset::new).collect());

impl ServedAsset {
    fn new(asset: &'static Asset) -> Self {
        let hash: String = Sha256::digest(asset.content).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let path = format!("/assets/{hash}/{}", asset.name);
        Self { asset, hash, path }
    }
}

pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/assets/{hash}/{name}", get(show))
}

/// The path of the style.
pub(super) fn style() -> &'static str {
    SERVED.first().map_or("", |served| served.path.as_str())
}

/// The paths of the scripts.
pub(super) fn scripts() -> Vec<&'static str> {
    SERVED.iter().skip(1).map(|served| served.path.as_str()).collect()
}

async fn show(Path((hash, name)): Path<(String, String)>) -> Response {
    let Some(served) = SERVED.iter().find(|served| served.hash == hash && served.asset.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let kind = if name.ends_with(".css") { "text/css; charset=utf-8" } else { "text/javascript; charset=utf-8" };
    let fields = [(CONTENT_TYPE, kind), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
    (fields, served.asset.content).into_response()
}
