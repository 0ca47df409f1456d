//! Tenants that are added while several `annex serve` run, and `annex tenant`.

use std::io::BufRead as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use reqwest::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::cluster::Scratch;
use crate::durable::call;
use crate::support::{Run, Server, annex};

const TOKEN: &str = "a-token-of-the-tests";
/// The longest time until every process has applied a change.
const EVERYWHERE: Duration = Duration::from_secs(1);

/// The text of a tenant whose agent answers with the tenant's name.
fn text(name: &str) -> String {
    format!(
        "[card]\nname = {name:?}\ndescription = \"d\"\n[agent]\nkind = \"script\"\nname = \"a\"\n[[agent.rule]]\nsteps = [{{ \
         status = {{ state = \"completed\", text = {name:?} }} }}]\n[[agent.rule]]\ntext = \"long\"\nsteps = [{{ status = {{ \
         state = \"working\" }} }}, {{ wait_ms = 120000 }}]\n"
    )
}

/// A new message in a new conversation.
fn message(text: &str) -> Value {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let id = format!("m-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]}})
}

/// A server to which tenants can be added through its admin API.
struct Open {
    server: Server,
    admin: String,
    client: Client,
}

impl Open {
    /// Starts a server. `place` is the text of its `[tasks]` table.
    fn start(place: &str, environment: &[(&str, &str)]) -> Result<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\ntoken_env = \"TEST_ADMIN_TOKEN\"\n[tenants]\n\
             {place}\n{}",
            text("main")
        );
        let mut server = Server::start_with(&config, &[environment, &[("TEST_ADMIN_TOKEN", TOKEN)]].concat())?;
        let mut line = String::new();
        server.stdout.read_line(&mut line)?;
        let admin = line.strip_prefix("Admin API   ").context("no admin API")?.trim().to_owned();
        Ok(Self { server, admin, client: Client::new() })
    }

    fn among_others(scratch: &Scratch) -> Result<Self> {
        Self::start("[tasks]\npostgres_env = \"ANNEX_TEST_TASKS\"", &[("ANNEX_TEST_TASKS", scratch.url())])
    }

    /// Adds or changes a tenant under a condition, such as `if-none-match`. Returns the HTTP status and the body.
    async fn put(&self, name: &str, condition: (&str, &str), body: Value) -> Result<(u16, Value)> {
        self.ask("PUT", name, condition, &body).await
    }

    async fn add(&self, name: &str) -> Result<u64> {
        let (status, body) = self.put(name, ("if-none-match", "*"), json!({"config": text(name)})).await?;
        ensure!(status == 201, "{body}");
        body["rev"].as_u64().context("no number")
    }

    async fn remove(&self, name: &str, rev: u64) -> Result<()> {
        let (status, body) = self.ask("DELETE", name, ("if-match", &format!("\"{rev}\"")), &Value::Null).await?;
        ensure!(status == 200, "{body}");
        Ok(())
    }

    async fn ask(&self, method: &str, name: &str, (field, value): (&str, &str), body: &Value) -> Result<(u16, Value)> {
        let url = format!("{}/v1/tenants/{name}", self.admin);
        let request = self.client.request(method.parse()?, url).bearer_auth(TOKEN).header(field, value);
        let request = if body.is_null() { request } else { request.body(body.to_string()) };
        let reply = request.send().await?;
        Ok((reply.status().as_u16(), serde_json::from_str(&reply.text().await?)?))
    }

    /// Sends a message to the tenant. Returns the text of its answer, or the code of the error.
    async fn say(&self, tenant: &str) -> Result<Value> {
        let mut params = message("hello");
        params["tenant"] = json!(tenant);
        let body = call(&self.client, &self.server.url, "SendMessage", params).await?;
        let said = &body["result"]["task"]["status"]["message"]["parts"][0]["text"];
        Ok(if said.is_null() { body["error"]["code"].clone() } else { said.clone() })
    }

    /// Sends messages until the tenant's answer is `answer`, and returns the time that this took.
    async fn until(&self, tenant: &str, answer: &Value) -> Result<Duration> {
        let begin = Instant::now();
        loop {
            let said = self.say(tenant).await?;
            if said == *answer {
                return Ok(begin.elapsed());
            }
            ensure!(begin.elapsed() < Duration::from_secs(20), "{tenant}: {said}");
        }
    }

    fn tenant(&self, arguments: &[&str]) -> Result<Run> {
        let mut command = annex(["tenant", "--admin", &self.admin].iter().chain(arguments));
        let output = command.env("ANNEX_ADMIN_TOKEN", TOKEN).output()?;
        let out = String::from_utf8(output.stdout)?;
        let err = String::from_utf8(output.stderr)?;
        Ok(Run { code: output.status.code(), out, err })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_that_one_replica_adds_changes_and_removes_counts_on_all_within_a_second() -> Result<()> {
    let Some(scratch) = Scratch::create().await else { return Ok(()) };
    let [one, other] = [Open::among_others(&scratch)?, Open::among_others(&scratch)?];
    let (unknown, unserved) = (json!(-32_602), json!(-32_000));
    assert_eq!(other.say("acme").await?, unknown);
    let mut rev = one.add("acme").await?;
    assert_eq!(one.say("acme").await?, "acme");
    let mut slowest = other.until("acme", &json!("acme")).await?;
    for (change, expected) in [
        (json!({"config": text("acme again")}), json!("acme again")),
        (json!({"state": "suspended"}), unserved),
        (json!({"state": "active"}), json!("acme again")),
    ] {
        let (status, body) = one.put("acme", ("if-match", &format!("\"{rev}\"")), change).await?;
        ensure!(status == 200, "{body}");
        rev = body["rev"].as_u64().context("no number")?;
        assert_eq!(one.say("acme").await?, expected, "at once where it was changed");
        slowest = slowest.max(other.until("acme", &expected).await?);
    }
    // A turn that runs on the other replica when the tenant is removed.
    let mut params = message("long");
    params["tenant"] = json!("acme");
    params["configuration"] = json!({"returnImmediately": true});
    let begun = call(&other.client, &other.server.url, "SendMessage", params).await?;
    let task = begun["result"]["task"]["id"].as_str().with_context(|| begun.to_string())?.to_owned();
    one.remove("acme", rev).await?;
    assert_eq!(one.say("acme").await?, unknown);
    slowest = slowest.max(other.until("acme", &unknown).await?);
    println!("the slowest change counted on the other replica after {slowest:?}");
    assert!(slowest < EVERYWHERE + Duration::from_millis(500), "{slowest:?}");

    one.add("acme").await?;
    let begin = Instant::now();
    loop {
        let read = call(&one.client, &one.server.url, "GetTask", json!({"tenant": "acme", "id": task})).await?;
        if read["result"]["status"]["state"] == "TASK_STATE_CANCELED" {
            break;
        }
        ensure!(begin.elapsed() < Duration::from_secs(10), "not cancelled: {read}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop((one, other));
    scratch.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_changes_that_replicas_make_at_once_one_is_stored() -> Result<()> {
    let Some(scratch) = Scratch::create().await else { return Ok(()) };
    let servers = [Open::among_others(&scratch)?, Open::among_others(&scratch)?];
    let mut condition = ("if-none-match", "*".to_owned());
    for round in 0..10 {
        let changes = (0..8).zip(servers.iter().cycle()).map(|(number, server)| {
            let body = json!({"config": text(&format!("{round}-{number}"))});
            let (field, value) = (condition.0, condition.1.clone());
            async move { server.put("acme", (field, &value), body).await }
        });
        let answers = futures::future::try_join_all(changes).await?;
        let stored: Vec<_> = answers.iter().filter(|(status, _)| *status < 300).collect();
        let [(_, body)] = stored.as_slice() else { anyhow::bail!("{answers:?}") };
        assert!(answers.iter().all(|(status, _)| *status < 300 || *status == 412), "{answers:?}");
        condition = ("if-match", format!("\"{}\"", body["rev"]));
        let (_, shown) = servers[1].ask("GET", "acme", ("x-none", ""), &Value::Null).await?;
        assert_eq!(shown["config"], body["config"], "what its client was told is stored");
    }
    drop(servers);
    scratch.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn added_tenants_are_there_again_after_a_kill() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let place = format!("[tasks]\ndata_dir = {:?}", folder.path());
    let mut first = Open::start(&place, &[])?;
    let gone = first.add("gone").await?;
    first.add("acme").await?;
    first.remove("gone", gone).await?;
    assert_eq!(first.say("acme").await?, "acme");
    first.server.process.kill()?;
    first.server.process.wait()?;
    let second = Open::start(&place, &[])?;
    assert_eq!((second.say("acme").await?, second.say("gone").await?), (json!("acme"), json!(-32_602)));
    let list = second.tenant(&["list", "--json"])?;
    let list: Value = serde_json::from_str(&list.out)?;
    assert_eq!((list["tenants"].as_array().map(Vec::len), &list["tenants"][0]["loaded"]), (Some(1), &json!(true)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_is_added_shown_changed_suspended_and_removed_by_command() -> Result<()> {
    let open = Open::start("", &[])?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("acme.toml");
    std::fs::write(&file, text("acme"))?;
    let file = file.to_str().context("a path")?;
    let run = |arguments: &[&str], expected: &str| {
        let run = open.tenant(arguments)?;
        ensure!(run.code == Some(0) && run.out.contains(expected), "{arguments:?}: {}{}", run.out, run.err);
        Ok(())
    };
    run(&["list"], "no tenants")?;
    run(&["add", "acme", file, "--suspended"], "acme is added (change 1)")?;
    assert_eq!(open.say("acme").await?, -32_000);
    let twice = open.tenant(&["add", "acme", file])?;
    assert!(twice.code == Some(3) && twice.err.contains("`annex tenant change`"), "{}", twice.err);
    run(&["resume", "acme"], "acme is resumed (change 2)")?;
    assert_eq!(open.say("acme").await?, "acme");
    run(&["list"], "acme  change 2, loaded")?;
    run(&["show", "acme"], "  name = \"acme\"")?;
    std::fs::write(file, text("acme again"))?;
    run(&["change", "acme", file], "acme is changed (change 3)")?;
    assert_eq!(open.say("acme").await?, "acme again");
    let stale = open.tenant(&["remove", "acme", "--rev", "2"])?;
    assert_eq!(stale.code, Some(3));
    assert!(stale.err.contains("its last change is 3"), "{}", stale.err);
    std::fs::write(file, "[card.signing]\nkid = \"k\"\nkey_file = \"/etc/passwd\"")?;
    let hostile = open.tenant(&["change", "acme", file])?;
    assert!(
        hostile.err.contains("line 3, column 1: card.signing.key_file: unknown key")
            && hostile.err.contains("[tenants.secrets]"),
        "{}",
        hostile.err
    );
    run(&["suspend", "acme"], "acme is suspended (change 4)")?;
    run(&["remove", "acme"], "acme is removed (change 5)")?;
    assert_eq!(open.say("acme").await?, -32_602);
    let none = open.tenant(&["show", "acme"])?;
    assert!(none.code == Some(3) && none.err.contains("there is no tenant"), "{}", none.err);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tenants_of_a_config_follow_it_at_sighup() -> Result<()> {
    let open = Open::start("", &[])?;
    let config = &open.server.config.path;
    let before = std::fs::read_to_string(config)?;
    std::fs::write(config.with_file_name("acme.toml"), text("acme"))?;
    let reload = |text: &str| {
        std::fs::write(config, text)?;
        let process = i32::try_from(open.server.process.id())?;
        anyhow::Ok(kill_process(Pid::from_raw(process).context("a process")?, Signal::HUP)?)
    };
    reload(&format!("{before}\n[[tenant]]\nname = \"acme\"\nconfig = \"acme.toml\"\n"))?;
    open.until("acme", &json!("acme")).await?;
    std::fs::write(config.with_file_name("acme.toml"), text("acme again"))?;
    reload(&std::fs::read_to_string(config)?)?;
    open.until("acme", &json!("acme again")).await?;
    reload(&before)?;
    open.until("acme", &json!(-32_602)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_over_the_admin_api_is_logged_with_who_made_it_what_it_is_and_where_it_comes_from() -> Result<()> {
    let token = "a-token-of-a-bot-0123456789";
    let more = "[[admin.token]]\nname = \"deploy-bot\"\ntoken_env = \"TEST_BOT_TOKEN\"\n";
    let mut open = Open::start(more, &[("TEST_BOT_TOKEN", token)])?;
    let rev = open.add("acme").await?;
    let url = format!("{}/v1/tenants/acme", open.admin);
    let suspend = async |rev: u64| {
        let request = open.client.put(&url).bearer_auth(token).header("if-match", format!("\"{rev}\""));
        anyhow::Ok(request.body(json!({"state": "suspended"}).to_string()).send().await?.status().as_u16())
    };
    assert_eq!((suspend(rev).await?, suspend(rev).await?), (200, 412));
    let log = open.server.kill_for_log()?;
    let has = |texts: &[&str]| log.lines().any(|line| texts.iter().all(|text| line.contains(text)));
    assert!(
        has(&["tenant acme was added, and is active (change 1)", r#""by":"admin""#, r#""from":"127.0.0.1""#]),
        "{log}"
    );
    let suspended = "tenant acme is suspended now, with the text that it had (change 2)";
    assert!(has(&[suspended, r#""by":"deploy-bot""#, r#""from":"127.0.0.1""#]), "{log}");
    let refused =
        ["was refused", r#""by":"deploy-bot""#, "/v1/tenants/acme", r#""status":412"#, "its last change is 2"];
    assert!(has(&refused), "{log}");
    assert!(!log.contains(token) && !log.contains("Some("), "{log}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_are_refused_are_logged_too_and_those_of_strangers_once_in_a_while() -> Result<()> {
    let mut open = Open::start("", &[])?;
    let url = format!("{}/v1/reload", open.admin);
    for _ in 0..3 {
        assert_eq!(open.client.post(&url).bearer_auth("a-token-of-nobody").send().await?.status().as_u16(), 401);
    }
    assert_eq!(open.client.post(&url).header("host", "evil.example").send().await?.status().as_u16(), 403);
    // Reading is no change.
    assert_eq!(open.client.get(format!("{}/v1/extensions", open.admin)).send().await?.status().as_u16(), 401);
    std::fs::write(&open.server.config.path, "no config")?;
    assert_eq!(open.client.post(&url).bearer_auth(TOKEN).send().await?.status().as_u16(), 422);
    let log = open.server.kill_for_log()?;
    let refused: Vec<&str> = log.lines().filter(|line| line.contains("over the admin API was refused")).collect();
    let [of_stranger, of_admin] = &*refused else { anyhow::bail!("{log}") };
    for text in [r#""from":"127.0.0.1""#, r#""method":"POST""#, "/v1/reload", r#""status":401"#, r#""times":1"#] {
        assert!(of_stranger.contains(text), "{text}: {of_stranger}");
    }
    assert!(of_admin.contains(r#""by":"admin""#) && of_admin.contains(r#""status":422"#), "{of_admin}");
    assert!(log.contains("keys and tokens that were removed from it are still accepted"), "{log}");
    assert!(!log.contains("a-token-of-nobody"), "{log}");
    Ok(())
}

impl Open {
    /// The output of `annex` with these arguments, as JSON.
    fn json(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = annex(arguments.iter().chain(&["--json", "--admin", self.admin.as_str()]));
        let output = command.env("ANNEX_ADMIN_TOKEN", TOKEN).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Runs the command until its JSON satisfies `is_so`, and returns that JSON.
    fn json_until(&self, arguments: &[&str], is_so: impl Fn(&Value) -> bool) -> Result<Value> {
        let begin = Instant::now();
        loop {
            let answer = self.json(arguments)?;
            if is_so(&answer) {
                return Ok(answer);
            }
            ensure!(begin.elapsed() < Duration::from_secs(20), "{answer}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_see_all_replicas_and_what_tenants_use_of_them_together() -> Result<()> {
    let Some(scratch) = Scratch::create().await else { return Ok(()) };
    let [one, mut other] = [Open::among_others(&scratch)?, Open::among_others(&scratch)?];
    one.add("acme").await?;
    other.until("acme", &json!("acme")).await?;
    for server in [&one, &one, &other] {
        assert_eq!(server.say("acme").await?, "acme");
    }
    // Those of the other process are written within five seconds.
    let costliest = |answer: &Value| answer["tenants"][0]["requests"].as_u64() >= Some(4);
    let used = one.json_until(&["tenant", "top", "--hours", "1"], costliest)?;
    assert_eq!(used["tenants"][0]["tenant"], "acme", "{used}");
    let of_acme = one.json(&["tenant", "usage", "acme"])?;
    assert!(of_acme["last_day"]["requests"].as_u64() >= Some(4), "{of_acme}");
    assert_eq!(of_acme["processes"], 2, "{of_acme}");

    let replicas = |answer: &Value| answer["replicas"].as_array().cloned().unwrap_or_default();
    let ready = |answer: &Value| {
        let found = replicas(answer);
        found.len() == 2 && found.iter().all(|replica| replica["phase"] == "ready")
    };
    let list = one.json_until(&["replica", "list"], ready)?;
    let answering: Vec<Value> = replicas(&list).into_iter().filter(|replica| replica["answers"] == true).collect();
    let [answering] = answering.as_slice() else { anyhow::bail!("{list}") };
    assert_eq!(answering["address"], json!(one.server.url), "{list}");
    assert!(answering["version"].is_string() && answering["since"].is_string(), "{list}");
    assert!(answering["lease_left_ms"].as_i64() > Some(0), "{list}");
    other.server.process.kill()?;
    other.server.process.wait()?;
    let is_over = |answer: &Value| replicas(answer).iter().any(|replica| replica["lease_left_ms"].as_i64() <= Some(0));
    one.json_until(&["replica", "list"], is_over)?;
    drop((one, other));
    scratch.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_that_one_replica_is_given_is_loaded_by_the_others() -> Result<()> {
    let Some(scratch) = Scratch::create().await else { return Ok(()) };
    let [one, other] = [Open::among_others(&scratch)?, Open::among_others(&scratch)?];
    let pushed = one.json(&["component", "push", annex_components::TIMESTAMP])?;
    let digest = pushed["digest"].as_str().context("no digest")?;
    let listed = other.json(&["component", "list"])?;
    assert_eq!(listed["components"][0]["digest"], digest, "{listed}");
    let grants = "[extension.grants]\nclock = true";
    let config = format!("{}[[extension]]\ncomponent = {digest:?}\n{grants}\n", text("acme"));
    let (status, body) = one.put("acme", ("if-none-match", "*"), json!({"config": config})).await?;
    ensure!(status == 201, "{body}");
    other.until("acme", &json!("acme")).await?;
    let installed = other.json(&["extension", "list", "--tenant", "acme"])?;
    assert_eq!(installed["extensions"][0]["digest"], digest, "{installed}");
    drop((one, other));
    scratch.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hang_up_names_in_the_log_what_needs_a_restart_and_why() -> Result<()> {
    let mut open = Open::start("", &[])?;
    let config = open.server.config.path.clone();
    std::fs::write(config.with_file_name("acme.toml"), text("acme"))?;
    let before = std::fs::read_to_string(&config)?;
    let listen = "listen = \"127.0.0.1:0\"\n";
    let after = before.replacen(listen, "listen = \"127.0.0.1:1\"\nmax_streams = 5\n", 1);
    std::fs::write(&config, format!("{after}\n[[tenant]]\nname = \"acme\"\nconfig = \"acme.toml\"\n"))?;
    open.server.signal(Signal::HUP)?;
    open.until("acme", &json!("acme")).await?;
    // This reload begins when the one of the signal has ended and has written its lines.
    open.json(&["extension", "reload"])?;
    let log = open.server.kill_for_log()?;
    let named = "server.listen (the address is taken at the start)";
    let mut of_restart = log.lines().filter(|line| line.contains("count after a restart"));
    assert!(of_restart.any(|line| line.contains(named) && !line.contains("server.max_streams")), "{log}");
    assert!(log.lines().any(|line| line.contains(r#""changed_keys":"server.max_streams, tenant""#)), "{log}");
    Ok(())
}
