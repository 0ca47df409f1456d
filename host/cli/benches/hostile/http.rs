//! HTTP/1.1 requests written by hand, as an attacker writes them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result};

/// The URI of the extension that misbehaves on command.
pub(crate) const TEST_URI: &str = "https://annex.example/test/v1";
/// The timeout for each read of an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends a request and reads the answer to its end.
pub(crate) fn exchange(address: &str, request: &[u8]) -> Result<String> {
    let mut stream = connect(address)?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

pub(crate) fn connect(address: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).context("connect")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").into_bytes()
}

/// A request with a JSON-RPC call. `extensions` is the value of its `A2A-Extensions` header field.
pub(crate) fn call(method: &str, params: &str, extensions: &str) -> Vec<u8> {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let mut request = head(body.len(), extensions);
    request.extend_from_slice(body.as_bytes());
    request
}

/// The head of a JSON-RPC call whose body has `length` bytes.
pub(crate) fn head(length: usize, extensions: &str) -> Vec<u8> {
    format!(
        "POST /a2a/jsonrpc HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         A2A-Version: 1.0\r\nA2A-Extensions: {extensions}\r\nContent-Length: {length}\r\n\r\n"
    )
    .into_bytes()
}

/// The parameters of SendMessage with one message. `more` is the JSON text of further members of the message.
pub(crate) fn message(id: &str, text: &str, more: &str) -> String {
    format!(r#"{{"message":{{"messageId":"{id}","role":"ROLE_USER","parts":[{{"text":"{text}"}}]{more}}}}}"#)
}
