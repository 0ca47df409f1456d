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

/// An answer with one of the expected statuses.
pub(crate) struct TextAnswer {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

/// Sends the request, and returns the text of an answer with the status 200 and at most `limit` bytes.
pub(crate) async fn text_of(request: RequestBuilder, limit: usize) -> Result<String, AnswerError> {
    Ok(text_with(request, &[StatusCode::OK], limit).await?.text)
}

/// Sends the request, and returns an answer with one of these statuses and at most `limit` bytes.
pub(crate) async fn text_with(
    request: RequestBuilder,
    expected: &[StatusCode],
    limit: usize,
) -> Result<TextAnswer, AnswerError> {
    let sent = request.send().await;
    let mut response = sent.map_err(|error| AnswerError::Http(error.without_url()))?;
    let status = response.status();
    if !expected.contains(&status) {
        return Err(AnswerError::Status(status));
    }
    let read = annex_egress::whole(&mut response, limit).await;
    let body = read.map_err(|error| AnswerError::Read(error.map_broken(reqwest::Error::without_url)))?;
    Ok(TextAnswer { status, text: String::from_utf8(body).map_err(AnswerError::NotText)? })
}
