//! Several `annex serve` on one PostgreSQL database that install the same extensions.

use std::fs;
use std::io::BufRead;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use annex_components::STEERING_GRANTS;
use anyhow::{Context, Result, ensure};
use reqwest::{Client, Response};
use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::Connection;
use sqlx::postgres::PgConnection;
use tempfile::NamedTempFile;

use crate::cluster::Scratch;
use crate::durable::message;
use crate::support::{Run, Server, annex, free_address};

const TOKEN: &str = "a-token-of-the-tests";
const HELLO: &str = annex_components::HELLO_EXTENSION;
const OTHER: &str = annex_components::TEST_EXTENSION;
const P256: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../auth/tests/auth/fixtures/p256.pem");

/// The longest time until a process notices an ended lease or a new edition.
const LEASE_AND_LOOK: Duration = Duration::from_secs(6 + 6);

/// A database for servers that install the same extensions.
struct Fleet {
    scratch: Scratch,
    client: Client,
}

/// A server of the fleet, with its admin API.
struct Member {
    server: Server,
    /// The base URL of the server for clients.
    url: String,
    admin: String,
}

impl Fleet {
    /// Creates the database. `None`, after a note on standard error, without PostgreSQL.
    async fn create() -> Option<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Some(Self { scratch: Scratch::create().await?, client: Client::new() })
    }

    fn start(&self, more: &str) -> Result<Member> {
        self.start_at("", more)
    }

    /// Starts a server. `server` is the text of further keys in `[server]`, and `more` that of further tables.
    fn start_at(&self, server: &str, more: &str) -> Result<Member> {
        // The URL that a server shows need not be where it is.
        let address = free_address()?;
        let config = format!(
            "[server]\nlisten = \"{address}\"\n{server}\n[card]\nname = \"a\"\ndescription = \"b\"\n[agent]\nkind = \"script\"\n\
             name = \"c\"\n[[agent.rule]]\nsteps = [{{ status = {{ state = \"completed\", text = \"done\" }} }}]\n[tasks]\n\
             postgres_env = \"ANNEX_TEST_TASKS\"\n[admin]\nlisten = \"127.0.0.1:0\"\ntoken_env = \"TEST_ADMIN_TOKEN\"\n{more}"
        );
        let environment = [("ANNEX_TEST_TASKS", self.scratch.url()), ("TEST_ADMIN_TOKEN", TOKEN)];
        let mut server = Server::start_with(&config, &environment)?;
        let mut line = String::new();
        server.stdout.read_line(&mut line)?;
        let admin = line.strip_prefix("Admin API   ").context("no admin API")?.trim().to_owned();
        Ok(Member { server, url: format!("http://{address}"), admin })
    }

    async fn get(&self, member: &Member, path: &str) -> Result<Response> {
        Ok(self.client.get(format!("{}{path}", member.url)).send().await?)
    }

    /// The URIs of the extensions on the card. If the answer is not a card, its HTTP status.
    async fn declared(&self, member: &Member) -> Result<Result<Vec<String>, u16>> {
        let answer = self.get(member, "/.well-known/agent-card.json").await?;
        if answer.status() != 200 {
            return Ok(Err(answer.status().as_u16()));
        }
        let card: Value = serde_json::from_str(&answer.text().await?)?;
        let extensions = card["capabilities"]["extensions"].as_array().cloned().unwrap_or_default();
        Ok(Ok(extensions.iter().map(|one| one["uri"].as_str().unwrap_or_default().to_owned()).collect()))
    }

    /// Sends a message that requests the extension `uri`. Returns whether the extension was active, or the code of the
    /// error.
    async fn is_active(&self, member: &Member, uri: &str, id: &str) -> Result<Result<bool, i64>> {
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message(&format!("c-{id}"), id)});
        let request = self.client.post(format!("{}/a2a/jsonrpc", member.url)).header("A2A-Version", "1.0");
        let request = request.header("A2A-Extensions", uri).header("content-type", "application/json");
        let answer = request.body(body.to_string()).send().await?;
        let active = answer.headers().get("A2A-Extensions").is_some_and(|active| active == uri);
        let answer: Value = serde_json::from_str(&answer.text().await?)?;
        if let Some(code) = answer["error"]["code"].as_i64() {
            return Ok(Err(code));
        }
        ensure!(answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED", "{answer}");
        Ok(Ok(active))
    }

    async fn count(&self, sql: &'static str) -> Result<i64> {
        let mut connection = PgConnection::connect(self.scratch.url()).await?;
        let count = sqlx::query_scalar(sql).fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok(count)
    }

    /// Waits until an edition is proposed and not yet concluded.
    async fn proposed(&self) -> Result<()> {
        let begin = Instant::now();
        while self.count("SELECT count(*) FROM edition WHERE state = 'proposed'").await? == 0 {
            ensure!(begin.elapsed() < Duration::from_secs(30), "nothing is proposed");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Waits until `/readyz` answers with `status`, and returns the body.
    async fn readiness(&self, member: &Member, status: u16) -> Result<Value> {
        let begin = Instant::now();
        loop {
            let answer = self.get(member, "/readyz").await?;
            let found = answer.status();
            let text = answer.text().await?;
            if found == status {
                return Ok(serde_json::from_str(&text)?);
            }
            ensure!(begin.elapsed() < LEASE_AND_LOOK, "not {status}: {found} {text}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn remove(self) {
        self.scratch.remove().await;
    }
}

impl Member {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = annex(["extension", "--admin", &self.admin].iter().chain(arguments));
        command.env("ANNEX_ADMIN_TOKEN", TOKEN);
        command
    }

    fn extension(&self, arguments: &[&str]) -> Result<Run> {
        let output = self.command(arguments).output()?;
        let out = String::from_utf8(output.stdout)?;
        let err = String::from_utf8(output.stderr)?;
        Ok(Run { code: output.status.code(), out, err })
    }

    /// Runs `annex extension` with these arguments, which must succeed. Returns the printed JSON.
    fn changed(&self, arguments: &[&str]) -> Result<Value> {
        let run = self.extension(&[arguments, &["--json"]].concat())?;
        ensure!(run.code == Some(0), "{arguments:?}: {}", run.err);
        Ok(serde_json::from_str(&run.out)?)
    }

    /// The number of the edition, and the URI and digest of each installed extension.
    fn installed(&self) -> Result<(u64, Vec<(String, String)>)> {
        let list = self.changed(&["list"])?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let extensions = list["extensions"].as_array().cloned().unwrap_or_default();
        let extensions = extensions.iter().map(|one| (text(&one["uri"]), text(&one["digest"]))).collect();
        Ok((list["edition"].as_u64().context("a number")?, extensions))
    }

    /// Stops the server with SIGTERM, and checks its exit status.
    fn stop(mut self) -> Result<()> {
        self.server.signal(Signal::TERM)?;
        ensure!(self.server.process.wait()?.success(), "it did not end well");
        Ok(())
    }
}

fn uri(installed: &Value) -> Result<String> {
    Ok(installed["uri"].as_str().context("a URI")?.to_owned())
}

fn settings(text: &str) -> Result<NamedTempFile> {
    let file = NamedTempFile::new()?;
    fs::write(file.path(), text)?;
    Ok(file)
}

fn path(file: &NamedTempFile) -> Result<&str> {
    file.path().to_str().context("a path")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_added_to_one_process_is_declared_and_active_in_all_and_kept_over_restarts() -> Result<()> {
    let Some(fleet) = Fleet::create().await else { return Ok(()) };
    let [one, other] = [fleet.start("")?, fleet.start("")?];
    let hello = uri(&one.changed(&["add", HELLO])?)?;
    // At once: the answer came when nobody served anything older.
    assert_eq!(fleet.declared(&other).await?, Ok(vec![hello.clone()]));
    assert_eq!(fleet.is_active(&other, &hello, "m-1").await?, Ok(true));
    assert_eq!(one.installed()?, other.installed()?);
    drop(one);
    let one = fleet.start("")?;
    assert_eq!(fleet.declared(&one).await?, Ok(vec![hello.clone()]));
    assert_eq!(fleet.is_active(&one, &hello, "m-2").await?, Ok(true));
    assert_eq!(one.installed()?, other.installed()?);
    assert!(one.extension(&["add", HELLO])?.out.contains("installed"), "the same again");
    let removed = other.extension(&["remove", &hello])?;
    assert_eq!(removed.code, Some(0), "{}", removed.err);
    assert_eq!(fleet.declared(&one).await?, Ok(Vec::new()));
    assert_eq!(fleet.is_active(&one, &hello, "m-3").await?, Ok(false));
    drop((one, other));
    fleet.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_cannot_serve_a_change_keeps_it_from_all_and_is_named() -> Result<()> {
    let Some(fleet) = Fleet::create().await else { return Ok(()) };
    let large = fleet.start("[replica]\nname = \"large\"")?;
    let small = fleet.start("[replica]\nname = \"small\"\n[runtime.ceiling]\nmemory_mib = 4")?;
    let before = large.installed()?;
    let settings = settings("[limits]\nmemory_mib = 16\n")?;
    let add = ["add", HELLO, "--settings", path(&settings)?];
    let refused = large.extension(&add)?;
    assert_eq!(refused.code, Some(3), "{}", refused.out);
    for part in ["replica small cannot serve it", "nothing has changed", "memory_mib"] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    assert_eq!((large.installed()?, small.installed()?), (before.clone(), before));
    assert_eq!(fleet.readiness(&small, 200).await?.get("barred"), None);

    let hello = uri(&large.changed(&[&add[..], &["--force"]].concat())?)?;
    assert_eq!(fleet.is_active(&large, &hello, "m-1").await?, Ok(true));
    // It does not serve what was before.
    assert_eq!(fleet.is_active(&small, &hello, "m-2").await?, Err(-32_000));
    assert_eq!(fleet.declared(&small).await?, Err(503));
    let readiness = fleet.readiness(&small, 503).await?;
    assert!(readiness["barred"].as_str().context("a reason")?.contains("cannot be served"), "{readiness}");
    let failures = small.changed(&["list"])?["failures"].to_string();
    assert!(failures.contains("memory_mib"), "{failures}");
    // Once it can, it does.
    large.changed(&["remove", &hello])?;
    fleet.readiness(&small, 200).await?;
    assert_eq!(fleet.is_active(&small, &hello, "m-3").await?, Ok(false));
    assert_eq!(large.installed()?, small.installed()?);
    drop((large, small));
    fleet.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposer_that_is_killed_before_the_end_has_changed_nothing_and_is_in_nobodys_way() -> Result<()> {
    let Some(fleet) = Fleet::create().await else { return Ok(()) };
    let [mut killed, other] = [fleet.start("")?, fleet.start("")?];
    let before = other.installed()?;
    // The other one is asked, and says nothing yet.
    other.server.signal(Signal::STOP)?;
    let mut adding = killed.command(&["add", HELLO]).stderr(Stdio::null()).spawn()?;
    fleet.proposed().await?;
    killed.server.process.kill()?;
    killed.server.process.wait()?;
    other.server.signal(Signal::CONT)?;
    assert!(!adding.wait()?.success());
    fleet.readiness(&other, 200).await?;
    assert_eq!(other.installed()?, before);
    let begin = Instant::now();
    let hello = loop {
        let added = other.extension(&["add", HELLO, "--json"])?;
        if added.code == Some(0) {
            break uri(&serde_json::from_str(&added.out)?)?;
        }
        assert!(added.err.contains("another replica changes"), "{}", added.err);
        ensure!(begin.elapsed() < LEASE_AND_LOOK, "the lease of the killed one is over");
    };
    assert_eq!(fleet.declared(&other).await?, Ok(vec![hello]));
    drop((killed, other));
    fleet.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stood_still_keeps_nobody_waiting_and_never_serves_what_it_had() -> Result<()> {
    let Some(fleet) = Fleet::create().await else { return Ok(()) };
    let [one, stopped] = [fleet.start("")?, fleet.start("")?];
    stopped.server.signal(Signal::STOP)?;
    let begin = Instant::now();
    let hello = uri(&one.changed(&["add", HELLO])?)?;
    assert!(begin.elapsed() < LEASE_AND_LOOK, "its lease is waited for, and no longer: {:?}", begin.elapsed());
    stopped.server.signal(Signal::CONT)?;
    // From the first moment on.
    let mut number = 0;
    loop {
        number += 1;
        let declared = fleet.declared(&stopped).await?;
        assert!(declared == Ok(vec![hello.clone()]) || declared == Err(503), "{declared:?}");
        let active = fleet.is_active(&stopped, &hello, &format!("m-{number}")).await?;
        assert!(active != Ok(false), "the older set served a message");
        if declared.is_ok() && active == Ok(true) {
            break;
        }
        ensure!(begin.elapsed() < 3 * LEASE_AND_LOOK, "it does not come back");
    }
    assert_eq!(one.installed()?, stopped.installed()?);
    // It is asked again.
    one.changed(&["remove", &hello])?;
    assert_eq!(fleet.declared(&stopped).await?, Ok(Vec::new()));
    drop((one, stopped));
    fleet.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_changes_at_once_one_comes_first_and_none_is_lost() -> Result<()> {
    let Some(fleet) = Fleet::create().await else { return Ok(()) };
    let [one, other] = [fleet.start("")?, fleet.start("")?];
    for round in 0..3 {
        let names = [format!("hello-{round}"), format!("other-{round}")];
        let adding = [
            one.command(&["add", HELLO, "--name", &names[0]]).stdout(Stdio::null()).spawn()?,
            other.command(&["add", OTHER, "--name", &names[1]]).stdout(Stdio::null()).spawn()?,
        ];
        let done = adding.map(|mut adding| adding.wait());
        let mut was_added = Vec::new();
        for done in done {
            was_added.push(done?.success());
        }
        assert!(was_added.contains(&true), "both were refused");
        let (edition, installed) = one.installed()?;
        assert_eq!((edition, &installed), (other.installed()?.0, &other.installed()?.1));
        assert_eq!(installed.len(), was_added.iter().filter(|added| **added).count());
        for (uri, _) in installed {
            one.changed(&["remove", &uri])?;
        }
    }
    drop((one, other));
    fleet.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_is_signed_once_and_the_same_from_all_and_after_a_restart() -> Result<()> {
    let Some(fleet) = Fleet::create().await else { return Ok(()) };
    let server = "public_url = \"https://agents.example.com\"";
    let signing = format!("[card.signing]\nkid = \"k1\"\nkey_file = {P256:?}");
    let start = || fleet.start_at(server, &signing);
    let [one, other] = [start()?, start()?];
    let card = async |member: &Member| {
        let answer = fleet.get(member, "/.well-known/agent-card.json").await?;
        let etag = answer.headers().get("etag").cloned().context("an ETag")?;
        anyhow::Ok((etag, answer.text().await?))
    };
    let first = card(&one).await?;
    assert!(first.1.contains("\"signatures\""), "{}", first.1);
    assert_eq!(first, card(&other).await?);
    one.changed(&["add", HELLO])?;
    let second = card(&one).await?;
    assert_ne!(first, second);
    assert_eq!(second, card(&other).await?);
    drop(one);
    let one = start()?;
    assert_eq!(second, card(&one).await?);
    // Another description is another config, and another card for all.
    let described = fleet
        .start_at(server, &format!("{signing}\n[card.provider]\nurl = \"https://p.example\"\norganization = \"p\""))?;
    let third = card(&described).await?;
    assert!(third.1.contains("https://p.example"), "{}", third.1);
    assert_eq!((&third, &third), (&card(&one).await?, &card(&other).await?));
    drop((one, other, described));
    fleet.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_show_one_declaration_with_one_signature() -> Result<()> {
    let Some(fleet) = Fleet::create().await else { return Ok(()) };
    let server = "public_url = \"https://agents.example.com\"";
    let signing = format!("[card.signing]\nkid = \"k1\"\nkey_file = {P256:?}");
    let start = || fleet.start_at(server, &signing);
    let [one, other] = [start()?, start()?];
    let counting = settings(&format!(
        "[parameters]\nlive = \"counter\"\n[grants]\ncaller = {{ principal = true }}\n\
         live-card = {{ at_least_seconds = 1 }}\n{STEERING_GRANTS}\n"
    ))?;
    one.changed(&["add", annex_components::TEST_STEERING, "--settings", path(&counting)?])?;
    let card = async |member: &Member| {
        let text = fleet.get(member, "/.well-known/agent-card.json").await?.text().await?;
        let read: Value = serde_json::from_str(&text)?;
        anyhow::Ok((read["capabilities"]["extensions"][0]["params"]["n"].as_i64().context("a number")?, text))
    };
    // Each process declares at load, with keys that are soon forgotten. Each later declaration is made once, whichever
    // process makes it, and is a renewal.
    let at_load = "SELECT (cards::json -> 'live' -> 0 -> 'entry' -> 'params' ->> 'n')::bigint - renewals FROM edition
                   WHERE state = 'accepted' ORDER BY number DESC LIMIT 1";
    let begin = Instant::now();
    let (mut last, mut counts) = (card(&one).await?.0, Vec::new());
    while counts.len() < 3 {
        ensure!(begin.elapsed() < Duration::from_secs(60), "the cards of both processes are never the same");
        let (number, text) = card(&one).await?;
        // While a card is new, the other process may not have it yet.
        if number > last && card(&other).await? == (number, text) {
            last = number;
            counts.push(fleet.count(at_load).await?);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ensure!(counts.iter().all(|count| count == &counts[0]), "a declaration was made twice: {counts:?}");
    let (before, _) = card(&other).await?;
    drop(one);
    let begin = Instant::now();
    while card(&other).await?.0 < before + 2 {
        ensure!(begin.elapsed() < Duration::from_secs(60), "the other process does not go on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(other);
    fleet.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_config_is_for_all_and_an_earlier_one_only_when_it_is_asked_for() -> Result<()> {
    let Some(fleet) = Fleet::create().await else { return Ok(()) };
    let with_hello = format!("[[extension]]\ncomponent = {HELLO:?}");
    let early = fleet.start("")?;
    assert_eq!(fleet.declared(&early).await?, Ok(Vec::new()));
    let late = fleet.start(&with_hello)?;
    let declared = fleet.declared(&late).await?;
    assert_eq!(declared.clone().map(|uris| uris.len()), Ok(1));
    assert_eq!(fleet.declared(&early).await?, declared, "an earlier process follows");
    // As when it is moved to another machine before its turn in an upgrade has come.
    early.stop()?;
    let early = fleet.start("")?;
    assert_eq!(fleet.declared(&early).await?, declared);
    assert_eq!(fleet.declared(&late).await?, declared);
    early.changed(&["reload"])?;
    assert_eq!(fleet.declared(&early).await?, Ok(Vec::new()));
    assert_eq!(fleet.declared(&late).await?, Ok(Vec::new()));
    // The config of a process that is alone always counts.
    early.stop()?;
    late.stop()?;
    let alone = fleet.start(&with_hello)?;
    assert_eq!(fleet.declared(&alone).await?, declared);
    alone.stop()?;
    let alone = fleet.start("")?;
    assert_eq!(fleet.declared(&alone).await?, Ok(Vec::new()));
    drop(alone);
    fleet.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_that_another_process_cannot_serve_keeps_the_server_from_starting() -> Result<()> {
    let Some(fleet) = Fleet::create().await else { return Ok(()) };
    let small = fleet.start("[replica]\nname = \"small\"\n[runtime.ceiling]\nmemory_mib = 4")?;
    let large = format!("[[extension]]\ncomponent = {HELLO:?}\n[extension.limits]\nmemory_mib = 16");
    let refused = fleet.start(&large).err().context("a refusal")?.to_string();
    assert!(refused.contains("replica small cannot serve it") && refused.contains("memory_mib"), "{refused}");
    assert_eq!(fleet.declared(&small).await?, Ok(Vec::new()));
    fleet.readiness(&small, 200).await?;
    drop(small);
    fleet.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_of_one_process_is_refused_where_all_have_the_same() -> Result<()> {
    let Some(fleet) = Fleet::create().await else { return Ok(()) };
    let refused = fleet.start("[runtime]\nextensions_dir = \"extensions\"").err().context("a refusal")?.to_string();
    assert!(refused.contains("runtime.extensions_dir: is a folder of one process"), "{refused}");
    fleet.remove().await;
    Ok(())
}
