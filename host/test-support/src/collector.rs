//! A collector of traces that decodes what it receives, over gRPC and over HTTP.

use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsServiceRequest, ExportMetricsServiceResponse};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::net::TcpListener;

use crate::wait::until;

/// The spans that a collector has received. Clones share them.
#[derive(Clone, Default)]
pub struct Collector(Arc<Mutex<ReceivedSpans>>);

#[derive(Default)]
struct ReceivedSpans {
    spans: Vec<Span>,
    /// The metrics of the last request.
    metrics: Vec<Metric>,
    /// The name of the service, for each request.
    services: Vec<String>,
    /// The header field `x-key`, for each request that has it.
    keys: Vec<String>,
}

impl Collector {
    /// Starts a collector on a free port. Returns its URL, for both protocols.
    ///
    /// # Panics
    /// No port is free.
    pub async fn start() -> (String, Self) {
        let collector = Self::default();
        let over_http = Router::new().route("/v1/traces", post(take)).route("/v1/metrics", post(take_metrics));
        let over_http = over_http.with_state(collector.clone());
        let over_grpc = Router::new().route_service(
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            TraceServiceServer::new(collector.clone()),
        );
        let over_grpc = over_grpc.route_service(
            "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            MetricsServiceServer::new(collector.clone()),
        );
        (serve(over_http.merge(over_grpc)).await, collector)
    }

    /// Waits for a span with this name, and for all spans of its trace that end before it.
    ///
    /// # Panics
    /// The collector has no span with this name after a minute.
    pub async fn trace_of(&self, name: &str) -> Vec<Span> {
        until(&format!("the collector has a span {name}"), async || self.spans().iter().any(|span| span.name == name))
            .await;
        let spans = self.spans();
        let trace = spans.iter().find(|span| span.name == name).expect("a span").trace_id.clone();
        spans.into_iter().filter(|span| span.trace_id == trace).collect()
    }

    /// All spans.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        self.received().spans.clone()
    }

    /// Removes and counts all spans, for benches that receive many.
    pub fn take_count(&self) -> usize {
        std::mem::take(&mut self.received().spans).len()
    }

    /// The metric with this name in the last request. `None` before the first request.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<Metric> {
        self.received().metrics.iter().find(|metric| metric.name == name).cloned()
    }

    /// The name of the service, for each request with spans.
    #[must_use]
    pub fn services(&self) -> Vec<String> {
        self.received().services.clone()
    }

    /// The values of the field `x-key` of all requests.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.received().keys.clone()
    }

    fn received(&self) -> MutexGuard<'_, ReceivedSpans> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_metrics(&self, request: ExportMetricsServiceRequest) {
        let scopes = request.resource_metrics.into_iter().flat_map(|of_resource| of_resource.scope_metrics);
        self.received().metrics = scopes.flat_map(|scope| scope.metrics).collect();
    }

    fn add(&self, request: ExportTraceServiceRequest, key: Option<&str>) {
        let mut received = self.received();
        received.keys.extend(key.map(str::to_owned));
        for of_resource in request.resource_spans {
            let attributes = of_resource.resource.expect("a resource").attributes;
            received.services.extend(attribute_of(&attributes, "service.name"));
            received.spans.extend(of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    }
}

/// Starts a server that takes connections and never answers. Returns its URL.
///
/// # Panics
/// No port is free.
pub async fn silent() -> String {
    serve(Router::new().fallback(async || pending::<String>().await)).await
}

async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

async fn take(State(collector): State<Collector>, headers: HeaderMap, body: Bytes) -> Vec<u8> {
    assert_eq!(headers.get("content-type").map(HeaderValue::as_bytes), Some(&b"application/x-protobuf"[..]));
    let request = ExportTraceServiceRequest::decode(body).expect("protobuf");
    collector.add(request, headers.get("x-key").and_then(|key| key.to_str().ok()));
    ExportTraceServiceResponse::default().encode_to_vec()
}

async fn take_metrics(State(collector): State<Collector>, headers: HeaderMap, body: Bytes) -> Vec<u8> {
    assert_eq!(headers.get("content-type").map(HeaderValue::as_bytes), Some(&b"application/x-protobuf"[..]));
    collector.set_metrics(ExportMetricsServiceRequest::decode(body).expect("protobuf"));
    ExportMetricsServiceResponse::default().encode_to_vec()
}

#[async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportMetricsServiceRequest>,
    ) -> Result<tonic::Response<ExportMetricsServiceResponse>, tonic::Status> {
        self.set_metrics(request.into_inner());
        Ok(tonic::Response::new(ExportMetricsServiceResponse::default()))
    }
}

#[async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let key = request.metadata().get("x-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
        self.add(request.into_inner(), key.as_deref());
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

/// An attribute as text.
#[must_use]
pub fn attribute_of(attributes: &[KeyValue], key: &str) -> Option<String> {
    let value = attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value?;
    Some(match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}
