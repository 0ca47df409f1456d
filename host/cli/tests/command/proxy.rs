//! A proxy in front of a database, whose connections can fail. It relays traffic, holds it back, or breaks the
//! connections.

use std::path::PathBuf;

use anyhow::{Context, Result};
use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

/// How the proxy treats traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    /// Traffic in both directions is held back until the way is open again: a black hole.
    Closed,
    /// The database's answers are held back. Queries still reach the database.
    AnswersHeld,
    /// Two of every three notifications are lost.
    HintsLost,
}

/// The first byte of a notification from the database (PostgreSQL's frontend/backend protocol, "Message Formats").
const NOTIFICATION: u8 = b'A';
/// The size of a message's header in bytes: its type (1), and its length (4), which does not count the type.
const HEADER: usize = 5;

/// A port that relays to a database.
pub(crate) struct Proxy {
    url: String,
    way: watch::Sender<Way>,
    /// Notifies the relays that all connections must break.
    reset: watch::Sender<()>,
}

impl Proxy {
    /// Starts a proxy in front of the database at `url`.
    pub(crate) async fn start(url: &str) -> Result<Self> {
        let database: PgConnectOptions = url.parse()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let name = database.get_database().context("a database")?;
        let port = listener.local_addr()?.port();
        let url = format!("postgres://{}@127.0.0.1:{port}/{name}?sslmode=disable", database.get_username());
        let way = watch::Sender::new(Way::Open);
        let reset = watch::Sender::new(());
        let proxy = Self { url, way: way.clone(), reset: reset.clone() };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut reset = reset.subscribe();
                let relayed = relay(client, database.clone(), way.subscribe());
                tokio::spawn(async move {
                    tokio::select! {
                        // First: what was held back is lost, also where the way is open again by now.
                        biased;
                        _ = reset.changed() => {}
                        _ = relayed => {}
                    }
                });
            }
        });
        Ok(proxy)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn set(&self, way: Way) {
        self.way.send_replace(way);
    }

    /// Breaks all connections and drops the data held back. New connections can be made.
    pub(crate) fn reset(&self) {
        self.reset.send_replace(());
    }
}

async fn relay(client: TcpStream, database: PgConnectOptions, way: watch::Receiver<Way>) -> Result<()> {
    // Dropped in the middle of something, the connection is reset.
    client.set_zero_linger()?;
    match database.get_socket() {
        Some(folder) => {
            let socket: PathBuf = folder.join(format!(".s.PGSQL.{}", database.get_port()));
            both(client, UnixStream::connect(socket).await?, way).await
        }
        None => both(client, TcpStream::connect((database.get_host(), database.get_port())).await?, way).await,
    }
}

async fn both(client: TcpStream, server: impl AsyncRead + AsyncWrite, way: watch::Receiver<Way>) -> Result<()> {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = tokio::io::split(server);
    tokio::select! {
        ended = ask(from_client, to_server, way.clone()) => ended,
        ended = answer(from_server, to_client, way) => ended,
    }
}

async fn ask(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut way: watch::Receiver<Way>,
) -> Result<()> {
    let mut bytes = vec![0; 16 << 10];
    loop {
        let count = from.read(&mut bytes).await?;
        if count == 0 {
            return Ok(());
        }
        way.wait_for(|way| *way != Way::Closed).await?;
        to.write_all(&bytes[..count]).await?;
    }
}

/// Relays the database's messages one by one. Holds them back or drops notifications according to `way`.
async fn answer(
    from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut way: watch::Receiver<Way>,
) -> Result<()> {
    let mut from = BufReader::new(from);
    let mut message = Vec::new();
    let mut notifications = 0;
    loop {
        message.resize(HEADER, 0);
        from.read_exact(&mut message).await?;
        let length = u32::from_be_bytes([message[1], message[2], message[3], message[4]]);
        message.resize(usize::try_from(length)? + 1, 0);
        from.read_exact(&mut message[HEADER..]).await?;
        let way = *way.wait_for(|way| matches!(way, Way::Open | Way::HintsLost)).await?;
        notifications += u32::from(message[0] == NOTIFICATION);
        if message[0] == NOTIFICATION && way == Way::HintsLost && notifications % 3 != 0 {
            continue;
        }
        to.write_all(&message).await?;
    }
}
