//! The statements that a turn sends to PostgreSQL, counted between the store and the database.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use annex_conversation::{
    Arrival, Claim, Conversation, ConversationStore, Entry, Event, Limits, MessageKey, PostgresStore, StateDelta,
    Submission,
};
use annex_database::PostgresConnections;
use annex_protocol::{Message, Part, TaskState, Timestamp};
use sqlx::postgres::PgConnectOptions;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};

use crate::backend::{Backend, on_postgres};
use crate::support::{beginning, delta, key, submission, update};

/// A socket in front of a database that counts the statements.
struct Counter {
    trips: Arc<AtomicU64>,
    folder: TempDir,
}

impl Counter {
    fn start(database: PgConnectOptions) -> Self {
        let folder = tempfile::Builder::new().prefix("annex-trips-").tempdir_in("/tmp").unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let trips = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&trips);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, database.clone(), Arc::clone(&counted)));
            }
        });
        Self { trips, folder }
    }

    fn url(&self, database: &PgConnectOptions) -> String {
        let name = database.get_database().unwrap();
        format!("postgres://{}@localhost/{name}?host={}", database.get_username(), self.folder.path().display())
    }

    /// The statements since the last call.
    fn take(&self) -> u64 {
        self.trips.swap(0, Ordering::SeqCst)
    }
}

async fn serve(client: UnixStream, database: PgConnectOptions, trips: Arc<AtomicU64>) -> io::Result<()> {
    match database.get_socket() {
        Some(folder) => {
            let socket = folder.join(format!(".s.PGSQL.{}", database.get_port()));
            relay(client, UnixStream::connect(socket).await?, &trips).await
        }
        None => relay(client, TcpStream::connect((database.get_host(), database.get_port())).await?, &trips).await,
    }
}

async fn relay(client: UnixStream, server: impl AsyncRead + AsyncWrite, trips: &AtomicU64) -> io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let asking = async {
        // The first messages have no type: a question about TLS, which has no content but its code, and the start.
        loop {
            let length = from_client.read_u32().await?;
            to_server.write_u32(length).await?;
            copy(&mut from_client, &mut to_server, length).await?;
            if length > 8 {
                break;
            }
        }
        loop {
            let kind = from_client.read_u8().await?;
            let length = from_client.read_u32().await?;
            // The execution of a prepared statement, and a simple query. The preparation, once for each connection, does not
            // count, and neither does the ping of a connection that goes back to the pool.
            if matches!(kind, b'E' | b'Q') {
                trips.fetch_add(1, Ordering::SeqCst);
            }
            to_server.write_u8(kind).await?;
            to_server.write_u32(length).await?;
            copy(&mut from_client, &mut to_server, length).await?;
        }
    };
    tokio::select! {
        ended = asking => ended,
        ended = tokio::io::copy(&mut from_server, &mut to_client) => ended.map(drop),
    }
}

/// The rest of a message, whose length counts itself.
async fn copy(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin), length: u32) -> io::Result<()> {
    let mut body = vec![0; usize::try_from(length).unwrap() - 4];
    from.read_exact(&mut body).await?;
    to.write_all(&body).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_takes_four_trips_to_postgresql() {
    on_postgres(async |backend| {
        let Backend::Postgres(url) = backend else { unreachable!("it is PostgreSQL") };
        let database: PgConnectOptions = url.parse().unwrap();
        let counter = Counter::start(database.clone());
        let store = open(counter.url(&database)).await;
        counter.take();
        for (turn, expected) in [("t-1", [1, 1, 1, 1]), ("t-2", [1, 1, 1, 1])] {
            assert_eq!(run(&store, turn, &counter).await, expected, "claim, enter, append and append of {turn}");
        }
    })
    .await;
}

async fn open(url: String) -> Arc<dyn ConversationStore> {
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
    let claimed = store.claim(key("s").owner(), &message, &id.into(), &"one".into()).await.unwrap();
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
