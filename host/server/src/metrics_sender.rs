//! Sends the metrics of `/metrics` to the collector of `[traces]` (OTLP). The durations of requests have exemplars, which
//! name a trace.

use std::path::Path;
use std::time::{Duration, SystemTime};

use axum::http::{HeaderMap, HeaderValue, header};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, exemplar, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use tokio::time::timeout;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};

use crate::access_log;
use crate::admin::exposition::{Family, Kind, Sample, SampleValue};
use crate::config::{TracesConfig, TracesProtocol};
use crate::traces::{self, TracesError};

/// The error of a request to the collector.
pub(crate) type Source = Box<dyn std::error::Error + Send + Sync>;

/// The client for the collector.
pub(crate) struct MetricsSender {
    transport: Transport,
    headers: HeaderMap,
    service: String,
    /// The time between two requests.
    pub(crate) interval: Duration,
    timeout: Duration,
    /// The time from which on counters count.
    began: SystemTime,
}

enum Transport {
    Grpc(Channel),
    Http { client: reqwest::Client, url: String },
}

impl MetricsSender {
    /// Creates the client. Connects when the first metrics are sent. `None` if the config wants no metrics.
    ///
    /// # Errors
    /// [`TracesError`] names the key.
    pub(crate) fn new(config: &TracesConfig, folder: &Path) -> Result<Option<Self>, TracesError> {
        let Some(seconds) = config.metrics_seconds else { return Ok(None) };
        let wrong = |reason| TracesError::Key { key: "metrics_seconds".to_owned(), reason };
        let url = config.metrics_url().map_err(wrong)?;
        let timeout = Duration::from_secs(config.timeout_seconds);
        // The process has one crypto provider. Installing fails if another part of the process did so before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let transport = match config.protocol {
            TracesProtocol::Grpc => Transport::Grpc(channel(url).map_err(TracesError::Client)?),
            TracesProtocol::Http => {
                let client = annex_egress::client_builder(Vec::new())
                    .redirect(reqwest::redirect::Policy::none())
                    .timeout(timeout);
                let client = client.build().map_err(|error| TracesError::Client(error.into()))?;
                Transport::Http { client, url }
            }
        };
        Ok(Some(Self {
            transport,
            headers: traces::headers(config, folder)?,
            service: config.service_name.clone(),
            interval: Duration::from_secs(seconds),
            timeout,
            began: SystemTime::now(),
        }))
    }

    /// Sends the metrics once.
    ///
    /// # Errors
    /// The collector has not taken them.
    pub(crate) async fn send(&self, families: Vec<Family>) -> Result<(), Source> {
        let request = self.request(families);
        let sent = async {
            match &self.transport {
                Transport::Grpc(channel) => {
                    let mut request = tonic::Request::new(request);
                    *request.metadata_mut() = MetadataMap::from_headers(self.headers.clone());
                    MetricsServiceClient::new(channel.clone()).export(request).await?;
                }
                Transport::Http { client, url } => {
                    let request = client.post(url).headers(self.headers.clone()).body(request.encode_to_vec());
                    let protobuf = HeaderValue::from_static("application/x-protobuf");
                    let status = request.header(header::CONTENT_TYPE, protobuf).send().await?.status();
                    // A redirect is not followed, so the metrics are lost.
                    if !status.is_success() {
                        return Err(format!("the collector answers with the status {status}").into());
                    }
                }
            }
            Ok::<(), Source>(())
        };
        timeout(self.timeout, Box::pin(sent)).await?
    }

    fn request(&self, families: Vec<Family>) -> ExportMetricsServiceRequest {
        let times = Times { began: nanos(self.began), now: nanos(SystemTime::now()) };
        let metrics = families.into_iter().map(|family| metric(family, times)).collect();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let resource = vec![attribute("service.name", &self.service), attribute("service.version", &version)];
        let scope = InstrumentationScope { name: "annex".to_owned(), version, ..InstrumentationScope::default() };
        let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, schema_url: String::new() }];
        let resource = Some(Resource { attributes: resource, ..Resource::default() });
        let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, schema_url: String::new() }];
        ExportMetricsServiceRequest { resource_metrics }
    }
}

fn channel(url: String) -> Result<Channel, Source> {
    let is_secure = url.starts_with("https:");
    let endpoint = Endpoint::from_shared(url)?;
    let endpoint = match is_secure {
        true => endpoint.tls_config(ClientTlsConfig::new().with_enabled_roots())?,
        false => endpoint,
    };
    Ok(endpoint.connect_lazy())
}

/// The times of all data points, in nanoseconds since 1970.
#[derive(Clone, Copy)]
struct Times {
    began: u64,
    now: u64,
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn metric(family: Family, times: Times) -> Metric {
    let Family { name, kind, help, samples } = family;
    let temporality = AggregationTemporality::Cumulative as i32;
    let data = match kind {
        Kind::Gauge => Data::Gauge(Gauge { data_points: numbers(samples, times) }),
        Kind::Counter => {
            let data_points = numbers(samples, times);
            Data::Sum(Sum { data_points, aggregation_temporality: temporality, is_monotonic: true })
        }
        Kind::Histogram => {
            let data_points = samples.into_iter().filter_map(|sample| histogram(sample, times)).collect();
            Data::Histogram(Histogram { data_points, aggregation_temporality: temporality })
        }
    };
    Metric {
        name: name.to_owned(),
        description: help,
        unit: unit(name).to_owned(),
        metadata: Vec::new(),
        data: Some(data),
    }
}

/// The unit of a metric, as UCUM writes it. Numbers have none: a collector would append `_ratio` to the names of gauges with
/// the unit `1` for Prometheus.
fn unit(name: &str) -> &'static str {
    match name.trim_end_matches("_total") {
        name if name.ends_with("_seconds") => "s",
        name if name.ends_with("_bytes") => "By",
        _ => "",
    }
}

fn numbers(samples: Vec<Sample>, times: Times) -> Vec<NumberDataPoint> {
    let point = |Sample { labels, value }: Sample| {
        let SampleValue::Number(number) = value else { return None };
        Some(NumberDataPoint {
            attributes: attributes(&labels),
            start_time_unix_nano: times.began,
            time_unix_nano: times.now,
            value: Some(number_data_point::Value::AsDouble(number)),
            ..NumberDataPoint::default()
        })
    };
    samples.into_iter().filter_map(point).collect()
}

fn histogram(sample: Sample, times: Times) -> Option<HistogramDataPoint> {
    let SampleValue::Histogram { within, count, sum, exemplar } = sample.value else { return None };
    let mut bucket_counts = Vec::with_capacity(within.len() + 1);
    let mut before = 0;
    for (_, up_to) in &within {
        bucket_counts.push(up_to.saturating_sub(before));
        before = *up_to;
    }
    bucket_counts.push(count.saturating_sub(before));
    Some(HistogramDataPoint {
        attributes: attributes(&sample.labels),
        start_time_unix_nano: times.began,
        time_unix_nano: times.now,
        count,
        sum: Some(sum.as_secs_f64()),
        bucket_counts,
        explicit_bounds: within.iter().map(|(bound, _)| bound.as_secs_f64()).collect(),
        exemplars: exemplar.iter().map(exemplar_of).collect(),
        ..HistogramDataPoint::default()
    })
}

fn exemplar_of(request: &access_log::Exemplar) -> Exemplar {
    Exemplar {
        filtered_attributes: Vec::new(),
        time_unix_nano: nanos(request.at),
        span_id: request.span.span_id().to_bytes().to_vec(),
        trace_id: request.span.trace_id().to_bytes().to_vec(),
        value: Some(exemplar::Value::AsDouble(request.took.as_secs_f64())),
    }
}

fn attributes(labels: &[(String, String)]) -> Vec<KeyValue> {
    labels.iter().map(|(name, value)| attribute(name, value)).collect()
}

fn attribute(name: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) });
    KeyValue { key: name.to_owned(), value, ..KeyValue::default() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::post;
    use tokio::net::TcpListener;

    use super::{MetricsSender, unit};

    #[test]
    fn a_metric_has_the_unit_of_its_name_and_a_number_has_none() {
        for (name, expected) in [
            ("annex_request_duration_seconds", "s"),
            ("annex_hook_thread_seconds_total", "s"),
            ("annex_component_bytes", "By"),
            ("annex_turns_running", ""),
            ("annex_turns_total", ""),
        ] {
            assert_eq!(unit(name), expected, "{name}");
        }
    }

    #[tokio::test]
    async fn a_collector_that_redirects_has_not_taken_the_metrics() {
        for (status, is_taken) in [(StatusCode::OK, true), (StatusCode::TEMPORARY_REDIRECT, false)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let url = format!("http://{}", listener.local_addr().expect("an address"));
            let answer = move || async move { (status, [("location", "/elsewhere")]) };
            let router = Router::new().route("/v1/metrics", post(answer));
            tokio::spawn(async move { axum::serve(listener, router).await });
            let config = format!("endpoint = {url:?}\nprotocol = \"http\"\nmetrics_seconds = 1");
            let config = toml::from_str(&config).expect("a config");
            let sender = MetricsSender::new(&config, Path::new(".")).expect("a client").expect("a sender");
            assert_eq!(sender.send(Vec::new()).await.is_ok(), is_taken, "{status}");
        }
    }
}
