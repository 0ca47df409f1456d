//! No tenant waits for the peers of others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annex_test_support::until;
use tokio::net::TcpListener;

use super::added::{add, open, say_as};
use super::{agent, answer, serve};
use crate::auth::ADA;

/// More than there are places for the work of loading.
const SILENT: usize = 12;

/// A peer that accepts connections and sends nothing. Returns its port and the number of connections so far.
async fn silent() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            open.push(connection);
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    (port, asked)
}

#[tokio::test]
async fn a_cold_tenant_is_served_while_any_number_of_others_wait_for_agents_that_are_silent() {
    let folder = open("hosts = [\"127.0.0.1\"]\n");
    let server = Arc::new(serve(&folder).await);
    let (port, asked) = silent().await;
    let waits = format!("[agent]\nkind = \"upstream\"\nname = \"a\"\ncard = \"http://127.0.0.1:{port}/card.json\"\n");
    let tools =
        |name: &str| agent(name, &format!("[[agent.mcp]]\nname = \"m\"\nurl = \"http://127.0.0.1:{port}/mcp\"\n"));
    add(&server, "cold", &agent("cold", "")).await;
    let mut cards = Vec::new();
    for number in 0..SILENT {
        let name = format!("silent-{number}");
        add(&server, &name, &if number % 2 == 0 { waits.clone() } else { tools(&name) }).await;
        let server = Arc::clone(&server);
        cards.push(tokio::spawn(async move {
            let path = format!("/{name}/.well-known/agent-card.json");
            server.get(&path).await.expect("a reply").status().as_u16()
        }));
    }
    until("all peers are asked", async || asked.load(Ordering::Relaxed) >= SILENT).await;
    assert_eq!(answer(&say_as(&server, ADA, "cold", "x").await), "cold remembers ");
    assert!(cards.iter().all(|card| !card.is_finished()), "all others still wait");
    for card in cards {
        card.abort();
    }
}
