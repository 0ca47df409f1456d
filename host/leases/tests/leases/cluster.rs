//! A PostgreSQL server for the tests. `ANNEX_TEST_POSTGRES_URL` names an existing server, whose user must be allowed to
//! create databases. Otherwise the tests start a server, which ends with the last test.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};
use tempfile::TempDir;

/// An empty database of one test.
pub(crate) struct Scratch {
    server: Arc<Server>,
    name: String,
    url: String,
}

impl Scratch {
    /// Creates the database. Without a PostgreSQL server, prints a message and returns `None`.
    pub(crate) async fn create() -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let server = match tokio::task::spawn_blocking(Server::shared).await.unwrap() {
            Ok(server) => server,
            Err(reason) => {
                // Not `eprintln!`: the test harness keeps that of a test that passes to itself.
                let _ = writeln!(std::io::stderr(), "SKIPPED a PostgreSQL test: {reason}");
                return None;
            }
        };
        let name = format!("annex_test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        server.execute(format!("CREATE DATABASE {name}")).await;
        let url = server.url_of(&name);
        Some(Self { server, name, url })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) async fn remove(self) {
        self.server.execute(format!("DROP DATABASE {} WITH (FORCE)", self.name)).await;
    }
}

enum Server {
    External { url: String },
    Own(Cluster),
}

impl Server {
    /// The one server of all tests that run now.
    fn shared() -> Result<Arc<Self>, String> {
        static SERVER: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut shared = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return Ok(server);
        }
        let server = match std::env::var("ANNEX_TEST_POSTGRES_URL") {
            Ok(url) => Self::External { url },
            Err(_) => Self::Own(Cluster::create()?),
        };
        let server = Arc::new(server);
        *shared = Arc::downgrade(&server);
        Ok(server)
    }

    fn url(&self) -> String {
        match self {
            Self::External { url } => url.clone(),
            Self::Own(cluster) => cluster.url(),
        }
    }

    fn url_of(&self, database: &str) -> String {
        let url = self.url();
        let (address, parameters) = url.split_once('?').unwrap_or((&url, ""));
        let (server, _) = address.rsplit_once('/').expect("a URL with a database");
        format!("{server}/{database}?{parameters}")
    }

    async fn execute(&self, sql: String) {
        let mut connection = PgConnection::connect(&self.url()).await.unwrap();
        sqlx::query(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }
}

/// A server in a temporary folder that is reached by a socket in that folder only.
pub(crate) struct Cluster {
    programs: PathBuf,
    /// The folder of the server; `None` once the folder is removed.
    folder: Option<TempDir>,
    user: Option<&'static str>,
}

impl Cluster {
    pub(crate) fn create() -> Result<Self, String> {
        let programs = programs().ok_or("no initdb in /usr/lib/postgresql, and no ANNEX_TEST_POSTGRES_URL")?;
        // Not in the temporary folder of the environment: the path of a socket has at most 107 bytes.
        let folder = tempfile::Builder::new().prefix("annex-postgres-").tempdir_in("/tmp");
        let folder = folder.map_err(|error| error.to_string())?;
        let user = other_user()?;
        if let Some(user) = user {
            run(Command::new("chown").arg(user).arg(folder.path()))?;
        }
        let cluster = Self { programs, folder: Some(folder), user };
        let data = cluster.folder().join("data");
        cluster.initialise(&data)?;
        cluster.start()?;
        Ok(cluster)
    }

    pub(crate) fn start(&self) -> Result<(), String> {
        let folder = self.folder().display();
        let options =
            format!("-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off -c max_connections=300");
        let mut start = self.command("pg_ctl");
        start.args(["start", "--wait", "--options", &options, "--log"]).arg(self.folder().join("log"));
        run(start.arg("--pgdata").arg(self.folder().join("data")))
    }

    /// Stops the server as if it had crashed.
    pub(crate) fn stop(&self) -> Result<(), String> {
        let mut stop = self.command("pg_ctl");
        run(stop.args(["stop", "--wait", "--mode", "immediate", "--pgdata"]).arg(self.folder().join("data")))
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://annex@localhost/postgres?host={}", self.folder().display())
    }

    /// Creates the files of a server. From version 15 on, texts are ordered as in English, so that a test fails that expects
    /// ids in this order.
    fn initialise(&self, data: &Path) -> Result<(), String> {
        let initdb = |order: &[&str]| {
            let mut command = self.command("initdb");
            command.args(["--no-sync", "--auth=trust", "--username=annex", "--encoding=UTF8"]).args(order);
            run(command.arg("--pgdata").arg(data))
        };
        initdb(&["--locale-provider=icu", "--icu-locale=en"]).or_else(|_| initdb(&[]))
    }

    fn folder(&self) -> &Path {
        self.folder.as_ref().expect("a folder until the end").path()
    }

    /// A command for one of the programs of PostgreSQL. The programs refuse to run as root, so another user runs them.
    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        let mut command = match self.user {
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid", user, "--regid", user, "--clear-groups", "--"]).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.current_dir(self.folder()).env("LC_ALL", "C");
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.stop();
        drop(self.folder.take());
    }
}

/// The folder with the programs of the newest version that is installed.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let folders = versions.map(|version| version.path().join("bin"));
    folders.filter(|folder| folder.join("initdb").is_file()).max_by_key(|folder| version(folder))
}

fn version(folder: &Path) -> u32 {
    let version = folder.parent().and_then(Path::file_name).and_then(OsStr::to_str);
    version.and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// The user that runs the database server when these tests run as root; `None` for the user of the tests.
fn other_user() -> Result<Option<&'static str>, String> {
    let id = |arguments: &[&str]| Command::new("id").args(arguments).stderr(Stdio::null()).output();
    let own = id(&["-u"]).map_err(|error| error.to_string())?;
    if own.stdout != b"0\n" {
        return Ok(None);
    }
    let known = ["postgres", "nobody"].into_iter().find(|user| id(&["-u", user]).is_ok_and(|id| id.status.success()));
    known.map(Some).ok_or_else(|| "neither a user postgres nor nobody to run it as".to_owned())
}

fn run(command: &mut Command) -> Result<(), String> {
    // No pipes: the server inherits them and would hold them open.
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} ended with {status}")),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}
