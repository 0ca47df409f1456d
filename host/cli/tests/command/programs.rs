//! MCP programs of an `annex serve` that receives SIGTERM while some programs are being started.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{ConfigFile, annex};

const LIMIT: Duration = Duration::from_secs(30);

/// The source of an MCP program. It connects to the test and sends its letter. If the letter is `h`, it answers
/// requests, and sends `l` when it has listed its tools and `e` at the end of its input. The process and its connection
/// stay for a minute after that.
const PROGRAM: &str = r#"
import json, socket, sys, time
port, letter = sys.argv[1:]
test = socket.create_connection(("127.0.0.1", int(port)))
test.send(letter.encode())
while letter == "h" and (line := sys.stdin.readline()):
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {"tools": []}
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "p", "version": "1"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
    if asked["method"] == "tools/list":
        test.send(b"l")
if letter == "h":
    test.send(b"e")
time.sleep(60)
"#;

/// A server that is still loading. Its own agent answers, and it has two tenants with an MCP program each: one program
/// answers, the other hangs at its start.
struct LoadingServer {
    process: Child,
    answers: TcpStream,
    hangs: TcpStream,
    _config: ConfigFile,
}

impl LoadingServer {
    /// Starts the server. Waits until one program has listed its tools and the other one has started.
    fn start() -> Result<Self> {
        let agent = "[agent]\nkind = \"script\"\nname = \"a\"\n[[agent.rule]]\nsteps = [{ status = { state = \"completed\" } }]\n";
        let tenants =
            ["answers", "hangs"].map(|name| format!("[[tenant]]\nname = {name:?}\nconfig = \"{name}.toml\"\n"));
        let card = "[card]\nname = \"n\"\ndescription = \"d\"\n";
        let config = format!("[server]\nlisten = \"127.0.0.1:0\"\n{card}{agent}{}", tenants.concat());
        let config = ConfigFile::new(&config)?;
        let folder = config.path.parent().context("no folder")?;
        fs::write(folder.join("program.py"), PROGRAM)?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        for (name, letter) in [("answers", "h"), ("hangs", "x")] {
            let agent = "[agent]\nkind = \"template\"\nname = \"t\"\ninstruction = \"i\"\n[agent.model.scripted]\nfallback = \"f\"\n";
            let program = format!(
                "[[agent.mcp]]\nname = \"m\"\ncommand = \"python3\"\nargs = [\"program.py\", \"{port}\", {letter:?}]\n"
            );
            fs::write(folder.join(format!("{name}.toml")), format!("{card}{agent}{program}"))?;
        }
        let mut command = annex([OsStr::new("serve"), config.path.as_os_str()]);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut programs = [accepted(&listener)?, accepted(&listener)?];
        programs.sort_by_key(|(letter, _)| *letter);
        let [(b'h', mut answers), (b'x', hangs)] = programs else { anyhow::bail!("other programs") };
        ensure!(byte(&mut answers)? == Some(b'l'), "its tools are not listed");
        Ok(Self { process, answers, hangs, _config: config })
    }

    fn terminate(&self) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.process), Signal::TERM)?)
    }

    /// Waits until the server and then both programs have ended. Returns the exit code of the server.
    fn ended(mut self) -> Result<Option<i32>> {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.process.try_wait()? {
                break status;
            }
            ensure!(begin.elapsed() < LIMIT, "the server does not end");
            thread::sleep(Duration::from_millis(20));
        };
        for (program, name) in [(&mut self.answers, "that answers"), (&mut self.hangs, "that hangs")] {
            while byte(program).with_context(|| format!("the program {name} goes on"))?.is_some() {}
        }
        Ok(status.code())
    }
}

impl Drop for LoadingServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Accepts the connection of a program. Returns the program's letter and the connection.
fn accepted(listener: &TcpListener) -> Result<(u8, TcpStream)> {
    let (mut program, _) = listener.accept()?;
    program.set_read_timeout(Some(LIMIT))?;
    Ok((byte(&mut program)?.context("the program has ended")?, program))
}

/// The next byte from the program; `None` once the program has ended.
fn byte(program: &mut TcpStream) -> Result<Option<u8>> {
    let mut said = [0];
    match program.read(&mut said) {
        Ok(0) => Ok(None),
        Ok(_) => {
            let [byte] = said;
            Ok(Some(byte))
        }
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[test]
fn programs_of_tenants_that_are_being_loaded_end_with_the_server() -> Result<()> {
    let loading = LoadingServer::start()?;
    loading.terminate()?;
    assert_eq!(loading.ended()?, Some(0));
    Ok(())
}

#[test]
fn a_second_signal_ends_programs_at_once() -> Result<()> {
    let mut loading = LoadingServer::start()?;
    loading.terminate()?;
    // It has been told to end, and has three seconds for that.
    assert_eq!(byte(&mut loading.answers)?, Some(b'e'));
    loading.terminate()?;
    assert_eq!(loading.ended()?, Some(130));
    Ok(())
}
