//! `[traces]`: spans for an OpenTelemetry collector.

use std::collections::BTreeMap;

use axum::http::{HeaderName, HeaderValue, Uri};
use serde::Deserialize;

use super::grants::SecretConfig;
use super::log::RequestShare;

/// The maximum size of `service_name`, in bytes.
const MAX_NAME_BYTES: usize = 256;
/// The maximum of `timeout_seconds`.
const MAX_TIMEOUT: u64 = 600;
/// The maximum of `max_queued`. A span takes 1 to 10 KiB.
const MAX_QUEUED: u64 = 1_000_000;
/// The maximum of `metrics_seconds`.
const MAX_INTERVAL: u64 = 86_400;
/// The path of the collector, if `endpoint` has none.
const HTTP_PATH: &str = "/v1/traces";

/// The table `[traces]`: the collector that gets the spans. Without this table the server has no traces.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracesConfig {
    /// The URL of the collector, such as `http://127.0.0.1:4317`. With `protocol = "http"`, the path is `/v1/traces` if
    /// the URL has no path.
    pub endpoint: String,
    /// The protocol. Default `"grpc"`.
    #[serde(default)]
    pub protocol: TracesProtocol,
    /// Header fields of each request to the collector, such as an API key. The values are secrets. Default: none.
    #[serde(default)]
    pub headers: BTreeMap<String, SecretConfig>,
    /// The traces that are sampled: `"all"`, `"off"`, or a share from 0 to 1, such as 0.01. Default `"all"`.
    #[serde(default)]
    pub sample: RequestShare,
    /// Samples a request with a `traceparent` exactly if its caller has sampled it. With `false`, `sample` decides about
    /// each request. Default: yes.
    #[serde(default = "follow_parent")]
    pub follow_parent: bool,
    /// Time limit of one request to the collector, in seconds. Default 10.
    #[serde(default = "timeout_seconds")]
    pub timeout_seconds: u64,
    /// The maximum number of ended spans that wait for the collector. Further spans are lost. Default 4,096.
    #[serde(default = "max_queued")]
    pub max_queued: usize,
    /// Sends the metrics of `/metrics` to the collector too, each time after so many seconds. Default: never.
    #[serde(default)]
    pub metrics_seconds: Option<u64>,
    /// The name of this service in the traces. Default `"annex"`.
    #[serde(default = "service_name")]
    pub service_name: String,
}

/// The protocol of the collector: OTLP over gRPC, or as protobuf over HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TracesProtocol {
    /// OTLP over gRPC.
    #[default]
    Grpc,
    /// OTLP as protobuf over HTTP.
    Http,
}

fn follow_parent() -> bool {
    true
}

fn timeout_seconds() -> u64 {
    10
}

fn max_queued() -> usize {
    4_096
}

fn service_name() -> String {
    "annex".to_owned()
}

impl TracesConfig {
    /// The mistakes that the types of the keys cannot express, each as a pair of key and reason.
    pub(super) fn wrong(&self) -> Vec<(String, String)> {
        let mut wrong = Vec::new();
        if let Err(reason) = self.url() {
            wrong.push(("traces.endpoint".to_owned(), reason));
        }
        for name in self.headers.keys() {
            if let Some(reason) = header_fault(name) {
                wrong.push((format!("traces.headers.{name}"), reason));
            }
        }
        let queued = u64::try_from(self.max_queued).unwrap_or(u64::MAX);
        let numbers = [
            ("traces.timeout_seconds", Some(self.timeout_seconds), MAX_TIMEOUT),
            ("traces.max_queued", Some(queued), MAX_QUEUED),
            ("traces.metrics_seconds", self.metrics_seconds, MAX_INTERVAL),
        ];
        for (key, number, most) in numbers {
            if number.is_some_and(|number| number == 0 || number > most) {
                wrong.push((key.to_owned(), format!("must be between 1 and {most}")));
            }
        }
        if let (Some(1..), Ok(_), Err(reason)) = (self.metrics_seconds, self.url(), self.metrics_url()) {
            wrong.push(("traces.metrics_seconds".to_owned(), reason));
        }
        if self.service_name.is_empty() || self.service_name.len() > MAX_NAME_BYTES {
            wrong.push(("traces.service_name".to_owned(), format!("takes 1 to {MAX_NAME_BYTES} bytes")));
        }
        wrong
    }

    /// The URL that the spans are sent to.
    ///
    /// # Errors
    /// The reason why `endpoint` cannot be used.
    pub(crate) fn url(&self) -> Result<String, String> {
        let endpoint = self.endpoint.as_str();
        // The text is not shown: it may have a password.
        let unusable =
            || "is no URL of a collector; write it as in \"http://127.0.0.1:4317\", without credentials".to_owned();
        let uri: Uri = endpoint.parse().map_err(|_| unusable())?;
        let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if !matches!(uri.scheme_str(), Some("http" | "https")) || has_user {
            return Err(unusable());
        }
        let has_path = !matches!(uri.path(), "" | "/") || uri.query().is_some();
        match self.protocol {
            TracesProtocol::Grpc if has_path => {
                Err("has a path, which gRPC does not have; leave the path out, or set traces.protocol = \"http\""
                    .to_owned())
            }
            TracesProtocol::Http if !has_path => Ok(format!("{}{HTTP_PATH}", endpoint.trim_end_matches('/'))),
            TracesProtocol::Grpc | TracesProtocol::Http => Ok(endpoint.to_owned()),
        }
    }

    /// The URL that the metrics are sent to.
    ///
    /// # Errors
    /// The reason why `endpoint` cannot be used for metrics.
    pub(crate) fn metrics_url(&self) -> Result<String, String> {
        let url = self.url()?;
        match self.protocol {
            TracesProtocol::Grpc => Ok(url),
            TracesProtocol::Http => {
                let base = url.strip_suffix(HTTP_PATH);
                let foreign = || format!("needs a traces.endpoint whose path ends with {HTTP_PATH}, or has no path");
                base.map(|base| format!("{base}/v1/metrics")).ok_or_else(foreign)
            }
        }
    }
}

fn header_fault(name: &str) -> Option<String> {
    let is_own = ["content-type", "content-length", "host", "te"].contains(&name) || name.starts_with("grpc-");
    let is_valid = HeaderName::try_from(name).is_ok() && name.bytes().all(|byte| !byte.is_ascii_uppercase());
    if is_own {
        return Some("is a field that the protocol sets; leave it out".to_owned());
    }
    (!is_valid).then(|| "is no name of a header field; write it in lower case, as in \"x-api-key\"".to_owned())
}

/// The value of a header field of `[traces]`.
///
/// # Errors
/// The value has characters that a header field cannot have.
pub(crate) fn header_value(secret: &str) -> Result<HeaderValue, String> {
    let value = HeaderValue::try_from(secret).ok().filter(|value| value.to_str().is_ok());
    let mut value = value.ok_or_else(|| "has characters that cannot be sent in a header field".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::TracesConfig;

    fn read(text: &str) -> TracesConfig {
        toml::from_str(text).expect("TOML")
    }

    #[test]
    fn the_path_of_a_collector_over_http_is_that_of_the_protocol_unless_the_config_has_one() {
        for (text, expected) in [
            ("endpoint = 'http://c:4317'", "http://c:4317"),
            ("endpoint = 'http://c:4318'\nprotocol = 'http'", "http://c:4318/v1/traces"),
            ("endpoint = 'http://c:4318/'\nprotocol = 'http'", "http://c:4318/v1/traces"),
            ("endpoint = 'https://c/otlp/v1/traces'\nprotocol = 'http'", "https://c/otlp/v1/traces"),
        ] {
            assert_eq!(read(text).url().as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn each_wrong_key_is_named_with_a_reason() {
        for (text, key) in [
            ("endpoint = 'c:4317'", "traces.endpoint"),
            ("endpoint = 'ftp://c'", "traces.endpoint"),
            ("endpoint = 'http://user:password@c'", "traces.endpoint"),
            ("endpoint = 'http://c/v1/traces'", "traces.endpoint"),
            ("endpoint = 'http://c'\ntimeout_seconds = 0", "traces.timeout_seconds"),
            ("endpoint = 'http://c'\nmax_queued = 0", "traces.max_queued"),
            ("endpoint = 'http://c'\nmetrics_seconds = 0", "traces.metrics_seconds"),
            ("endpoint = 'http://c'\ntimeout_seconds = 601", "traces.timeout_seconds"),
            ("endpoint = 'http://c'\nmax_queued = 9000000000000000000", "traces.max_queued"),
            ("endpoint = 'http://c'\nmetrics_seconds = 86401", "traces.metrics_seconds"),
            ("endpoint = 'http://c/x'\nprotocol = 'http'\nmetrics_seconds = 1", "traces.metrics_seconds"),
            ("endpoint = 'http://c'\nservice_name = ''", "traces.service_name"),
            ("endpoint = 'http://c'\nheaders = { X-Key = { env = 'K' } }", "traces.headers.X-Key"),
            ("endpoint = 'http://c'\nheaders = { host = { env = 'K' } }", "traces.headers.host"),
        ] {
            let wrong = read(text).wrong();
            assert_eq!(wrong.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), [key], "{text}");
        }
    }
}
