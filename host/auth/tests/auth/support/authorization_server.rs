//! One endpoint of an authorization server on the loopback interface. Tests choose its answers, which may be
//! faulty.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

pub(crate) struct AuthorizationServer {
    pub(crate) url: String,
    answer: watch::Sender<String>,
    /// A semaphore that each response waits for. One permit releases one response.
    gate: Arc<Semaphore>,
    asked: watch::Receiver<usize>,
    requests: Arc<Mutex<Vec<String>>>,
    running: JoinHandle<()>,
}

impl AuthorizationServer {
    /// Starts a server that answers every request with this JSON.
    pub(crate) async fn start(json: &str) -> Self {
        Self::start_with(json, Semaphore::MAX_PERMITS).await
    }

    /// Starts a server that answers no request until [`Self::open`] is called.
    pub(crate) async fn start_closed(json: &str) -> Self {
        Self::start_with(json, 0).await
    }

    async fn start_with(json: &str, permits: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/endpoint", listener.local_addr().unwrap());
        let (answer, answers) = watch::channel(ok(json));
        let (asking, asked) = watch::channel(0);
        let gate = Arc::new(Semaphore::new(permits));
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let shared = (Arc::clone(&gate), Arc::clone(&requests), Arc::new(asking));
        let running = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (gate, requests, asking) = shared.clone();
                tokio::spawn(serve(stream, (gate, requests, asking), answers.clone()));
            }
        });
        Self { url, answer, gate, asked, requests, running }
    }

    /// Answers from now on with this JSON.
    pub(crate) fn answer_with(&self, json: &str) {
        self.answer.send_replace(ok(json));
    }

    /// Answers from now on with this text, which is a whole HTTP response or a part of one. A text that ends with `...` is
    /// followed by bytes without an end.
    pub(crate) fn answer_raw(&self, response: &str) {
        self.answer.send_replace(response.to_owned());
    }

    /// Releases one response.
    pub(crate) fn release_one(&self) {
        self.gate.add_permits(1);
    }

    pub(crate) fn open(&self) {
        self.gate.add_permits(1_000);
    }

    /// The requests so far, each with its header and body.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn hits(&self) -> usize {
        self.requests().len()
    }

    /// Waits until there were this many requests.
    pub(crate) async fn was_asked(&self, times: usize) {
        self.asked.clone().wait_for(|asked| *asked >= times).await.unwrap();
    }

    pub(crate) async fn stop(&self) {
        self.running.abort();
        while !self.running.is_finished() {
            tokio::task::yield_now().await;
        }
    }
}

fn ok(json: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{json}", json.len())
}

type Shared = (Arc<Semaphore>, Arc<Mutex<Vec<String>>>, Arc<watch::Sender<usize>>);

async fn serve(mut stream: TcpStream, (gate, requests, asking): Shared, answers: watch::Receiver<String>) {
    let mut request = Vec::new();
    while !is_whole(&request) {
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    }
    requests.lock().unwrap().push(String::from_utf8(request).unwrap());
    asking.send_modify(|asked| *asked += 1);
    gate.acquire().await.unwrap().forget();
    let answer = answers.borrow().clone();
    let (begins, endless) = match answer.strip_suffix("...") {
        Some(begins) => (begins, true),
        None => (answer.as_str(), false),
    };
    let mut result = stream.write_all(begins.as_bytes()).await;
    while endless && result.is_ok() {
        result = stream.write_all(&[b' '; 4096]).await;
    }
}

/// True if the bytes are a header and a body of the declared length.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    length.is_some_and(|length| body.len() >= length)
}
