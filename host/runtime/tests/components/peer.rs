//! Destinations of requests: names, servers, and forbidden addresses.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, TcpListener as BlockingListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annex_egress::Resolver;
use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A server on loopback that gives each request the same answer.
pub(crate) struct Peer {
    pub(crate) port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Peer {
    pub(crate) async fn answering(answer: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let answer = answer.to_owned();
        let noted = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answer.clone(), Arc::clone(&noted)));
            }
        });
        Self { port, requests }
    }

    /// A server that answers each request with a body of `pieces` bytes, sent one by one with a millisecond or two in
    /// between.
    pub(crate) async fn trickling(pieces: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                stream.set_nodelay(true).expect("a socket");
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {pieces}\r\n\r\n");
                let mut sent = stream.write_all(head.as_bytes()).await;
                for _ in 0..pieces {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    sent = sent.and(stream.write_all(b"x").await);
                }
                // The client may have read enough and disconnected.
                drop(sent);
            }
        });
        Self { port, requests: Arc::default() }
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.lock().expect("no panic").len()
    }

    /// Head and body of a request.
    pub(crate) fn request(&self, number: usize) -> String {
        self.requests.lock().expect("no panic")[number].clone()
    }
}

async fn serve(mut stream: TcpStream, answer: String, requests: Arc<Mutex<Vec<String>>>) {
    let mut request = Vec::new();
    while !is_whole(&request) {
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            break;
        }
    }
    requests.lock().expect("no panic").push(String::from_utf8_lossy(&request).into_owned());
    // The client may have read enough and disconnected.
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.is_none_or(|length| body.len() >= length.parse().expect("a number"))
}

/// A forbidden address: accepts connections and never answers.
pub(crate) struct Victim(BlockingListener);

impl Victim {
    pub(crate) fn at(address: &str) -> Self {
        Self::at_port(address, 0)
    }

    pub(crate) fn at_port(address: &str, port: u16) -> Self {
        Self(BlockingListener::bind((address, port)).expect("a port"))
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.local_addr().expect("an address").port()
    }

    pub(crate) fn was_called(&self) -> bool {
        self.0.set_nonblocking(true).expect("a socket");
        self.0.accept().is_ok()
    }
}

/// A resolver that returns these results in order, and repeats the last one.
pub(crate) struct Names(Mutex<VecDeque<Vec<IpAddr>>>);

impl Names {
    pub(crate) fn always(addresses: &[&str]) -> Arc<Self> {
        Arc::new(Self(Mutex::new(VecDeque::from([parsed(addresses)]))))
    }

    pub(crate) fn one_after_the_other(addresses: &[&str]) -> Arc<Self> {
        Arc::new(Self(Mutex::new(addresses.iter().map(|address| parsed(&[address])).collect())))
    }
}

fn parsed(addresses: &[&str]) -> Vec<IpAddr> {
    addresses.iter().map(|address| address.parse().expect("an address")).collect()
}

#[async_trait]
impl Resolver for Names {
    async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        let mut answers = self.0.lock().expect("no panic");
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        answer.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
