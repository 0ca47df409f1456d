//! Sends a request through the streams of `wasi:http`.

use wasip2::http::outgoing_handler;
use wasip2::http::types::{Fields, IncomingBody, IncomingResponse, OutgoingBody, OutgoingRequest};
use wasip2::io::streams::StreamError;

use super::{Error, ErrorCode, Request, Response, split};

/// The maximum number of bytes that a stream accepts at once (`wasi:io/streams`).
const CHUNK: usize = 4096;
/// The maximum number of bytes of a response that are read at once.
const READ: u64 = 64 * 1024;

/// Sends a request and reads the whole response.
pub(super) fn exchange(sent: &Request) -> Result<Response, Error> {
    let (scheme, authority, path) = split(&sent.url)?;
    let fields = Fields::from_list(&sent.fields).map_err(|error| Error::Fields(error.to_string()))?;
    let request = OutgoingRequest::new(fields);
    request.set_method(&sent.method).map_err(|()| Error::Url("the method is no token"))?;
    request.set_scheme(Some(&scheme)).map_err(|()| Error::Url("the host refuses its scheme"))?;
    request.set_authority(Some(authority)).map_err(|()| Error::Url("its host or port is invalid"))?;
    request.set_path_with_query(Some(path)).map_err(|()| Error::Url("the host refuses its path or query"))?;
    // The body is taken out first: the request is the host's once it is handed over.
    let body = request.body().map_err(|()| Error::Failed(ErrorCode::HttpRequestBodySize(None)))?;
    let answer = outgoing_handler::handle(request, None).map_err(Error::Failed)?;
    // The host reads the body while it sends, so it is written once the request is on its way.
    write(body, &sent.body)?;
    // The outer limit of the turn ends this wait.
    answer.subscribe().block();
    match answer.get() {
        Some(Ok(Ok(response))) => read(&response),
        Some(Ok(Err(code))) => Err(Error::Failed(code)),
        Some(Err(())) | None => Err(Error::Failed(ErrorCode::HttpResponseIncomplete)),
    }
}

fn write(body: OutgoingBody, bytes: &[u8]) -> Result<(), Error> {
    let incomplete = || Error::Failed(ErrorCode::HttpRequestBodySize(None));
    let stream = body.write().map_err(|()| incomplete())?;
    for chunk in bytes.chunks(CHUNK) {
        stream.blocking_write_and_flush(chunk).map_err(|_| incomplete())?;
    }
    // `wasi:http/types`: the stream of a body is dropped before the body is finished.
    drop(stream);
    OutgoingBody::finish(body, None).map_err(Error::Failed)
}

fn read(response: &IncomingResponse) -> Result<Response, Error> {
    let incomplete = || Error::Failed(ErrorCode::HttpResponseIncomplete);
    let body: IncomingBody = response.consume().map_err(|()| incomplete())?;
    let stream = body.stream().map_err(|()| incomplete())?;
    let mut bytes = Vec::new();
    loop {
        match stream.blocking_read(READ) {
            Ok(chunk) => bytes.extend_from_slice(&chunk),
            // In `wasi:io/streams` the end of a stream is an error.
            Err(StreamError::Closed) => break,
            Err(StreamError::LastOperationFailed(error)) => {
                let code = wasip2::http::types::http_error_code(&error);
                let unnamed = || ErrorCode::InternalError(Some(error.to_debug_string()));
                return Err(Error::Failed(code.unwrap_or_else(unnamed)));
            }
        }
    }
    Ok(Response { status: response.status(), fields: response.headers().entries(), body: bytes })
}
