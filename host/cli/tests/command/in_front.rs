//! `annex proxy`: one command adds extensions to an existing agent.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::foreign::{JSON, answer};
use crate::support::{Run, STATE, STATE_URI, Server, annex, run, template_agent};

const TIMESTAMP_URI: &str = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1";

/// The answer that the agent gives to every message.
const ANSWER: &str = "nothing matched\n";

/// The agent that the proxy stands in front of.
fn agent() -> Result<Server> {
    Server::start(&template_agent("Be short.", ""))
}

/// A running `annex proxy`, which is killed at the end of the test.
struct Proxy {
    process: Child,
    /// The config that the command printed.
    config: String,
    /// The text that the command printed after the config.
    told: String,
    url: String,
}

impl Proxy {
    fn start<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Result<Self> {
        let mut command = annex(arguments);
        command.stderr(Stdio::null());
        Self::start_by(command)
    }

    fn start_by(mut command: Command) -> Result<Self> {
        let mut process = command.stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(process.stdout.take().context("no standard output")?).lines();
        let (mut config, mut told, mut url) = (String::new(), String::new(), None);
        // What is told ends with the command to try, which is indented.
        while let Some(line) = lines.next().transpose()? {
            if let Some(card) = line.strip_prefix("Agent card  ") {
                url = card.strip_suffix("/.well-known/agent-card.json").map(str::to_owned);
            }
            let text = if url.is_some() { &mut told } else { &mut config };
            text.push_str(&line);
            text.push('\n');
            if told.contains("Try it") && line.starts_with("  ") && !line.ends_with('\\') {
                break;
            }
        }
        // It goes on although nobody reads what it prints.
        Ok(Self { process, config, told, url: url.context("it has not started")? })
    }

    /// Runs the command that is printed under "Try it", as a person who copies it would.
    fn try_it(&self) -> Result<Run> {
        let (_, command) = self.told.split_once("Try it from another terminal:\n").context("nothing to try")?;
        tried(command, &[])
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a command line in a shell.
pub(crate) fn tried(command: &str, environment: &[(&str, &str)]) -> Result<Run> {
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", command]).env("NO_PROXY", "127.0.0.1").envs(environment.iter().copied());
    let output = shell.output()?;
    let text = |bytes| String::from_utf8(bytes).context("UTF-8");
    Ok(Run { code: output.status.code(), out: text(output.stdout)?, err: text(output.stderr)? })
}

#[test]
fn one_command_puts_an_extension_in_front_of_an_agent() -> Result<()> {
    let agent = agent()?;
    let proxy = Proxy::start(["proxy", &agent.url, "--with", "timestamp", "--listen", "127.0.0.1:0"])?;
    let sent = run(["send", &proxy.url, "hello", "--extension", TIMESTAMP_URI, "--json"])?;
    assert_eq!(sent.code, Some(0), "{}", sent.err);
    let task: Value = serde_json::from_str(&sent.out)?;
    assert!(task.to_string().contains(ANSWER.trim()), "{task}");
    assert!(sent.out.contains("timestamp/v1/"), "the extension has added the time: {}", sent.out);
    let tried = proxy.try_it()?;
    assert_eq!((tried.code, tried.out.as_str()), (Some(0), ANSWER), "{} {}", proxy.told, tried.err);
    Ok(())
}

#[test]
fn the_config_that_it_prints_is_one_that_serve_takes() -> Result<()> {
    let agent = agent()?;
    let settings = r#"state-injection={"required":true,"limits":{"cpu_ms":40}}"#;
    let proxy =
        Proxy::start(["proxy", &agent.url, "--with", settings, "--with", "timestamp", "--listen", "127.0.0.1:0"])?;
    let served = Server::start(&proxy.config)?;
    for url in [&proxy.url, &served.url] {
        let card: Value = serde_json::from_str(&run(["card", url, "--json"])?.out)?;
        let extensions = card["capabilities"]["extensions"].as_array().context("extensions")?;
        let uris: Vec<_> = extensions.iter().filter_map(|extension| extension["uri"].as_str()).collect();
        assert_eq!(uris, [STATE_URI, TIMESTAMP_URI], "{card}");
        assert_eq!(extensions[0]["required"], true);
    }
    assert!(proxy.config.contains("cpu_ms = 40") && proxy.config.contains("clock = true"), "{}", proxy.config);
    Ok(())
}

#[test]
fn an_extension_that_the_agent_behind_requires_is_a_warning_at_the_start() -> Result<()> {
    let agent = agent()?;
    let listen = ["--listen", "127.0.0.1:0"];
    let required = r#"state-injection={"required":true}"#;
    let behind =
        Proxy::start(["proxy", &agent.url, "--with", required, "--with", "timestamp"].into_iter().chain(listen))?;
    let log = tempfile::NamedTempFile::new()?;
    let mut command =
        annex(["proxy", &behind.url, "--with", "state-injection", "--with", "timestamp"].into_iter().chain(listen));
    command.stderr(log.reopen()?);
    let _front = Proxy::start_by(command)?;
    let told = fs::read_to_string(log.path())?;
    let warned: Vec<&str> =
        told.lines().filter(|line| line.contains("requires an extension that is installed")).collect();
    assert!(matches!(warned.as_slice(), [line] if line.contains(STATE_URI)), "{told}");
    Ok(())
}

#[test]
fn a_config_is_kept_once_and_not_written_over() -> Result<()> {
    let agent = agent()?;
    let folder = tempfile::tempdir()?;
    fs::copy(annex_components::HELLO_EXTENSION, folder.path().join("mine.wasm"))?;
    let file = folder.path().join("annex.toml");
    let start = || {
        let component = folder.path().join("mine.wasm");
        let options = [OsStr::new("--listen"), OsStr::new("127.0.0.1:0"), OsStr::new("--write"), file.as_os_str()];
        Proxy::start(
            [OsStr::new("proxy"), OsStr::new(&agent.url), OsStr::new("--with"), component.as_os_str()]
                .into_iter()
                .chain(options),
        )
    };
    let kept = start()?.config.clone();
    assert_eq!(fs::read_to_string(&file)?.trim(), kept.trim());
    assert_eq!(start()?.config, kept, "the same options may be given again");
    let served = annex([OsStr::new("serve"), file.as_os_str()]).stdout(Stdio::piped()).spawn()?;
    let mut served = ChildGuard(served);
    let mut line = String::new();
    BufReader::new(served.0.stdout.take().context("no standard output")?).read_line(&mut line)?;
    assert!(line.starts_with("Agent card"), "annex serve takes the file: {line}");

    let other = run([OsStr::new("proxy"), OsStr::new(&agent.url), OsStr::new("--write"), file.as_os_str()])?;
    ensure!(other.code != Some(0), "{}", other.out);
    assert!(other.err.contains("annex.toml is there") && other.err.contains("name another file"), "{}", other.err);
    assert_eq!(fs::read_to_string(&file)?.trim(), kept.trim());
    Ok(())
}

/// Kills the process at the end of the test.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn paths_of_the_command_line_hold_for_a_config_that_is_kept_elsewhere() -> Result<()> {
    let agent = agent()?;
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("kept"))?;
    fs::copy(annex_components::HELLO_EXTENSION, at("mine.wasm"))?;
    fs::write(at("key"), "a secret")?;
    fs::write(at("mine.toml"), "grants.secrets = { KEY = { file = \"key\" } }\n")?;
    let with = ["--with", "./mine.wasm=@mine.toml", "--listen", "127.0.0.1:0", "--write", "kept/annex.toml"];
    let mut command = annex(["proxy", &agent.url].into_iter().chain(with));
    command.current_dir(folder.path());
    command.stderr(Stdio::null());
    let proxy = Proxy::start_by(command)?;
    for name in ["mine.wasm", "key"] {
        // The folder of a process is shown without links.
        let named = [at(name), at(name).canonicalize()?].map(|path| proxy.config.contains(&format!("{path:?}")));
        assert!(named.contains(&true), "{name}: {}", proxy.config);
    }
    assert_eq!(fs::read_to_string(at("kept/annex.toml"))?.trim(), proxy.config.trim());
    Ok(())
}

/// Runs `annex proxy` with these arguments, which must fail. Returns its standard error.
fn refusal(arguments: &[&str]) -> Result<String> {
    let refused = run([&["proxy"][..], arguments].concat())?;
    ensure!(refused.code != Some(0), "{}", refused.out);
    Ok(refused.err)
}

#[test]
fn what_cannot_be_served_is_refused_with_what_to_do() -> Result<()> {
    let url = "http://127.0.0.1:9";
    let cases: [(&[&str], &[&str]); 8] = [
        (&["127.0.0.1:8000"], &["is not the URL of an agent", "http://127.0.0.1:9999"]),
        (
            &[url, "--with", "timestmp"],
            &["--with timestmp", "ships with Annex; did you mean `timestamp`?", "`state-injection`"],
        ),
        (&[url, "--with", "./nowhere.wasm"], &["./nowhere.wasm", "No such file"]),
        (&[url, "--with", "timestamp=required"], &["must be a JSON object", "@FILE"]),
        (
            &[url, "--with", r#"timestamp={"requird":true}"#],
            &["--with timestamp", "requird: unknown key; did you mean `required`?"],
        ),
        (
            &[url, "--with", r#"strict-parts={"parameters":{"no":1}}"#],
            &["--with strict-parts", "annex inspect strict-parts"],
        ),
        (&[url, "--listen", "nowhere"], &["--listen", "nowhere"]),
        (&[url, "--listen", "0.0.0.0:0"], &["server.listen", "no loopback address", "[auth]"]),
    ];
    for (arguments, expected) in cases {
        let refusal = refusal(arguments)?;
        for part in expected {
            assert!(refusal.contains(part), "{arguments:?} lacks {part}: {refusal}");
        }
    }
    Ok(())
}

#[test]
fn a_component_of_somebody_else_gets_no_grant_that_is_not_named() -> Result<()> {
    let component = annex_components::TIMESTAMP;
    let refusal = refusal(&["http://127.0.0.1:9", "--with", component])?;
    let expected = format!(r#"--with '{component}={{"grants":{{"clock":true}}}}'"#);
    assert!(refusal.contains("only you can give") && refusal.contains(&expected), "{refusal}");
    // With what the refusal says it is served.
    let agent = agent()?;
    let with = format!(r#"{component}={{"grants":{{"clock":true}}}}"#);
    let proxy = Proxy::start(["proxy", &agent.url, "--with", &with, "--listen", "127.0.0.1:0"])?;
    assert!(proxy.config.contains("clock = true"), "{}", proxy.config);
    // A user of the program has no repository.
    assert!(proxy.config.contains("`annex init FILE`") && !proxy.config.contains("docs/"), "{}", proxy.config);
    Ok(())
}

#[test]
fn an_address_that_is_taken_and_a_card_that_leads_elsewhere_are_refused_with_the_option() -> Result<()> {
    let agent = agent()?;
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let refused = refusal(&[&agent.url, "--listen", &taken.local_addr()?.to_string()])?;
    let lines: Vec<&str> = refused.lines().skip_while(|line| !line.starts_with("error: ")).collect();
    let [error, hint] = lines.as_slice() else { bail!("{refused}") };
    assert!(error.starts_with("error: cannot listen on 127.0.0.1:"), "{refused}");
    assert!(hint.starts_with("  take another port, as with --listen 127.0.0.1:0"), "{refused}");

    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    thread::spawn(move || {
        let interface = r#"{"url":"http://localhost:8123/a2a","protocolBinding":"JSONRPC","protocolVersion":"1.0"}"#;
        let card = format!(
            r#"{{"name":"Foreign","description":"d","version":"1","capabilities":{{}},"skills":[],"supportedInterfaces":[{interface}]}}"#
        );
        while let Ok((connection, _)) = listener.accept() {
            let _ = answer(connection, JSON, &card);
        }
    });
    let refused = refusal(&[&url, "--listen", "127.0.0.1:0"])?;
    assert!(refused.contains("--allow-host localhost:8123"), "{refused}");
    let proxy = Proxy::start(["proxy", &url, "--listen", "127.0.0.1:0", "--allow-host", "localhost:8123"])?;
    assert!(proxy.config.contains("allow_hosts = [\"localhost:8123\"]"), "{}", proxy.config);
    Ok(())
}

#[test]
fn state_reaches_the_extension_in_front() -> Result<()> {
    let agent = agent()?;
    let proxy = Proxy::start(["proxy", &agent.url, "--with", "state-injection", "--listen", "127.0.0.1:0"])?;
    let sent = run(["send", &proxy.url, "hello", "--extension", STATE_URI, "--state", STATE])?;
    assert_eq!((sent.code, sent.out.as_str()), (Some(0), ANSWER), "{}", sent.err);
    assert!(sent.err.contains(&format!("active   {STATE_URI}")) && sent.err.contains("Ada"), "{}", sent.err);
    Ok(())
}
