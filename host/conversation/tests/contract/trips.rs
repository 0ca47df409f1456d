//! The statements that a turn sends to PostgreSQL, counted between the store and the database.

use std::sync::Arc;

use annex_conversation::{
    Arrival, Claim, Conversation, ConversationStore, Entry, Event, Limits, MessageKey, PostgresStore, StateDelta,
    Submission,
};
use annex_database::PostgresConnections;
use annex_protocol::{Message, Part, TaskState, Timestamp};
use sqlx::postgres::PgConnectOptions;

use crate::backend::{Backend, on_postgres};
use crate::statement_counter::Counter;
use crate::support::{beginning, delta, holder, key, submission, update};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_takes_four_trips_to_postgresql() {
    on_postgres(async |backend| {
        let Backend::Postgres(url) = backend else { unreachable!("it is PostgreSQL") };
        let database: PgConnectOptions = url.parse().unwrap();
        let counter = Counter::start(database.clone());
        let store: Arc<dyn ConversationStore> = open(counter.url(&database)).await;
        counter.take();
        for (turn, expected) in [("t-1", [1, 1, 1, 1]), ("t-2", [1, 1, 1, 1])] {
            assert_eq!(run(&store, turn, &counter).await, expected, "claim, enter, append and append of {turn}");
        }
    })
    .await;
}

/// Opens the store over connections to this URL.
pub(crate) async fn open(url: String) -> Arc<PostgresStore> {
    let runtime = tokio::runtime::Handle::current();
    // On a thread of its own: sqlx's migrations are no future that can be sent.
    let opened = tokio::task::spawn_blocking(move || {
        let connections = PostgresConnections::new(&url, 1).unwrap();
        runtime.block_on(PostgresStore::open(&connections, Limits::default())).unwrap()
    });
    Arc::new(opened.await.unwrap())
}

/// One turn of a common kind: a message with a change of state, an answer of the agent with another one, and the end.
async fn run(store: &Arc<dyn ConversationStore>, id: &str, counter: &Counter) -> [u64; 4] {
    let message = MessageKey { context: "s".into(), message: format!("m-{id}").into(), digest: [1; 32] };
    let claimed = store.claim(key("s").owner(), &message, &id.into(), &holder("one")).await.unwrap();
    assert_eq!(claimed, Claim::New(id.into()));
    let claim = counter.take();

    let submission = Submission { message: Some(message), ..submission("one", id) };
    let arrived = Conversation::enter(store, key("s"), submission, beginning(20)).await.unwrap();
    let Arrival::Runs(turn) = arrived else { panic!("another turn runs") };
    turn.history(20).await.unwrap();
    let enter = counter.take();

    let said = Entry::said_by_user(Message::user_text("Hello"), id, delta(r#"{"a":1}"#), Some(Timestamp::now()));
    turn.append(vec![said]).await.unwrap();
    let begin = counter.take();

    let answer = Event::new("agent", id, vec![Part::text("Hello to you.")], StateDelta::parse(r#"{"b":2}"#).unwrap());
    let task = turn.task().await;
    let completed = update(&task, TaskState::Completed);
    turn.end(vec![answer.into(), completed]).await.unwrap();
    [claim, enter, begin, counter.take()]
}
