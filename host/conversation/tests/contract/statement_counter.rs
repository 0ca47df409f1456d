//! A socket in front of PostgreSQL that counts the statements of a server or a store.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::postgres::PgConnectOptions;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};

/// A socket in front of a database that counts the statements.
pub(crate) struct Counter {
    trips: Arc<AtomicU64>,
    folder: TempDir,
}

impl Counter {
    pub(crate) fn start(database: PgConnectOptions) -> Self {
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

    pub(crate) fn url(&self, database: &PgConnectOptions) -> String {
        let name = database.get_database().unwrap();
        format!("postgres://{}@localhost/{name}?host={}", database.get_username(), self.folder.path().display())
    }

    /// The statements since the last call.
    pub(crate) fn take(&self) -> u64 {
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
