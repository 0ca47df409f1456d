//! An issuer's key server on the loopback interface. Tests choose its answers, which may be faulty.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

/// An answer of the server.
#[derive(Clone)]
pub(crate) enum Answer {
    /// The status 200 with this body.
    Keys(String),
    /// A status line and headers, without a body.
    Status(&'static str),
    /// The status 200 with a body that does not end.
    Endless,
}

pub(crate) struct JwksServer {
    pub(crate) url: String,
    answer: watch::Sender<Answer>,
    /// A semaphore that each response waits for. One permit releases one response.
    gate: Arc<Semaphore>,
    hits: Arc<AtomicUsize>,
    hit: watch::Receiver<usize>,
    running: JoinHandle<()>,
}

impl JwksServer {
    /// Starts a server that answers every request with `answer`.
    pub(crate) async fn start(answer: Answer) -> Self {
        Self::start_with(answer, Semaphore::MAX_PERMITS).await
    }

    /// Starts a server that answers no request until [`Self::open`] is called.
    pub(crate) async fn start_closed(answer: Answer) -> Self {
        Self::start_with(answer, 0).await
    }

    async fn start_with(answer: Answer, permits: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/jwks.json", listener.local_addr().unwrap());
        let (answer, answers) = watch::channel(answer);
        let (hit_sender, hit) = watch::channel(0);
        let gate = Arc::new(Semaphore::new(permits));
        let hits = Arc::new(AtomicUsize::new(0));
        let shared = (Arc::clone(&gate), Arc::clone(&hits));
        let running = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let gate = Arc::clone(&shared.0);
                let hits = Arc::clone(&shared.1);
                hit_sender.send_replace(hits.fetch_add(1, Ordering::SeqCst) + 1);
                tokio::spawn(serve(stream, gate, answers.clone()));
            }
        });
        Self { url, answer, gate, hits, hit, running }
    }

    pub(crate) fn answer_with(&self, answer: Answer) {
        self.answer.send_replace(answer);
    }

    pub(crate) fn open(&self) {
        self.gate.add_permits(1000);
    }

    /// Releases one waiting response.
    pub(crate) fn open_once(&self) {
        self.gate.add_permits(1);
    }

    /// The number of requests so far. Each connection counts as a request, because connections are not reused.
    pub(crate) fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }

    /// Waits for the first request.
    pub(crate) async fn was_asked(&self) {
        self.was_asked_times(1).await;
    }

    pub(crate) async fn was_asked_times(&self, times: usize) {
        self.hit.clone().wait_for(|hits| *hits >= times).await.unwrap();
    }

    /// Stops listening, so that further connections are refused.
    pub(crate) async fn stop(self) {
        self.running.abort();
        let _ = self.running.await;
    }
}

async fn serve(mut stream: TcpStream, gate: Arc<Semaphore>, answers: watch::Receiver<Answer>) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    }
    gate.acquire().await.unwrap().forget();
    let answer = answers.borrow().clone();
    let text = match answer {
        Answer::Keys(body) => {
            format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        }
        Answer::Status(head) => format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"),
        Answer::Endless => "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_owned(),
    };
    let mut result = stream.write_all(text.as_bytes()).await;
    while result.is_ok() && text.ends_with("\r\n\r\n") && !text.contains("content-length") {
        result = stream.write_all(&[b' '; 4096]).await;
    }
}
