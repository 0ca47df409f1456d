//! Load that does not wait for the server. Each request has a due time, and its latency is counted from that time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::http1;
use crate::neighbours::Percentiles;
use crate::process::ServerProcess;
use crate::request::Request;

/// The distribution of the due times of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrivals {
    /// At equal intervals.
    Even,
    /// At random and independent of each other, like requests from many clients.
    Random,
}

/// The number of connections. A server that keeps up with the load never uses all connections at once.
const CONNECTIONS: usize = 64;
const TIME: Duration = Duration::from_secs(15);
/// The duration of the beginning of the load, whose requests are not measured, because earlier load affects them.
const WARM_UP: Duration = Duration::from_secs(2);

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// The due time of the request that waits for its answer; `None` while the connection is idle.
    due: Option<Instant>,
}

/// Sends `rate` requests per second. One thread polls all connections without pause, because a sleeping thread would
/// measure its own wake-up delay.
pub(crate) fn run(
    server: &ServerProcess,
    request: &Request,
    rate: f64,
    arrivals: Arrivals,
) -> anyhow::Result<Percentiles> {
    let text = request.http1();
    let opened = (0..CONNECTIONS).map(|_| Connection::open(server.address()));
    let mut connections = opened.collect::<io::Result<Vec<_>>>()?;
    let begun = Instant::now();
    let mut due = begun;
    let mut latencies = Vec::new();
    while due < begun + TIME {
        for connection in &mut connections {
            if connection.due.is_none() && due <= Instant::now() {
                connection.send(&text, due)?;
                due += gap(rate, arrivals);
            }
            let Some((sent, latency)) = connection.receive(request)? else { continue };
            if sent > begun + WARM_UP {
                latencies.push(latency.as_secs_f64());
            }
        }
    }
    Ok(Percentiles::of(latencies))
}

fn gap(rate: f64, arrivals: Arrivals) -> Duration {
    let mean = Duration::from_secs_f64(1.0 / rate);
    match arrivals {
        Arrivals::Even => mean,
        Arrivals::Random => mean.mul_f64(-(1.0 - fastrand::f64()).ln()),
    }
}

impl Connection {
    fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, buffer: Vec::new(), due: None })
    }

    /// Sends a request. The request fits into the socket's buffer, so this does not block.
    fn send(&mut self, text: &str, due: Instant) -> io::Result<()> {
        self.buffer.clear();
        self.due = Some(due);
        self.stream.write_all(text.as_bytes())
    }

    /// Reads available bytes. Once the answer is complete, returns the due time and the latency of the request.
    fn receive(&mut self, request: &Request) -> anyhow::Result<Option<(Instant, Duration)>> {
        let Some(due) = self.due else { return Ok(None) };
        let mut piece = [0; 8 << 10];
        match self.stream.read(&mut piece) {
            Ok(0) => anyhow::bail!("the server hung up"),
            Ok(count) => self.buffer.extend_from_slice(piece.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        if !http1::is_whole(&self.buffer)? {
            return Ok(None);
        }
        let latency = due.elapsed();
        request.check(&self.buffer)?;
        self.due = None;
        Ok(Some((due, latency)))
    }
}
