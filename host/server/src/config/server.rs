//! `[server]`: the listener with its limits of size, number and time.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;

use super::cors::CorsOrigins;
use super::tls::TlsConfig;
use crate::connections::caller::ShareLimits;
use crate::connections::listener::ConnectionLimits;

/// The table `[server]`: the listener and its limits.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Address and port. Port 0 lets the kernel choose a free port. Default `127.0.0.1:9999`.
    pub listen: SocketAddr,
    /// The base URL under which clients reach the server, as the card gives it. Default: `https://` with `tls` and
    /// `http://` without, and the address of the listener.
    pub public_url: Option<String>,
    /// Serves anonymous clients although `listen` is not a loopback address. Default: no.
    pub allow_anonymous: bool,
    /// The origins of web pages that may call from a browser. Default: none.
    pub cors_origins: CorsOrigins,
    /// Serves clients of A2A 0.3 too. Default: yes.
    pub a2a_0_3: bool,
    /// The maximum size of a request body, in bytes. Default 1 MiB.
    pub max_body_bytes: usize,
    /// Time limit in seconds for a client to send a request body. Default 30.
    pub body_seconds: u64,
    /// Time limit in seconds for a client to send the head of a request. A connection without a request is closed after
    /// this time, too. Default 60.
    pub head_seconds: u64,
    /// Seconds after which a connection is closed if the client reads nothing. Default 60.
    pub write_seconds: u64,
    /// The maximum number of connections at the same time. Further clients wait until a connection closes. Default
    /// 16,384.
    pub max_connections: usize,
    /// The maximum number of connections at the same time from one address, or from one /64 of IPv6. Further
    /// connections are closed. Default 4,096.
    pub max_connections_per_address: usize,
    /// The maximum number of requests at the same time on one HTTP/2 connection. Default 32.
    pub max_requests_per_connection: u32,
    /// The maximum size, in bytes, of all request bodies that have not arrived completely. The bodies of one caller may
    /// take a quarter of these bytes. Default 64 MiB.
    pub max_reading_bytes: usize,
    /// The maximum size, in bytes, of all unread answers over 16 KiB together. All answers of one caller together may
    /// take a quarter of these bytes. A single answer may be longer. Default 256 MiB.
    pub max_answer_bytes: usize,
    /// The maximum number of event streams at the same time. Default 10,000.
    pub max_streams: usize,
    /// The maximum number of event streams at the same time per caller. Default 1,000.
    pub max_streams_per_caller: usize,
    /// Seconds for running turns to finish after SIGTERM. Default 10.
    pub drain_seconds: u64,
    /// Time limit in seconds for one turn of the agent. Default 600.
    pub max_turn_seconds: u64,
    /// The maximum number of turns of one conversation that wait for the running turn. Default 64.
    pub max_waiting_turns: usize,
    /// The maximum number of turns at the same time, including waiting turns. Further turns are refused. Default 1,000.
    pub max_running_turns: usize,
    /// The maximum number of turns at the same time per authenticated caller. Default 100.
    pub max_running_turns_per_caller: usize,
    /// The TLS of the listener. Default: plain HTTP.
    pub tls: Option<TlsConfig>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9999)),
            public_url: None,
            allow_anonymous: false,
            cors_origins: CorsOrigins::default(),
            a2a_0_3: true,
            max_body_bytes: 1 << 20,
            body_seconds: 30,
            head_seconds: 60,
            write_seconds: 60,
            max_connections: 16_384,
            // One address gets a quarter, so that it leaves connections for others.
            max_connections_per_address: 4_096,
            // Each request may leave 16 KiB of an answer unread, which no budget counts: 2 GiB from one address
            // (SECURITY.md).
            max_requests_per_connection: 32,
            max_reading_bytes: 64 << 20,
            max_answer_bytes: 256 << 20,
            max_streams: 10_000,
            max_streams_per_caller: 1_000,
            drain_seconds: 10,
            max_turn_seconds: 600,
            max_waiting_turns: 64,
            max_running_turns: 1_000,
            max_running_turns_per_caller: 100,
            tls: None,
        }
    }
}

impl ServerConfig {
    pub(crate) fn connections(&self) -> ConnectionLimits {
        ConnectionLimits {
            connections: self.max_connections,
            per_address: self.max_connections_per_address,
            head: Duration::from_secs(self.head_seconds),
            write: Duration::from_secs(self.write_seconds),
            streams: self.max_requests_per_connection,
        }
    }

    /// The limits on the memory and streams of callers. One caller may use a quarter of each byte budget. For request
    /// bodies, the caller's share is always large enough for one body of maximum size.
    pub(crate) fn shares(&self) -> ShareLimits {
        ShareLimits {
            reading_bytes: self.max_reading_bytes,
            reading_bytes_per_caller: (self.max_reading_bytes / 4).max(self.max_body_bytes),
            answer_bytes: self.max_answer_bytes,
            answer_bytes_per_caller: self.max_answer_bytes / 4,
            streams: self.max_streams,
            streams_per_caller: self.max_streams_per_caller,
        }
    }

    /// The key of a byte budget that is smaller than the largest request body. `None` if all budgets are large enough.
    pub(super) fn budget_below_a_body(&self) -> Option<&'static str> {
        let budgets =
            [("server.max_reading_bytes", self.max_reading_bytes), ("server.max_answer_bytes", self.max_answer_bytes)];
        budgets.into_iter().find(|(_, bytes)| *bytes < self.max_body_bytes).map(|(key, _)| key)
    }
}
