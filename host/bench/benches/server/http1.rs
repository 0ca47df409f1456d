//! Requests over one HTTP/1.1 connection.

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) async fn connect(address: &str) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends the request `count` times over a new connection. Each request is sent after the answer to the previous one.
pub(crate) async fn work(address: &str, request: &str, is_streamed: bool, count: usize) -> anyhow::Result<()> {
    let mut stream = connect(address).await?;
    let mut buffer = Vec::with_capacity(64 << 10);
    for _ in 0..count {
        ensure_completed(ask(&mut stream, request, is_streamed, &mut buffer).await?)?;
    }
    Ok(())
}

/// Fails unless the answer is a completed task. An error would be cheap to serve and would look like speed.
pub(crate) fn ensure_completed(answer: &[u8]) -> anyhow::Result<()> {
    let completed = answer.windows(20).any(|window| window == b"TASK_STATE_COMPLETED");
    anyhow::ensure!(completed, "{}", String::from_utf8_lossy(answer));
    Ok(())
}

/// Sends a request and reads the whole response, including its head.
pub(crate) async fn ask<'a>(
    stream: &mut TcpStream,
    request: &str,
    is_streamed: bool,
    buffer: &'a mut Vec<u8>,
) -> anyhow::Result<&'a [u8]> {
    stream.write_all(request.as_bytes()).await?;
    buffer.clear();
    loop {
        anyhow::ensure!(stream.read_buf(buffer).await? > 0, "the server hung up");
        let is_whole = if is_streamed { ends_stream(buffer) } else { is_whole(buffer)? };
        if is_whole {
            return Ok(buffer);
        }
    }
}

/// Tells whether the buffer ends with the last chunk of a stream.
fn ends_stream(buffer: &[u8]) -> bool {
    buffer.ends_with(b"\r\n0\r\n\r\n")
}

/// Tells whether the buffer has the whole response.
pub(crate) fn is_whole(buffer: &[u8]) -> anyhow::Result<bool> {
    let Some(head) = head(buffer) else { return Ok(false) };
    let length = header(buffer, "content-length")?.context("a length")?;
    Ok(buffer.len() >= head + 4 + length.parse::<usize>()?)
}

/// The length of the head without its empty line; `None` while the head is incomplete.
pub(crate) fn head(buffer: &[u8]) -> Option<usize> {
    buffer.windows(4).position(|window| window == b"\r\n\r\n")
}

/// The value of a response header. `name` is in lower case, as servers write it.
pub(crate) fn header<'a>(answer: &'a [u8], name: &str) -> anyhow::Result<Option<&'a str>> {
    let head = std::str::from_utf8(answer.get(..head(answer).unwrap_or_default()).unwrap_or_default())?;
    Ok(head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")))
}
