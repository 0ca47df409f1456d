//! Reads a response, within bounds, as the text that a page shows.

use std::time::Duration;

use axum::response::Response;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

use crate::console::shown::block_within;

/// The maximum size of the part of a response that is read, in bytes.
const MAX_BYTES: usize = 128 << 10;
/// The longest time to wait for the end of a response.
const PATIENCE: Duration = Duration::from_secs(30);

/// The response as text, and a note if its end is missing.
pub(super) async fn read(response: Response) -> (String, Option<&'static str>) {
    let (head, mut body) = response.into_parts();
    let mut text = format!("HTTP/1.1 {}\n", head.status);
    for (name, value) in &head.headers {
        text.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
    }
    text.push('\n');
    let until = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    let note = loop {
        if bytes.len() > MAX_BYTES {
            break Some("The response is longer. The rest was not read.");
        }
        match timeout_at(until, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    bytes.extend_from_slice(&data);
                }
            }
            Ok(Some(Err(_))) => break Some("The response broke off."),
            Ok(None) => break None,
            Err(_) => break Some("The response did not end within 30 seconds. The turn goes on without this reader."),
        }
    };
    text.push_str(&String::from_utf8_lossy(&bytes));
    (block_within(&text, MAX_BYTES), note)
}
