//! Reads the answers of issuers and of authorization servers.

use annex_egress::ReadError;
use reqwest::{RequestBuilder, StatusCode};

/// The reason why a request has no usable answer. The texts contain no URL, which may have a credential.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    #[error("no answer")]
    Http(#[source] reqwest::Error),
    #[error("unexpected status {0}")]
    Status(StatusCode),
    #[error(transparent)]
    Read(ReadError<reqwest::Error>),
    #[error("the answer is not UTF-8")]
    NotText(#[source] std::string::FromUtf8Error),
}

/// Sends the request, and returns the text of an answer with the status 200 and at most `limit` bytes.
pub(crate) async fn text_of(request: RequestBuilder, limit: usize) -> Result<String, AnswerError> {
    let sent = request.send().await;
    let mut response = sent.map_err(|error| AnswerError::Http(error.without_url()))?;
    if response.status() != StatusCode::OK {
        return Err(AnswerError::Status(response.status()));
    }
    let read = annex_egress::whole(&mut response, limit).await;
    let body = read.map_err(|error| AnswerError::Read(error.map_broken(reqwest::Error::without_url)))?;
    String::from_utf8(body).map_err(AnswerError::NotText)
}
