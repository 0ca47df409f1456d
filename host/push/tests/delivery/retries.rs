//! Which failures are retried, how often, and after which delay.

use std::time::{Duration, Instant};

use annex_push::{Backoff, Counts, Notifier, NotifierConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{DeadReceiver, PATIENCE, Receiver, config, notifier, quick, send, settled, update};

#[tokio::test]
async fn only_statuses_that_may_change_are_tried_again() {
    let again = [408, 425, 429, 500, 501, 502, 503, 504, 599].map(|status| (status, 3));
    let once = [301, 302, 304, 307, 400, 401, 403, 404, 405, 409, 410, 413, 415, 422].map(|status| (status, 1));
    for (status, attempts) in again.into_iter().chain(once) {
        let mut receiver = Receiver::scripted([(status, &[] as &[_]); 5]).await;
        let notifier = notifier();
        send(&notifier, &receiver.config("c"), &update("event"));
        settled(&notifier).await;
        assert_eq!(receiver.rest().len(), attempts, "{status}");
        assert_eq!(notifier.counts(), Counts { given_up: 1, ..Counts::default() }, "{status}");
    }
}

#[tokio::test]
async fn any_2xx_is_success() {
    for status in [200, 201, 202, 204, 226] {
        let receiver = Receiver::scripted([(status, &[] as &[_])]).await;
        let notifier = notifier();
        send(&notifier, &receiver.config("c"), &update("event"));
        settled(&notifier).await;
        assert_eq!(notifier.counts(), Counts { delivered: 1, ..Counts::default() }, "{status}");
    }
}

#[tokio::test]
async fn a_retry_waits_for_retry_after_up_to_the_maximum() {
    let mut receiver = Receiver::scripted([(429, &[("retry-after", "3600")] as &[_])]).await;
    let max = Duration::from_millis(60);
    let backoff = Backoff { base: Duration::from_nanos(1), max };
    let notifier = Notifier::new(&NotifierConfig { backoff, ..quick() }).unwrap();
    send(&notifier, &receiver.config("c"), &update("event"));
    receiver.next().await;
    let asked = Instant::now();
    receiver.next().await;
    // Without the header the delay would be a nanosecond. `asked` is the time of the request, not of the answer.
    assert!(asked.elapsed() >= max);
}

#[tokio::test]
async fn a_connection_that_breaks_is_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        drop(listener.accept().await.unwrap());
        let (mut connection, _) = listener.accept().await.unwrap();
        read_request(&mut connection).await;
        connection.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        connection
    });
    let notifier = notifier();
    send(&notifier, &config("c", &url), &update("event"));
    settled(&notifier).await;
    assert_eq!(notifier.counts(), Counts { delivered: 1, ..Counts::default() });
    server.await.unwrap();
}

#[tokio::test]
async fn an_event_for_a_closed_port_is_given_up_after_all_attempts() {
    let url = format!("http://127.0.0.1:{}/", DeadReceiver::start().port());
    let notifier = notifier();
    send(&notifier, &config("c", &url), &update("event"));
    settled(&notifier).await;
    assert_eq!(notifier.counts(), Counts { given_up: 1, ..Counts::default() });
}

#[tokio::test]
async fn an_attempt_without_an_answer_ends() {
    let dead = DeadReceiver::start();
    let timeout = Duration::from_millis(20);
    let notifier = Notifier::new(&NotifierConfig { timeout, ..quick() }).unwrap();
    send(&notifier, &dead.config("c"), &update("event"));
    settled(&notifier).await;
    assert_eq!(notifier.counts(), Counts { given_up: 1, ..Counts::default() });
}

#[tokio::test]
async fn an_endless_answer_is_not_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        read_request(&mut connection).await;
        connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n").await.unwrap();
        // Ends when the notifier closes the connection.
        while connection.write_all(&[b'x'; 4096]).await.is_ok() {}
    });
    // Long enough that the timeout is not the reason for closing the connection.
    let timeout = Duration::from_secs(3600);
    let notifier = Notifier::new(&NotifierConfig { timeout, ..quick() }).unwrap();
    send(&notifier, &config("c", &url), &update("event"));
    tokio::time::timeout(PATIENCE, server).await.expect("the connection is closed").unwrap();
    settled(&notifier).await;
    assert_eq!(notifier.counts(), Counts { delivered: 1, ..Counts::default() });
}

async fn read_request(connection: &mut TcpStream) {
    let mut request = Vec::new();
    while !request.ends_with(b"event") {
        assert_ne!(connection.read_buf(&mut request).await.unwrap(), 0, "the request is complete");
    }
}
