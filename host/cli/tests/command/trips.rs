//! The number of round trips of a turn to PostgreSQL, counted between the server and the database. A statement that is
//! prepared or sent in a wrong way still works, but takes more trips.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use sqlx::postgres::PgConnectOptions;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};

use crate::cluster::Scratch;
use crate::durable::{call, config, message};
use crate::support::Server;

/// The time after which background statements have finished.
const SETTLED: Duration = Duration::from_millis(50);

/// A socket in front of a database that counts the statements.
struct Counter {
    trips: Arc<AtomicU64>,
    folder: TempDir,
}

impl Counter {
    fn start(database: PgConnectOptions) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("annex-trips-").tempdir_in("/tmp")?;
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432"))?;
        let trips = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&trips);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, database.clone(), Arc::clone(&counted)));
            }
        });
        Ok(Self { trips, folder })
    }

    fn url(&self, database: &PgConnectOptions) -> Result<String> {
        let name = database.get_database().context("a database")?;
        Ok(format!("postgres://{}@localhost/{name}?host={}", database.get_username(), self.folder.path().display()))
    }

    /// The usual number of trips of a call: the median of five. A trip of a renewed lease, or one that comes late on a busy
    /// machine, changes the number of one call only.
    async fn usual<T>(&self, mut call: impl AsyncFnMut(usize) -> Result<T>) -> Result<u64> {
        let mut trips = [0; 5];
        for (time, trips) in trips.iter_mut().enumerate() {
            let before = self.trips.load(Ordering::SeqCst);
            call(time).await?;
            // Statements that still run after the answer belong to this call.
            tokio::time::sleep(SETTLED).await;
            *trips = self.trips.load(Ordering::SeqCst) - before;
        }
        trips.sort_unstable();
        Ok(trips[2])
    }
}

async fn serve(client: UnixStream, database: PgConnectOptions, trips: Arc<AtomicU64>) -> Result<()> {
    match database.get_socket() {
        Some(folder) => {
            let socket: PathBuf = folder.join(format!(".s.PGSQL.{}", database.get_port()));
            relay(client, UnixStream::connect(socket).await?, &trips).await
        }
        None => relay(client, TcpStream::connect((database.get_host(), database.get_port())).await?, &trips).await,
    }
}

async fn relay(client: UnixStream, server: impl AsyncRead + AsyncWrite, trips: &AtomicU64) -> Result<()> {
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
            // The execution of a statement that is prepared, and a simple query. What prepares one, once for each connection,
            // does not count, nor what sqlx asks a connection that goes back to the pool, because nobody waits for that.
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
        ended = tokio::io::copy(&mut from_server, &mut to_client) => Ok(ended.map(drop)?),
    }
}

/// The rest of a message, whose length counts itself.
async fn copy(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin), length: u32) -> Result<()> {
    let mut body = vec![0; usize::try_from(length)? - 4];
    from.read_exact(&mut body).await?;
    Ok(to.write_all(&body).await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_takes_few_trips_to_postgresql() -> Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let Some(scratch) = Scratch::create().await else { return Ok(()) };
    let database: PgConnectOptions = scratch.url().parse()?;
    let counter = Counter::start(database.clone())?;
    let config = config("postgres_env = \"ANNEX_TEST_TASKS\"");
    let server = Server::start_with(&config, &[("ANNEX_TEST_TASKS", &counter.url(&database)?)])?;
    let client = reqwest::Client::new();
    let send = async |id: &str| call(&client, &server.url, "SendMessage", message("c", id)).await;
    let first = send("first").await?;
    assert_eq!(first["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{first}");
    // The message is remembered, and the turn joins the queue of the session, which is read with its conversation. Then the
    // message and the answer are stored, each with a change of the session and one of the task. With the last one of the
    // session the turn leaves the queue.
    let trips = counter.usual(async |time| send(&format!("m-{time}")).await).await?;
    assert_eq!(trips, 6, "a message in a known context");
    // Nothing is written but how often it came.
    let trips = counter.usual(async |_| send("first").await).await?;
    assert_eq!(trips, 2, "a message that came before");
    let id = &first["result"]["task"]["id"];
    let trips = counter.usual(async |_| call(&client, &server.url, "GetTask", json!({"id": id})).await).await?;
    assert_eq!(trips, 1, "GetTask");
    drop(server);
    scratch.remove().await;
    Ok(())
}
