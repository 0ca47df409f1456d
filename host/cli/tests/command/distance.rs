//! `annex serve` with a distant PostgreSQL: a relay between server and database delays the answers.

use std::time::Duration;

use anyhow::{Context, Result};
use sqlx::postgres::PgConnectOptions;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};

use crate::cluster::Scratch;
use crate::durable::config;
use crate::support::Server;

/// A socket that relays to a database and delays each of its answers.
struct Distance {
    folder: TempDir,
}

impl Distance {
    fn start(database: PgConnectOptions, delay: Duration) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("annex-distance-").tempdir_in("/tmp")?;
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432"))?;
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, database.clone(), delay));
            }
        });
        Ok(Self { folder })
    }

    fn url(&self, database: &PgConnectOptions) -> Result<String> {
        let name = database.get_database().context("a database")?;
        Ok(format!("postgres://{}@localhost/{name}?host={}", database.get_username(), self.folder.path().display()))
    }
}

async fn serve(client: UnixStream, database: PgConnectOptions, delay: Duration) -> Result<()> {
    match database.get_socket() {
        Some(folder) => {
            let socket = folder.join(format!(".s.PGSQL.{}", database.get_port()));
            let (from, to) = UnixStream::connect(socket).await?.into_split();
            relay(client, from, to, delay).await
        }
        None => {
            let (from, to) = TcpStream::connect((database.get_host(), database.get_port())).await?.into_split();
            relay(client, from, to, delay).await
        }
    }
}

async fn relay(
    client: UnixStream,
    mut from_server: impl AsyncReadExt + Unpin,
    mut to_server: impl AsyncWriteExt + Unpin,
    delay: Duration,
) -> Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let answers = async {
        let mut answer = vec![0; 64 * 1024];
        loop {
            let length = from_server.read(&mut answer).await?;
            if length == 0 {
                return Ok(());
            }
            tokio::time::sleep(delay).await;
            to_client.write_all(&answer[..length]).await?;
        }
    };
    tokio::select! {
        ended = answers => ended,
        ended = tokio::io::copy(&mut from_client, &mut to_server) => Ok(ended.map(drop)?),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_so_far_away_that_leases_end_before_they_are_renewed_is_refused_with_what_to_do() -> Result<()> {
    let Some(scratch) = Scratch::create().await else { return Ok(()) };
    let database: PgConnectOptions = scratch.url().parse()?;
    let config = config("postgres_env = \"ANNEX_TEST_TASKS\"");
    let start = |distance: &Distance| -> Result<Server> {
        let url = distance.url(&database)?;
        tokio::task::block_in_place(|| Server::start_with(&config, &[("ANNEX_TEST_TASKS", &url)]))
    };
    drop(start(&Distance::start(database.clone(), Duration::from_millis(20))?)?);
    let far = Distance::start(database.clone(), Duration::from_millis(300))?;
    let refusal = start(&far).err().context("the server started")?.to_string();
    for reason in ["a round trip to the database takes", "lease", "nearer to the database"] {
        assert!(refusal.contains(reason), "{reason}: {refusal}");
    }
    scratch.remove().await;
    Ok(())
}
