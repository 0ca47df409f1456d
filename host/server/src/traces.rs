//! Sends spans to an OpenTelemetry collector (OTLP over gRPC, or as protobuf over HTTP).
//!
//! A collector that is slow or unreachable delays no request: its spans are lost and counted.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use annex_telemetry::traces::{Tracer, TracerConfig};
use async_trait::async_trait;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::KeyValue;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::tonic_types::metadata::MetadataMap;
use opentelemetry_otlp::tonic_types::transport::ClientTlsConfig;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::config::{TracesConfig, TracesProtocol, header_value};
use crate::metrics_sender::MetricsSender;

/// The maximum number of spans in one request to the collector.
const MAX_BATCH: usize = 512;
/// The time that an ended span waits for further spans of the same request to the collector.
const LINGER: Duration = Duration::from_millis(500);
/// The time between two looks at the queue while a span waits.
const LOOK_INTERVAL: Duration = Duration::from_millis(25);
/// The minimum time between two log lines about lost spans.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The maximum size of the collector's answer. A longer answer is cut.
const MAX_ANSWER: usize = 64 << 10;
/// The maximum size of the text of an error in the log, in bytes.
pub(crate) const MAX_ERROR: usize = 512;
/// Time limit for sending the last spans, and for sending the last metrics, during shutdown.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The reasons why spans cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// A key of the table has a value that cannot be used.
    #[error("{key} {reason}")]
    Key {
        /// The key, such as `headers.x-api-key`.
        key: String,
        /// The reason.
        reason: String,
    },
    /// The client for the collector cannot be created.
    #[error("the client for the collector cannot be created")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The sender of spans.
pub(crate) struct Traces {
    pub(crate) tracer: Tracer,
    /// The sender of metrics. `None` if the config wants no metrics.
    pub(crate) metrics: Option<MetricsSender>,
    stop: CancellationToken,
    sending: Mutex<Option<JoinHandle<()>>>,
}

/// Sends the spans of the queue to the collector, in batches.
struct Collector {
    exporter: SpanExporter,
    timeout: Duration,
    tracer: Tracer,
    /// The time of the last log line, and the number of spans that were lost until then.
    logged: Option<(Instant, u64)>,
}

impl Traces {
    /// Starts a tokio task that sends spans. Contacts the collector only when there are spans. Relative paths in the
    /// config start at `folder`.
    ///
    /// # Errors
    /// [`TracesError`] names the key.
    pub(crate) fn start(config: &TracesConfig, folder: &Path) -> Result<Self, TracesError> {
        let settings = TracerConfig {
            sample: config.sample.share(),
            follow_parent: config.follow_parent,
            max_queued: config.max_queued,
        };
        let (tracer, queue) = Tracer::new(&settings);
        let timeout = Duration::from_secs(config.timeout_seconds);
        let mut exporter = exporter(config, headers(config, folder)?, timeout)?;
        exporter.set_resource(&resource(&config.service_name));
        let metrics = MetricsSender::new(config, folder)?;
        let stop = CancellationToken::new();
        let collector = Collector { exporter, timeout, tracer: tracer.clone(), logged: None };
        let sending = tokio::spawn(collector.send_all(queue, stop.clone()));
        Ok(Self { tracer, metrics, stop, sending: Mutex::new(Some(sending)) })
    }

    /// Sends the spans that have ended, and stops. Spans that the collector has not taken within five seconds are lost.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        let sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut sending) = sending else { return };
        if timeout(CLOSE_TIMEOUT, &mut sending).await.is_err() {
            sending.abort();
            tracing::warn!("the last spans are lost: the collector of [traces] does not answer");
        }
    }
}

impl Drop for Traces {
    /// Stops the tokio task of an app that was not served. The task has a tracer of its own, so the queue stays open.
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Checks the header fields of the config. Returns each mistake as a pair of key and reason.
pub(crate) fn wrong_headers(config: &TracesConfig, folder: &Path) -> Vec<(String, String)> {
    let wrong = config.headers.iter().filter_map(|(name, secret)| {
        let value = secret.read(folder).and_then(|secret| header_value(secret.expose()).map(drop));
        Some((format!("traces.headers.{name}.{}", secret.key()), value.err()?))
    });
    wrong.collect()
}

/// The header fields of the config.
///
/// # Errors
/// [`TracesError`] names the field.
pub(crate) fn headers(config: &TracesConfig, folder: &Path) -> Result<HeaderMap, TracesError> {
    let read = config.headers.iter().map(|(name, secret)| {
        let wrong = |reason| TracesError::Key { key: format!("headers.{name}"), reason };
        let value = secret.read(folder).and_then(|secret| header_value(secret.expose())).map_err(wrong)?;
        let name = HeaderName::try_from(name.as_str()).map_err(|error| wrong(error.to_string()))?;
        Ok((name, value))
    });
    read.collect()
}

fn exporter(config: &TracesConfig, headers: HeaderMap, timeout: Duration) -> Result<SpanExporter, TracesError> {
    let url = config.url().map_err(|reason| TracesError::Key { key: "endpoint".to_owned(), reason })?;
    // The process has one crypto provider. Installing fails if another part of the process did so before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let built = match config.protocol {
        TracesProtocol::Grpc => {
            let builder = SpanExporter::builder().with_tonic().with_metadata(MetadataMap::from_headers(headers));
            let builder = match url.starts_with("https:") {
                true => builder.with_tls_config(ClientTlsConfig::new().with_enabled_roots()),
                false => builder,
            };
            builder.with_endpoint(url).with_timeout(timeout).build()
        }
        TracesProtocol::Http => {
            let builder =
                annex_egress::client_builder(Vec::new()).redirect(reqwest::redirect::Policy::none()).timeout(timeout);
            let http = CollectorClient(builder.build().map_err(|error| TracesError::Client(error.into()))?);
            let fields = headers.iter().map(|(name, value)| (name.to_string(), text_of(value)));
            let builder = SpanExporter::builder().with_http().with_http_client(http);
            let builder = builder.with_headers(fields.collect::<HashMap<_, _>>()).with_protocol(Protocol::HttpBinary);
            builder.with_endpoint(url).with_timeout(timeout).build()
        }
    };
    built.map_err(|error| TracesError::Client(error.into()))
}

fn text_of(value: &HeaderValue) -> String {
    value.to_str().unwrap_or_default().to_owned()
}

fn resource(service: &str) -> Resource {
    let attributes = [
        KeyValue::new("service.name", service.to_owned()),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("telemetry.sdk.language", "rust"),
        KeyValue::new("telemetry.sdk.name", "opentelemetry"),
    ];
    Resource::builder_empty().with_attributes(attributes).build()
}

impl Collector {
    /// Sends the spans of the queue, until `stop` fires. Then sends the remaining spans.
    async fn send_all(mut self, mut queue: Receiver<SpanData>, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        loop {
            let read = stop.run_until_cancelled(queue.recv_many(&mut batch, MAX_BATCH)).await;
            if read.is_none_or(|spans| spans == 0) {
                break;
            }
            // A turn ends many spans within a short time. They are sent together.
            if stop.run_until_cancelled(linger(&queue, batch.len())).await.is_some() {
                take_ready(&mut queue, &mut batch);
            }
            self.send(std::mem::take(&mut batch)).await;
        }
        queue.close();
        loop {
            take_ready(&mut queue, &mut batch);
            if batch.is_empty() {
                return;
            }
            self.send(std::mem::take(&mut batch)).await;
        }
    }

    async fn send(&mut self, batch: Vec<SpanData>) {
        let spans = batch.len();
        // The library has its own time limit, which does not cover the pauses that a collector asks for.
        let sent = timeout(self.timeout, Box::pin(self.exporter.export(batch))).await;
        match sent.unwrap_or(Err(OTelSdkError::Timeout(self.timeout))) {
            Ok(()) => self.tracer.add_sent(spans),
            Err(error) => {
                self.tracer.add_lost(spans);
                self.log(Some(&error));
            }
        }
        let (_, lost) = self.tracer.counts();
        if lost > self.logged.map_or(0, |(_, logged)| logged) {
            self.log(None);
        }
    }

    /// Logs how many spans were lost since the last line, at most once per [`LOG_INTERVAL`]. `error` is `None` if
    /// no request to the collector has failed: the queue was full, or a request had too many spans.
    fn log(&mut self, error: Option<&OTelSdkError>) {
        if self.logged.is_some_and(|(at, _)| at.elapsed() < LOG_INTERVAL) {
            return;
        }
        let (_, lost) = self.tracer.counts();
        let spans = lost.saturating_sub(self.logged.map_or(0, |(_, logged)| logged));
        match error {
            Some(error) => {
                // The collector may have written a part of the text.
                let error = annex_text::line_within(&annex_text::with_causes(error), MAX_ERROR);
                tracing::warn!(spans, error, "spans are lost: the collector of [traces] does not take them");
            }
            None => tracing::warn!(
                spans,
                "spans are lost: more than traces.max_queued wait for the collector, or a request has more than 1,000"
            ),
        }
        self.logged = Some((Instant::now(), lost));
    }
}

/// Waits until there are enough spans for a request to the collector, at most for [`LINGER`]. `taken` spans are out of the
/// queue already.
async fn linger<T>(queue: &Receiver<T>, taken: usize) {
    let until = Instant::now() + LINGER;
    // Not woken by each span, which would cost more than these looks.
    while taken + queue.len() < MAX_BATCH && Instant::now() < until {
        sleep(LOOK_INTERVAL).await;
    }
}

fn take_ready(queue: &mut Receiver<SpanData>, batch: &mut Vec<SpanData>) {
    while batch.len() < MAX_BATCH
        && let Ok(span) = queue.try_recv()
    {
        batch.push(span);
    }
}

/// The HTTP client of this server in the form that the exporter takes.
#[derive(Debug)]
struct CollectorClient(reqwest::Client);

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let request = self.0.request(head.method, head.uri.to_string()).headers(head.headers).body(body);
        let mut answer = request.send().await.map_err(reqwest::Error::without_url)?;
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = answer.status();
        *response.headers_mut() = std::mem::take(answer.headers_mut());
        *response.body_mut() = annex_egress::beginning(&mut answer, MAX_ANSWER).await.into();
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use tokio::sync::mpsc;
    use tokio::time::{Instant, timeout};

    use super::{LINGER, LOOK_INTERVAL, MAX_BATCH, Traces, linger};

    #[tokio::test(start_paused = true)]
    async fn spans_wait_for_others_until_a_request_is_full() {
        for (queued, wait) in [(0, LINGER), (10, LINGER), (MAX_BATCH - 1, Duration::ZERO)] {
            let (spans, queue) = mpsc::channel(MAX_BATCH);
            for span in 0..queued {
                spans.try_send(span).expect("room");
            }
            let began = Instant::now();
            linger(&queue, 1).await;
            let waited = began.elapsed();
            assert!(waited >= wait && waited <= wait + LOOK_INTERVAL, "{queued}: {waited:?}");
        }
    }

    #[tokio::test]
    async fn the_task_that_sends_spans_ends_with_an_app_that_is_not_served() {
        let config = toml::from_str("endpoint = 'http://127.0.0.1:1'").expect("a config");
        let traces = Traces::start(&config, Path::new(".")).expect("a sender");
        let sending = traces.sending.lock().expect("no panic").take().expect("a task");
        drop(traces);
        timeout(Duration::from_secs(10), sending).await.expect("an end").expect("no panic");
    }
}
