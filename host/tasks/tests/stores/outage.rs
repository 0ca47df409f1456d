//! A connection that breaks between a change and the answer to it: the change is made once, and counts as made.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use annex_protocol::{Message, StreamResponse, TaskId, TaskState};
use annex_tasks::{Creator, Place, PostgresTaskStore, StoreError, TaskEvent, TaskStore};
use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::Notify;

use crate::cluster::Scratch;
use crate::fixture::{at, change, owner, working};

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
    fn lose_answers(&self) {
        self.wires.loses_answers.store(true, Ordering::SeqCst);
    }

    /// Keeps all answers, also those to statements that are under way.
    pub(crate) fn silence(&self) {
        self.wires.is_silent.store(true, Ordering::SeqCst);
    }

    /// Breaks all connections. Later ones work.
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

/// A store whose answers can be lost, and the database as it is.
struct Wired {
    scratch: Scratch,
    proxy: Proxy,
    store: PostgresTaskStore,
    database: PgConnection,
}

impl Wired {
    async fn create() -> Option<Self> {
        let scratch = Scratch::create().await?;
        let options: PgConnectOptions = scratch.url().parse().unwrap();
        let proxy = Proxy::start(options.clone());
        let store = PostgresTaskStore::connect(&proxy.url(&options), 2).await.unwrap();
        let database = PgConnection::connect(scratch.url()).await.unwrap();
        Some(Self { scratch, proxy, store, database })
    }

    /// Loses the answer to a change that is made once the number is this.
    async fn losing<T>(
        &mut self,
        (number, expected): (&'static str, i64),
        change: impl AsyncFn(&PostgresTaskStore) -> T,
    ) -> T {
        let Self { proxy, store, database, .. } = self;
        proxy.lose_answers();
        let lose = async {
            let begin = Instant::now();
            while sqlx::query_scalar::<_, i64>(number).fetch_one(&mut *database).await.unwrap() != expected {
                assert!(begin.elapsed() < Duration::from_secs(3), "nothing is changed");
            }
            proxy.cut();
        };
        tokio::join!(change(store), lose).0
    }

    async fn number(&mut self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut self.database).await.unwrap()
    }
}

const EVENTS: &str = "SELECT count(*) FROM task_event";
const EPOCH: &str = "SELECT coalesce(max(epoch), 0) FROM task";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_answer_is_lost_is_made_once_and_counts_as_made() {
    let Some(mut wired) = Wired::create().await else { return };
    let id = TaskId::from("t-1");
    let mut task = working("t-1");
    let begun = [StreamResponse::Task(task.clone()).into()];
    let snapshot = task.clone().into();
    let place = wired
        .losing((EVENTS, 1), async |store| store.create(&owner("ada"), &begun, &snapshot, Creator::default()).await)
        .await;
    let place = place.unwrap();
    assert_eq!((place.seq, place.epoch), (1, 0));

    let event = change(&mut task, TaskState::Working, at(2_000));
    let snapshot = task.clone().into();
    let said = [event.clone(), event];
    let place = wired.losing((EVENTS, 3), async |store| store.append(&id, &place, &said, &snapshot).await).await;
    let place = place.unwrap();
    assert_eq!((place.seq, place.epoch), (3, 0));

    // With a message another epoch begins.
    let answer = [TaskEvent::from(Message::user_text("here"))];
    let place = wired.losing((EVENTS, 4), async |store| store.append(&id, &place, &answer, &snapshot).await).await;
    let place = place.unwrap();
    assert_eq!((place.seq, place.epoch), (4, 1));

    let taken = wired.losing((EPOCH, 2), async |store| store.take(&id, 1).await).await.unwrap().unwrap();
    assert_eq!((taken.seq, taken.epoch), (4, 2));
    assert_eq!((wired.number(EVENTS).await, wired.number(EPOCH).await), (4, 2));
    wired.database.close().await.unwrap();
    wired.scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_answer_is_lost_is_refused_where_another_process_has_taken_the_task() {
    let Some(mut wired) = Wired::create().await else { return };
    let id = TaskId::from("t-1");
    let mut task = working("t-1");
    let begun = [StreamResponse::Task(task.clone()).into()];
    let place: Place =
        wired.store.create(&owner("ada"), &begun, &task.clone().into(), Creator::default()).await.unwrap();
    let event = [change(&mut task, TaskState::Working, at(2_000))];
    let snapshot = task.clone().into();
    let taking = "UPDATE task SET epoch = epoch + 1, runner = 'other' WHERE id = 't-1'";
    let Wired { proxy, store, database, .. } = &mut wired;
    proxy.lose_answers();
    let taken = async {
        let begin = Instant::now();
        while sqlx::query_scalar::<_, i64>(EVENTS).fetch_one(&mut *database).await.unwrap() != 2 {
            assert!(begin.elapsed() < Duration::from_secs(3), "nothing is changed");
        }
        sqlx::query(taking).execute(&mut *database).await.unwrap();
        proxy.cut();
    };
    let (refused, ()) = tokio::join!(store.append(&id, &place, &event, &snapshot), taken);
    let refused = refused.unwrap_err();
    assert!(matches!(refused, StoreError::Fenced { .. }), "{refused}");
    assert_eq!(wired.number(EVENTS).await, 2);
    wired.database.close().await.unwrap();
    wired.scratch.remove().await;
}
