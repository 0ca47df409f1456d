//! A socket in front of a PostgreSQL database that can keep the answers to itself.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::postgres::PgConnectOptions;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::Notify;

/// A socket in front of a database that can keep the answers to itself.
pub(crate) struct Proxy {
    folder: TempDir,
    wires: Arc<Wires>,
}

#[derive(Default)]
struct Wires {
    loses_answers: AtomicBool,
    is_silent: AtomicBool,
    cut: Notify,
}

impl Proxy {
    pub(crate) fn start(database: PgConnectOptions) -> Self {
        let folder = tempfile::Builder::new().prefix("annex-wires-").tempdir_in("/tmp").unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let wires = Arc::new(Wires::default());
        let accepted = Arc::clone(&wires);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, database.clone(), Arc::clone(&accepted)));
            }
        });
        Self { folder, wires }
    }

    pub(crate) fn url(&self, database: &PgConnectOptions) -> String {
        let name = database.get_database().unwrap();
        format!("postgres://{}@localhost/{name}?host={}", database.get_username(), self.folder.path().display())
    }

    /// Keeps the answers to statements that are executed from now on.
    pub(crate) fn lose_answers(&self) {
        self.wires.loses_answers.store(true, Ordering::SeqCst);
    }

    /// Keeps all answers from now on, including those to statements that are already running.
    pub(crate) fn silence(&self) {
        self.wires.is_silent.store(true, Ordering::SeqCst);
    }

    /// Breaks all open connections. Later connections work.
    pub(crate) fn cut(&self) {
        self.wires.is_silent.store(false, Ordering::SeqCst);
        self.wires.loses_answers.store(false, Ordering::SeqCst);
        self.wires.cut.notify_waiters();
    }
}

async fn serve(client: UnixStream, database: PgConnectOptions, wires: Arc<Wires>) {
    let cut = wires.cut.notified();
    let relaying = async {
        match database.get_socket() {
            Some(folder) => {
                let socket: PathBuf = folder.join(format!(".s.PGSQL.{}", database.get_port()));
                relay(client, UnixStream::connect(socket).await?, &wires).await
            }
            None => {
                let address = (database.get_host(), database.get_port());
                relay(client, TcpStream::connect(address).await?, &wires).await
            }
        }
    };
    tokio::select! {
        () = cut => {}
        _ = relaying => {}
    }
}

async fn relay(client: UnixStream, server: impl AsyncRead + AsyncWrite, wires: &Wires) -> io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let is_mute = AtomicBool::new(false);
    let answers = async {
        let mut buffer = vec![0; 1 << 16];
        while let read @ 1.. = from_server.read(&mut buffer).await? {
            if !is_mute.load(Ordering::SeqCst) && !wires.is_silent.load(Ordering::SeqCst) {
                to_client.write_all(&buffer[..read]).await?;
            }
        }
        Ok(())
    };
    let statements = async {
        // The first messages have no type: a question about TLS, which has no content but its code, and the start.
        while copy(&mut from_client, &mut to_server).await? <= 8 {}
        loop {
            let kind = from_client.read_u8().await?;
            // A statement that was prepared is given its values.
            if kind == b'B' && wires.loses_answers.load(Ordering::SeqCst) {
                is_mute.store(true, Ordering::SeqCst);
            }
            to_server.write_u8(kind).await?;
            copy(&mut from_client, &mut to_server).await?;
        }
    };
    tokio::select! {
        ended = answers => ended,
        ended = statements => ended,
    }
}

/// Relays the length of a message, and the message. Returns the length.
async fn copy(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> io::Result<u32> {
    let length = from.read_u32().await?;
    to.write_u32(length).await?;
    let mut content = vec![0; length as usize - 4];
    from.read_exact(&mut content).await?;
    to.write_all(&content).await?;
    to.flush().await?;
    Ok(length)
}
