//! `annex dev`

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use annex_components::{HELLO_EXTENSION, TEST_EXTENSION, TIMESTAMP};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::Project;
use crate::support::{annex, run};

/// The timeout for a build and a load, which is long because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);
const HELLO_URI: &str = "https://annex.example/hello/v1";
const TEST_URI: &str = "https://annex.example/test/v1";

/// A project whose build copies the component that the file `src/which` names.
fn project(component: &str) -> Result<Project> {
    let project = Project::with(
        "command = [\"sh\", \"-c\", 'cp \"$(cat src/which)\" out.wasm']\noutput = \"out.wasm\"\nwatch = [\"src\"]\n",
    )?;
    project.write("src/which", component)?;
    Ok(project)
}

/// A running `annex dev`, which is killed at the end of the test.
struct Dev {
    process: Child,
    out: Lines,
    err: Lines,
}

/// The lines that a process has written. A thread reads them, so that the process never waits.
struct Lines(Receiver<String>);

impl Lines {
    fn of(from: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = channel();
        thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                // Once the test is over nobody reads them.
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self(receiver)
    }

    /// Waits for the next line that contains `expected`, and returns it.
    fn until(&self, expected: &str) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = String::new();
        loop {
            let line = self.0.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            let line = line.with_context(|| format!("{expected:?} never came, but this: {seen}"))?;
            if line.contains(expected) {
                return Ok(line);
            }
            seen = format!("{seen}\n{line}");
        }
    }
}

impl Dev {
    fn start(project: &Project) -> Result<Self> {
        let mut command = annex(["dev", "--listen", "127.0.0.1:0"]);
        command.current_dir(project.folder.path()).stdin(Stdio::null());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let out = Lines::of(process.stdout.take().context("no standard output")?);
        let err = Lines::of(process.stderr.take().context("no standard error")?);
        Ok(Self { process, out, err })
    }

    /// Waits until the extension `name` is installed, and returns the URL of the server.
    fn serves(&self, name: &str) -> Result<String> {
        self.out.until(&format!("{name} 0.1.0 is in force"))?;
        let line = self.out.until("annex send ")?;
        Ok(line.split_whitespace().find(|word| word.starts_with("http://")).context("no URL")?.to_owned())
    }

    /// Interrupts the process as Ctrl-C does, and returns its exit code.
    fn interrupt(&mut self) -> Result<Option<i32>> {
        kill_process(Pid::from_child(&self.process), Signal::INT)?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status.code());
            }
            thread::sleep(Duration::from_millis(10));
        }
        bail!("it still runs")
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends a message that requests `extension`, and returns the answer's JSON.
fn sent(url: &str, extension: &str) -> Result<String> {
    let sent = run(["send", url, "Hi", "--extension", extension, "--json"])?;
    assert_eq!(sent.code, Some(0), "{}", sent.err);
    Ok(sent.out)
}

#[test]
fn a_change_replaces_the_version_that_is_served() -> Result<()> {
    let project = project(HELLO_EXTENSION)?;
    let mut dev = Dev::start(&project)?;
    let url = dev.serves("hello-extension")?;
    assert!(sent(&url, HELLO_URI)?.contains(r#""hello":"Hello, world!""#));

    project.write("src/which", TEST_EXTENSION)?;
    assert_eq!(dev.serves("test")?, url);
    assert!(sent(&url, TEST_URI)?.contains(r#""test/response":"#));

    // The same again is a change of the file, and none of the component.
    project.write("src/which", &format!("{TEST_EXTENSION}\n"))?;
    dev.err.until("the component is the same as before")?;
    assert_eq!(dev.interrupt()?, Some(0));
    Ok(())
}

#[test]
fn a_mistake_leaves_the_last_good_version_in_force() -> Result<()> {
    let project = project(HELLO_EXTENSION)?;
    let dev = Dev::start(&project)?;
    let url = dev.serves("hello-extension")?;

    project.write("src/which", "nothing-here")?;
    dev.err.until("failed (exit status: 1)")?;
    dev.err.until("The last good version stays in force.")?;
    assert!(sent(&url, HELLO_URI)?.contains(r#""hello":"Hello, world!""#));

    // It builds, and the server refuses it.
    project.write("src/which", TIMESTAMP)?;
    dev.err.until("error: it is not put in force")?;
    dev.err.until("The last good version stays in force.")?;
    assert!(sent(&url, HELLO_URI)?.contains(r#""hello":"Hello, world!""#));

    let manifest = project.read("annex-extension.toml")?;
    project.write("annex-extension.toml", &manifest.replace("watch", "wacth"))?;
    dev.err.until("unknown field `wacth`")?;
    dev.err.until("The last good version stays in force.")?;

    // The grant that was missing.
    project.write("annex-extension.toml", &format!("{manifest}\n[settings.grants]\nclock = true\n"))?;
    assert_eq!(dev.serves("timestamp")?, url);
    Ok(())
}

#[test]
fn a_first_build_that_fails_is_mended_without_a_restart() -> Result<()> {
    let project = project("nothing-here")?;
    let dev = Dev::start(&project)?;
    dev.err.until("Nothing is served yet; waiting for a change.")?;
    project.write("src/which", HELLO_EXTENSION)?;
    let url = dev.serves("hello-extension")?;
    assert!(sent(&url, HELLO_URI)?.contains(r#""hello":"Hello, world!""#));
    Ok(())
}

#[test]
fn it_ends_while_it_builds_and_while_it_waits() -> Result<()> {
    let slow = Project::of_script("echo it builds; exec sleep 600")?;
    let mut building = Dev::start(&slow)?;
    // The first of these lines is the command itself.
    building.err.until("it builds")?;
    building.err.until("it builds")?;
    // The tool may speak before the command listens to signals, which then end it by themselves.
    assert!(matches!(building.interrupt()?, Some(0) | None));

    let broken = project("nothing-here")?;
    let mut waiting = Dev::start(&broken)?;
    waiting.err.until("waiting for a change")?;
    assert_eq!(waiting.interrupt()?, Some(0));
    Ok(())
}
