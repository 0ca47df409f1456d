//! Headers that a receiver gets, and secrets that must not appear in the log.

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::Arc;

use annex_protocol::{AuthenticationInfo, Secret, TaskPushNotificationConfig};
use annex_push::{Counts, InvalidConfig};
use tracing_subscriber::filter::LevelFilter;

use crate::support::{DeadReceiver, Receiver, notifier, send, settled, update};

fn with_secrets(
    config: &TaskPushNotificationConfig,
    token: Option<&str>,
    scheme: &str,
    credentials: Option<&str>,
) -> Arc<TaskPushNotificationConfig> {
    let credentials = credentials.map(Secret::new);
    Arc::new(TaskPushNotificationConfig {
        token: token.map(Secret::new),
        authentication: Some(AuthenticationInfo { scheme: scheme.to_owned(), credentials }),
        ..config.clone()
    })
}

#[tokio::test]
async fn a_receiver_gets_the_configured_headers() {
    let mut receiver = Receiver::start().await;
    let notifier = notifier();
    send(&notifier, &with_secrets(&receiver.config("c"), Some("t 0"), "Bearer", Some("abc.def=")), &update("{}"));
    let request = receiver.next().await;
    assert_eq!(request.body, "{}");
    assert_eq!(request.headers["content-type"], "application/a2a+json");
    assert_eq!(request.headers["authorization"], "Bearer abc.def=");
    assert_eq!(request.headers["x-a2a-notification-token"], "t 0");
    assert!(request.headers["user-agent"].to_str().unwrap().starts_with("annex/"));
}

#[tokio::test]
async fn an_event_that_is_tried_again_has_the_same_number() {
    let mut receiver = Receiver::scripted([(503, &[] as &[_])]).await;
    let notifier = notifier();
    send(&notifier, &receiver.config("c"), &update("{}").numbered(&"task".into(), 7));
    for _ in 0..2 {
        assert_eq!(receiver.next().await.headers["annex-event-id"], "task/7");
    }
    send(&notifier, &receiver.config("c"), &update("{}").numbered(&"t\nx: 1".into(), 7));
    assert!(!receiver.next().await.headers.contains_key("annex-event-id"));
}

#[tokio::test]
async fn a_receiver_without_configured_secrets_gets_none() {
    let mut receiver = Receiver::start().await;
    let notifier = notifier();
    send(&notifier, &receiver.config("c"), &update("{}"));
    let request = receiver.next().await;
    assert!(!request.headers.contains_key("authorization"));
    assert!(!request.headers.contains_key("x-a2a-notification-token"));

    send(&notifier, &with_secrets(&receiver.config("c"), None, "Negotiate", None), &update("{}"));
    assert_eq!(receiver.next().await.headers["authorization"], "Negotiate");
}

#[tokio::test]
async fn secrets_that_do_not_fit_into_a_header_are_refused_and_never_sent() {
    let mut receiver = Receiver::start().await;
    let plain = receiver.config("c");
    let long = "x".repeat(8193);
    let token = InvalidConfig::Token { limit: 8192 };
    let authentication = InvalidConfig::Authentication { limit: 8192 };
    for (secrets, expected) in [
        ((Some("a\r\nx-evil: 1"), "Bearer", None), &token),
        ((Some("caf\u{e9}"), "Bearer", None), &token),
        ((Some(long.as_str()), "Bearer", None), &token),
        ((None, "Bearer", Some("a\nb")), &authentication),
        ((None, "Bearer", Some(&long)), &authentication),
        ((None, "Bearer x", Some("a")), &authentication),
        ((None, "Bearer\r\nx-evil:", Some("1")), &authentication),
        ((None, "", Some("a")), &authentication),
    ] {
        let notifier = notifier();
        let config = with_secrets(&plain, secrets.0, secrets.1, secrets.2);
        assert_eq!(notifier.check(&config).await.as_ref(), Err(expected), "{secrets:?}");
        send(&notifier, &config, &update("{}"));
        settled(&notifier).await;
        assert_eq!(notifier.counts(), Counts { given_up: 1, ..Counts::default() }, "{secrets:?}");
    }
    assert!(receiver.rest().is_empty());
}

#[tokio::test]
async fn no_log_tells_a_secret() {
    let subscriber = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(|| LogOfThread).finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let receiver = Receiver::scripted([(500, &[] as &[_]); 6]).await;
    let notifier = notifier();
    let origin = format!("http://127.0.0.1:{}", receiver.port);
    let nobody = format!("http://127.0.0.1:{}/secret-path?q=secret-query", DeadReceiver::start().port());
    for (id, url) in [
        ("answered", format!("{origin}/secret-path?q=secret-query#secret-fragment")),
        ("unanswered", nobody),
        ("refused", "http://secret-user:secret-password@127.0.0.1/secret-path?q=secret-query".to_owned()),
        ("unknown", "http://name.example/secret-path?q=secret-query".to_owned()),
        ("line\nbreak", "http://name.example/".to_owned()),
    ] {
        let config = TaskPushNotificationConfig { id: Some(id.to_owned()), url, ..Default::default() };
        let config = with_secrets(&config, Some("secret-token"), "Bearer", Some("secret-credentials"));
        send(&notifier, &config, &update("{\"secret-body\":1}"));
    }
    settled(&notifier).await;
    assert_eq!(notifier.counts(), Counts { given_up: 5, ..Counts::default() });
    let log = LOG.with_borrow(|log| String::from_utf8(log.clone()).unwrap());
    for expected in ["a push notification is given up", "answered 500", &origin, "\"refused\"", "\"unknown\""] {
        assert!(log.contains(expected), "{expected} is not in {log}");
    }
    assert!(!log.contains("secret"), "{log}");
    assert!(log.contains("line\\nbreak"), "{log}");
}

thread_local! {
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Gives each test its own log, although tests run in parallel: lines are separated by thread. A subscriber per thread
/// would not work, because `tracing` remembers for all threads whether a subscriber is interested in an event.
struct LogOfThread;

impl Write for LogOfThread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
