//! `annex serve` with stored conversations, killed in the middle of many turns.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use annex_conversation::{
    ConversationKey, ConversationSnapshot, ConversationStore, Event, Limits, SqliteStore, Window,
};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::{STATE_URI, Server, template_agent};

const CLIENTS: usize = 64;
const AGENT: &str = "test_agent";

/// An agent that names the current round, in several pieces. It reads the round from the state in the message.
fn config(folder: &Path) -> String {
    let more = format!(
        r#"
        [[agent.model.scripted.rules]]
        when = "next"
        answer = "this was {{round}} of many"
        chunks = 4
        delay_ms = 50
        extract = {{ round = "Round (\\d+)" }}
        [tasks]
        data_dir = {:?}
        [[extension]]
        component = "state-injection"
        [extension.grants]
        session-state = {{ read = true }}
        "#,
        folder.join("data")
    );
    template_agent("Round {round}.", &more)
}

/// Sends a message whose state contains the number of the round. Returns the agent's answer after the turn is
/// completed.
async fn say(client: &reqwest::Client, url: &str, context: &str, round: usize) -> Result<String> {
    let key = format!("{}/state", STATE_URI.trim_start_matches("https://"));
    let message = json!({"messageId": format!("m-{round}"), "contextId": context, "role": "ROLE_USER",
                         "parts": [{"text": "next"}], "metadata": {key: {"round": round}}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
    let request = client.post(format!("{url}/a2a/jsonrpc")).header("A2A-Version", "1.0").body(body.to_string());
    let request = request.header("content-type", "application/json").header("A2A-Extensions", STATE_URI);
    let reply: Value = serde_json::from_str(&request.send().await?.text().await?)?;
    let task = &reply["result"]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{reply}");
    let parts = task["artifacts"][0]["parts"].as_array().expect("parts");
    Ok(parts.iter().filter_map(|part| part["text"].as_str()).collect())
}

/// Plays rounds until the server stops. Records the number of answered rounds in `answered`.
async fn client(url: String, number: usize, answered: watch::Sender<BTreeMap<usize, usize>>) {
    let client = reqwest::Client::new();
    for round in 0.. {
        let Ok(answer) = say(&client, &url, &format!("c-{number}"), round).await else { return };
        assert_eq!(answer, format!("this was {round} of many"));
        answered.send_modify(|answered| {
            answered.insert(number, round + 1);
        });
    }
}

async fn read(store: &SqliteStore, number: usize) -> Result<ConversationSnapshot> {
    let context = format!("c-{number}");
    let user = format!("A2A_USER_{context}");
    let key = ConversationKey::new("", AGENT, user, context);
    Ok(store.conversation(&key, Window::ALL).await?)
}

fn is_answer(event: &Event) -> bool {
    !event.is_from_user() && event.error.is_none()
}

/// Checks that each event has its delta, that the state is the sum of all deltas, and that events of user and agent
/// alternate.
fn check(conversation: &ConversationSnapshot) {
    let context = conversation.key.context.as_str();
    let mut round = None;
    let mut last_answer = None;
    for (index, event) in conversation.history.iter().enumerate() {
        assert_eq!(event.is_from_user(), index % 2 == 0, "{context}: {:#?}", conversation.history);
        if event.is_from_user() {
            assert_eq!(event.state_delta.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["round"], "{context}");
            round = event.state_delta.get("round");
        } else if is_answer(event) {
            let number = round.map(|round| round.get()).unwrap_or_default();
            let answer = format!("\"this was {number} of many\"");
            last_answer = event.state_delta.get("last_answer");
            assert_eq!(last_answer.map(|answer| answer.get()), Some(answer.as_str()), "{context}");
        }
    }
    assert_eq!(conversation.state.value("round"), round, "{context}");
    assert_eq!(conversation.state.value("last_answer"), last_answer, "{context}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_the_middle_of_turns_leaves_every_conversation_whole() -> Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir()?;
    let config = config(folder.path());
    let mut server = Server::start(&config)?;
    let answered = watch::Sender::new(BTreeMap::new());
    let clients: Vec<_> =
        (0..CLIENTS).map(|number| tokio::spawn(client(server.url.clone(), number, answered.clone()))).collect();
    let mut watched = answered.subscribe();
    let all_are_at_it = watched.wait_for(|answered| answered.values().filter(|rounds| **rounds > 1).count() >= CLIENTS);
    drop(tokio::time::timeout(Duration::from_secs(120), all_are_at_it).await??);
    server.process.kill()?;
    server.process.wait()?;
    for client in clients {
        client.await?;
    }
    drop(server);
    let answered = answered.borrow().clone();

    let file = folder.path().join("data/conversations.sqlite");
    let store = SqliteStore::open(&file, None, Limits::default()).await?;
    let mut broken_off = 0;
    for number in 0..CLIENTS {
        let conversation = read(&store, number).await?;
        check(&conversation);
        broken_off += usize::from(conversation.history.last().is_some_and(|event| event.is_from_user()));
        let answers = conversation.history.iter().filter(|event| is_answer(event)).count();
        let acknowledged = answered[&number];
        // One more may have been answered whose acknowledgement did not get through.
        ensure!((acknowledged..=acknowledged + 1).contains(&answers), "c-{number}: {answers}, {acknowledged}");
    }
    ensure!(broken_off > 0, "no turn was under way");
    store.close().await;

    let server = Server::start(&config)?;
    let client = reqwest::Client::new();
    for number in 0..CLIENTS {
        let answer = say(&client, &server.url, &format!("c-{number}"), 1_000_000).await?;
        assert_eq!(answer, "this was 1000000 of many");
    }
    let store = SqliteStore::open(&file, None, Limits::default()).await?;
    for number in 0..CLIENTS {
        let conversation = read(&store, number).await?;
        check(&conversation);
        ensure!(conversation.history.last().is_some_and(|event| is_answer(event)));
    }
    Ok(())
}
