//! A socket in front of PostgreSQL that counts the statements of a server or a store, and can lose the answer to one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sqlx::postgres::PgConnectOptions;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};

/// A socket in front of a database that counts the statements.
pub(crate) struct Counter {
    statements: Arc<Statements>,
    folder: TempDir,
}

#[derive(Default)]
struct Statements {
    count: AtomicU64,
    /// The number of statements up to the one whose answer is lost; 0 for none.
    until_lost: AtomicU64,
}

impl Statements {
    /// Counts a statement. Returns true if its answer is to be lost.
    fn add(&self) -> bool {
        self.count.fetch_add(1, Ordering::SeqCst);
        let next = |until: u64| until.checked_sub(1);
        self.until_lost.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next) == Ok(1)
    }
}

impl Counter {
    pub(crate) fn start(database: PgConnectOptions) -> Self {
        let folder = tempfile::Builder::new().prefix("annex-trips-").tempdir_in("/tmp").unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let statements = Arc::new(Statements::default());
        let counted = Arc::clone(&statements);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, database.clone(), Arc::clone(&counted)));
            }
        });
        Self { statements, folder }
    }

    pub(crate) fn url(&self, database: &PgConnectOptions) -> String {
        let name = database.get_database().unwrap();
        format!("postgres://{}@localhost/{name}?host={}", database.get_username(), self.folder.path().display())
    }

    /// The statements since the last call.
    pub(crate) fn take(&self) -> u64 {
        self.statements.count.swap(0, Ordering::SeqCst)
    }

    /// Loses the answer of the given statement, counted from now: 1 is the next one, and 0 is none. The statement is executed,
    /// and then its connection breaks. Returns true if the answer that an earlier call named is lost.
    #[allow(dead_code, reason = "the tests of the command count statements only")]
    pub(crate) fn lose_answer(&self, statement: u64) -> bool {
        self.statements.until_lost.swap(statement, Ordering::SeqCst) == 0
    }
}

async fn serve(client: UnixStream, database: PgConnectOptions, statements: Arc<Statements>) -> io::Result<()> {
    match database.get_socket() {
        Some(folder) => {
            let socket = folder.join(format!(".s.PGSQL.{}", database.get_port()));
            relay(client, UnixStream::connect(socket).await?, &statements).await
        }
        None => {
            let address = (database.get_host(), database.get_port());
            relay(client, TcpStream::connect(address).await?, &statements).await
        }
    }
}

async fn relay(client: UnixStream, server: impl AsyncRead + AsyncWrite, statements: &Statements) -> io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let is_lost = AtomicBool::new(false);
    let answering = async {
        let mut buffer = vec![0; 1 << 16];
        while let read @ 1.. = from_server.read(&mut buffer).await? {
            if is_lost.load(Ordering::SeqCst) {
                break;
            }
            to_client.write_all(&buffer[..read]).await?;
        }
        Ok(())
    };
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
            if matches!(kind, b'E' | b'Q') && statements.add() {
                is_lost.store(true, Ordering::SeqCst);
            }
            to_server.write_u8(kind).await?;
            to_server.write_u32(length).await?;
            copy(&mut from_client, &mut to_server, length).await?;
        }
    };
    tokio::select! {
        ended = asking => ended,
        ended = answering => ended,
    }
}

/// The rest of a message, whose length counts itself.
async fn copy(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin), length: u32) -> io::Result<()> {
    let mut body = vec![0; usize::try_from(length).unwrap() - 4];
    from.read_exact(&mut body).await?;
    to.write_all(&body).await
}
