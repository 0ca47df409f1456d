//! Receipts of turns: signed statements about the components that ran in a turn, and about its message and its answer.
//!
//! A receipt is a JWS (RFC 7515) in compact form, by the key that signs the card. Its `typ` is [`TYPE`], and its payload is a
//! [`Receipt`]. The receipts of a conversation are a chain: each one has the digest of the receipt before it. A task has its
//! receipts in its metadata, under the keys of [`metadata_key`]. [`check`] compares receipts with the tasks that have them.

mod content;
mod seen;
mod verdict;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::crypto::verify as verify_jws;
use serde::{Deserialize, Serialize};

use crate::signature::{SignError, Signer};
use crate::{Algorithm, Jwks};

pub use content::{AnswerDigests, ContentDigest};
pub use seen::InputError;
pub use verdict::{Verdict, check};

/// The media type of a receipt in the header of its JWS.
pub const TYPE: &str = "annex-receipt+jws";
/// The beginning of the metadata keys of receipts.
pub const KEY_PREFIX: &str = "annex/receipt/";
/// The version of the payload that is signed now.
pub const VERSION: u32 = 1;
/// The maximum size of a receipt that is verified, in bytes. A receipt has about 150 bytes per extension.
const MAX_BYTES: usize = 256 << 10;

/// The payload of a receipt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// The version of this form: 1.
    pub version: u32,
    /// The agent that has signed.
    pub issuer: Issuer,
    /// The id of the conversation.
    pub context_id: String,
    /// The id of the task.
    pub task_id: String,
    /// The number of the receipt in its conversation. The first is 1.
    pub number: u64,
    /// The digest of the receipt before this one, as 64 hexadecimal digits. `None` for the first receipt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev: Option<String>,
    /// The time of the receipt, in the form of RFC 3339.
    pub time: String,
    /// The extensions that were activated for the turn, each with its code and its part in the turn.
    pub extensions: Vec<ReceiptExtension>,
    /// The message of the user, as it is in the history of the task.
    pub message: ContentDigest,
    /// The state in which the turn has left its task. `None` if the answer is a message without a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The answer.
    pub answer: AnswerDigests,
}

/// The agent that signs receipts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Issuer {
    /// The base URL of the server, as on the card.
    pub url: String,
    /// The name of the agent.
    pub name: String,
    /// The tenant of the server. `None` for the agent of the config itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// An extension of a turn in its receipt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceiptExtension {
    /// The URI.
    pub uri: String,
    /// The digest of the component, as `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// The part in the turn: `active`, `skipped`, `failed`, `refused`, `interrupted` or `answered`.
    pub outcome: String,
}

/// The position of a receipt in the chain of its conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The number of the receipt.
    pub number: u64,
    /// The digest of its JWS, as 64 hexadecimal digits.
    pub digest: String,
}

/// A signed receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedReceipt {
    /// The JWS in compact form.
    pub jws: String,
    /// The position in the chain, which the next receipt of the conversation names.
    pub link: Link,
}

/// The reasons why a receipt does not verify.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiptError {
    /// The text is not a JWS in compact form with a header of this type.
    #[error("the text is not a receipt: a JWS in compact form of the type {TYPE}, of at most {MAX_BYTES} bytes")]
    NotAReceipt,
    /// No given key has the id and the algorithm that the header names.
    #[error("none of the given keys has the id {kid:?} of the receipt's key")]
    UnknownKey {
        /// The id in the header.
        kid: String,
    },
    /// The signature does not match.
    #[error("the signature of the receipt is not valid")]
    Invalid,
    /// The payload is signed, but does not have the form of this version.
    #[error("this version of the software cannot read the payload of the receipt")]
    Payload(#[source] serde_json::Error),
}

#[derive(Deserialize)]
struct Header {
    alg: jsonwebtoken::Algorithm,
    kid: String,
    typ: String,
    crit: Option<serde::de::IgnoredAny>,
}

/// The metadata key of the receipt with this number.
#[must_use]
pub fn metadata_key(number: u64) -> String {
    format!("{KEY_PREFIX}{number}")
}

impl Receipt {
    /// The position of the receipt after `last`, which is `None` for the first receipt of a conversation. Returns the number of
    /// the receipt and its `prev`.
    #[must_use]
    pub fn after(last: Option<Link>) -> (u64, Option<String>) {
        match last {
            Some(Link { number, digest }) => (number.saturating_add(1), Some(digest)),
            None => (1, None),
        }
    }

    /// Signs the receipt.
    ///
    /// # Errors
    /// [`SignError::Encoding`] and [`SignError::Key`].
    pub fn sign(&self, signer: &Signer) -> Result<SignedReceipt, SignError> {
        let payload = serde_json::to_vec(self).map_err(SignError::Encoding)?;
        let jws = signer.sign_compact(TYPE, &payload)?;
        let link = Link { number: self.number, digest: content::sha256(jws.as_bytes()) };
        Ok(SignedReceipt { jws, link })
    }
}

impl Link {
    /// The position as a text that [`Link::read`] reads.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{} {}", self.number, self.digest)
    }

    /// Reads the text of [`Link::to_text`]. `None` for another text.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (number, digest) = text.split_once(' ')?;
        Some(Self { number: number.parse().ok()?, digest: digest.to_owned() })
    }
}

/// Verifies the signature of a receipt, and returns its payload.
///
/// # Errors
/// [`ReceiptError`].
pub fn verify(jws: &str, keys: &Jwks) -> Result<Receipt, ReceiptError> {
    if jws.len() > MAX_BYTES {
        return Err(ReceiptError::NotAReceipt);
    }
    let (message, signature) = jws.rsplit_once('.').ok_or(ReceiptError::NotAReceipt)?;
    let (protected, payload) = message.split_once('.').ok_or(ReceiptError::NotAReceipt)?;
    let (kid, algorithm) = read_header(protected).ok_or(ReceiptError::NotAReceipt)?;
    let mut candidates = keys.candidates(&kid, algorithm).peekable();
    if candidates.peek().is_none() {
        return Err(ReceiptError::UnknownKey { kid: kid.clone() });
    }
    let is_signed = candidates
        .any(|key| verify_jws(signature, message.as_bytes(), &key.key, key.algorithm.to_jws()).unwrap_or(false));
    if !is_signed {
        return Err(ReceiptError::Invalid);
    }
    let payload = URL_SAFE_NO_PAD.decode(payload).map_err(|_| ReceiptError::NotAReceipt)?;
    serde_json::from_slice(&payload).map_err(ReceiptError::Payload)
}

/// The key id and the algorithm. `None` if the header is not of a receipt, or has critical extensions (RFC 7515 section
/// 4.1.11).
fn read_header(protected: &str) -> Option<(String, Algorithm)> {
    let header: Header = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(protected).ok()?).ok()?;
    let algorithm = Algorithm::from_jws(header.alg)?;
    (header.typ == TYPE && header.crit.is_none()).then_some((header.kid, algorithm))
}
