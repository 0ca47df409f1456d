//! The reasons why a registry cannot be used.

use annex_egress::UrlRefusal;

use crate::digest::Digest;
use crate::manifest::ManifestError;
use crate::reference::Reference;

/// The maximum length of a registry's text in an error, in bytes.
pub(crate) const MAX_TEXT: usize = 300;

/// The reasons why a component cannot be pulled or pushed.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The settings cannot be used.
    #[error("registries.{host:?}.{key} {reason}")]
    Config {
        /// The registry.
        host: String,
        /// The key.
        key: &'static str,
        /// The reason.
        reason: String,
    },
    /// The client for HTTP cannot be made.
    #[error("the HTTP client cannot be made")]
    HttpClient(#[source] reqwest::Error),
    /// An address may not be called.
    #[error("{url} is not called: {refusal}")]
    Refused {
        /// The address.
        url: String,
        /// The reason.
        refusal: UrlRefusal,
    },
    /// The registry does not answer.
    #[error("{registry} does not answer")]
    Unreachable {
        /// The registry.
        registry: String,
        /// The reason.
        #[source]
        source: reqwest::Error,
    },
    /// The registry wants other credentials.
    #[error("{registry} refuses access ({reason}); log in with: annex login {registry}")]
    Unauthorized {
        /// The registry.
        registry: String,
        /// The reason.
        reason: String,
    },
    /// The registry does not have this.
    #[error("{0} does not exist")]
    NotFound(String),
    /// The registry answers with an error.
    #[error("{registry} answers {what} with the status {status}{text}")]
    Status {
        /// The registry.
        registry: String,
        /// The request.
        what: &'static str,
        /// The status of HTTP.
        status: u16,
        /// The registry's own words, in brackets. May be empty.
        text: String,
    },
    /// The registry redirects again and again, or to nowhere.
    #[error("{registry} redirects {what} to another address that cannot be followed")]
    Redirect {
        /// The registry.
        registry: String,
        /// The request.
        what: &'static str,
    },
    /// An answer is too long, or breaks off.
    #[error("the answer of {registry} to {what} cannot be read: {reason}")]
    Answer {
        /// The registry.
        registry: String,
        /// The request.
        what: &'static str,
        /// The reason.
        reason: String,
    },
    /// The registry has sent other content.
    #[error("{registry} has sent other content than {expected}: its digest is {found}")]
    Digest {
        /// The registry.
        registry: String,
        /// The digest of the content that was asked for.
        expected: Digest,
        /// The digest of the content that came.
        found: Digest,
    },
    /// The content has another size than the manifest says.
    #[error("{registry} has sent {found} bytes of {digest}, which has {expected} bytes")]
    Size {
        /// The registry.
        registry: String,
        /// The digest of the content.
        digest: Digest,
        /// The size in the manifest.
        expected: u64,
        /// The number of bytes that came. Reading stops at the first byte too many.
        found: u64,
    },
    /// The manifest is not that of a component.
    #[error("{reference} is no component: {source}")]
    Manifest {
        /// The component.
        reference: Box<Reference>,
        /// The reason.
        #[source]
        source: ManifestError,
    },
    /// A component has too many signatures or SBOMs.
    #[error("{reference} has more than {most} {what}")]
    TooMany {
        /// The component.
        reference: String,
        /// The name of what there are too many of, such as `signatures`.
        what: &'static str,
        /// The largest allowed number.
        most: usize,
    },
    /// A list has more pages than are read.
    #[error(
        "{registry} has more than {pages} pages for {what}; Annex reads no more, and takes no part of a list for the whole"
    )]
    TooManyPages {
        /// The registry.
        registry: String,
        /// The request.
        what: &'static str,
        /// The maximum number of pages.
        pages: usize,
    },
    /// A manifest cannot be written.
    #[error("the manifest cannot be encoded")]
    Json(#[from] serde_json::Error),
}
