//! The address check on each connection, independent of earlier checks.

use std::net::SocketAddr;

use annex_egress::UrlRefusal;
use annex_push::{Counts, Notifier, NotifierConfig};
use reqwest::dns::Resolve;

use crate::support::{
    DeadReceiver, Receiver, ScriptedNames, config, notifier, quick, screen_allowing, send, settled, update,
};

#[tokio::test]
async fn a_name_that_moves_to_loopback_after_its_registration_is_not_connected_to() {
    let victim = DeadReceiver::start();
    let names = ScriptedNames::new(&[&["93.184.215.14"], &["127.0.0.1"]]);
    let notifier = Notifier::new(&NotifierConfig { screen: screen_allowing(&[], names), ..quick() }).unwrap();
    let config = config("c", &format!("http://rebinding.example:{}/", victim.port()));
    assert_eq!(notifier.check(&config).await, Ok(()));
    send(&notifier, &config, &update("event"));
    settled(&notifier).await;
    assert_eq!(notifier.counts(), Counts { given_up: 1, ..Counts::default() });
    assert!(!victim.was_called());
}

#[tokio::test]
async fn a_name_that_resolves_to_an_allowed_address_is_connected_to() {
    let mut receiver = Receiver::start().await;
    let names = ScriptedNames::new(&[&["127.0.0.1"]]);
    let screen = screen_allowing(&["127.0.0.1"], names);
    let notifier = Notifier::new(&NotifierConfig { screen, ..quick() }).unwrap();
    send(&notifier, &config("c", &format!("http://hooks.example:{}/", receiver.port)), &update("event"));
    assert_eq!(receiver.next().await.headers["host"], format!("hooks.example:{}", receiver.port));
}

#[tokio::test]
async fn a_name_that_is_unknown_for_a_while_is_tried_again() {
    let mut receiver = Receiver::start().await;
    let names = ScriptedNames::new(&[&[], &[], &["127.0.0.1"]]);
    let screen = screen_allowing(&["127.0.0.1"], names);
    let notifier = Notifier::new(&NotifierConfig { screen, ..quick() }).unwrap();
    send(&notifier, &config("c", &format!("http://hooks.example:{}/", receiver.port)), &update("event"));
    assert_eq!(receiver.next().await.body, "event");
}

#[tokio::test]
async fn a_literal_address_is_checked_for_each_event() {
    let victim = DeadReceiver::start();
    let screen = screen_allowing(&["10.0.0.0/8"], ScriptedNames::new(&[]));
    let notifier = Notifier::new(&NotifierConfig { screen, ..quick() }).unwrap();
    let hosts = ["127.0.0.1", "[::ffff:127.0.0.1]", "0x7f.1", "2130706433", "0.0.0.0", "localhost", "LOCALHOST."];
    for (task, host) in hosts.into_iter().enumerate() {
        let config = config("c", &format!("http://{host}:{}/", victim.port()));
        assert!(notifier.check(&config).await.is_err(), "{host}");
        notifier.send(&task.to_string().into(), &[config], &update("event"));
    }
    settled(&notifier).await;
    assert_eq!(notifier.counts().given_up, hosts.len() as u64);
    assert!(!victim.was_called());
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let victim = DeadReceiver::start();
    for status in [301, 302, 303, 307, 308] {
        let location: &'static str = format!("http://127.0.0.1:{}/", victim.port()).leak();
        let headers: &'static [_] = vec![("location", location)].leak();
        let mut receiver = Receiver::scripted([(status, headers)]).await;
        let notifier = notifier();
        send(&notifier, &receiver.config("c"), &update("event"));
        settled(&notifier).await;
        assert_eq!(receiver.rest().len(), 1, "{status}");
        assert_eq!(notifier.counts(), Counts { given_up: 1, ..Counts::default() }, "{status}");
    }
    assert!(!victim.was_called());
}

#[tokio::test]
async fn only_the_allowed_addresses_of_a_name_are_connected_to() {
    let names = ScriptedNames::new(&[&["10.0.0.1", "93.184.215.14", "::1", "2606:4700::1111", "169.254.169.254"]]);
    let screen = screen_allowing(&[], names);
    let addresses: Vec<SocketAddr> = screen.resolve("mixed.example".parse().unwrap()).await.unwrap().collect();
    assert_eq!(addresses, ["93.184.215.14:0".parse().unwrap(), "[2606:4700::1111]:0".parse().unwrap()]);
}

#[tokio::test]
async fn of_many_addresses_some_are_connected_to() {
    let many: Vec<String> = (0..100).map(|last| format!("93.184.215.{last}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let screen = screen_allowing(&[], ScriptedNames::new(&[&many]));
    assert_eq!(screen.resolve("many.example".parse().unwrap()).await.unwrap().count(), 16);
}

#[tokio::test]
async fn errors_do_not_reveal_whether_a_private_name_exists() {
    let private = screen_allowing(&[], ScriptedNames::new(&[&["10.0.0.1"]])).check("http://db.example/").await;
    let unknown = screen_allowing(&[], ScriptedNames::new(&[])).check("http://db.example/").await;
    let private = private.unwrap_err();
    let unknown = unknown.unwrap_err();
    assert_eq!(private, UrlRefusal::PrivateName { name: "db.example".to_owned() });
    assert_eq!(unknown, UrlRefusal::UnknownName { name: "db.example".to_owned() });
    assert_eq!(private.to_string(), unknown.to_string());
}
