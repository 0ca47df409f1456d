//! The commands of this extension.

use std::collections::HashMap;
use std::net::{TcpListener, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs, thread};

use annex_sdk::bindings::capabilities::wasi::config::store;
use annex_sdk::http::{Method, Request};
use annex_sdk::keyvalue::Keys;
use annex_sdk::{secrets, steps, task, tasks};
use serde::Deserialize;

/// A command with its arguments.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Command {
    /// Writes lines to standard output.
    Print(Vec<String>),
    /// Writes text to standard error, unchanged.
    Complain(String),
    /// Writes this number of bytes to standard output, in lines of 100.
    Flood(usize),
    Environment,
    Arguments,
    Input,
    ReadFile(String),
    WriteFile(String),
    Connect(String),
    Listen(String),
    Bind(String),
    Resolve(String),
    Time,
    /// Sleeps for this number of milliseconds.
    Sleep(u64),
    /// Reads this number of random bytes.
    Random(u64),
    Hash,
    Http(HttpCommand),
    /// Sends a request with this number of header fields.
    Fields(usize),
    /// Opens this number of the host's handles at once.
    Handles(usize),
    Get(String),
    Set(String, String),
    /// Sets a key to a value of this number of bytes.
    SetBytes(String, usize),
    Delete(String),
    List,
    Increment(String, u64),
    /// Runs a command for keys in the bucket of this name.
    In(String, Box<Command>),
    Secret(String),
    /// Lists the configuration.
    Config,
    Task,
    /// Calls ListTasks with this request.
    Tasks(String),
    Resume(String),
    Steps,
}

#[derive(Debug, Deserialize)]
pub(crate) struct HttpCommand {
    method: String,
    url: String,
    #[serde(default)]
    fields: Vec<(String, String)>,
    #[serde(default)]
    body: String,
    /// The length of a generated body, which is sent instead of `body`.
    #[serde(default)]
    body_bytes: usize,
}

impl Command {
    pub(crate) fn read(json: &str) -> Vec<Self> {
        #[expect(clippy::panic, reason = "the test is wrong")]
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{json} is no list of commands: {error}"))
    }

    /// Runs the command and returns the result as text. Errors begin with `error: `.
    pub(crate) fn run(&self) -> String {
        self.attempt().unwrap_or_else(|error| format!("error: {error}"))
    }

    #[expect(clippy::print_stdout, clippy::print_stderr, reason = "what the host makes of it is tested")]
    fn attempt(&self) -> Result<String, String> {
        match self {
            Self::Print(lines) => lines.iter().for_each(|line| println!("{line}")),
            Self::Complain(text) => eprint!("{text}"),
            // A line is 99 characters and its end.
            Self::Flood(bytes) => (0..bytes / 100).for_each(|_| println!("{}", "x".repeat(99))),
            Self::Environment => return Ok(format!("{:?}", env::vars().collect::<Vec<_>>())),
            Self::Arguments => return Ok(format!("{:?}", env::args().collect::<Vec<_>>())),
            Self::Input => return std::io::read_to_string(std::io::stdin()).map_err(text),
            Self::ReadFile(path) => return fs::read_to_string(path).map_err(text),
            Self::WriteFile(path) => fs::write(path, "written").map_err(text)?,
            // An open socket is dropped at once: the test looks at whether the host allowed it.
            Self::Connect(address) => drop(TcpStream::connect(address).map_err(text)?),
            Self::Listen(address) => drop(TcpListener::bind(address).map_err(text)?),
            Self::Bind(address) => drop(UdpSocket::bind(address).map_err(text)?),
            Self::Resolve(name) => {
                return Ok(format!("{:?}", (name.as_str(), 80).to_socket_addrs().map_err(text)?.collect::<Vec<_>>()));
            }
            Self::Time => return Ok(format!("{:?}", SystemTime::now().duration_since(SystemTime::UNIX_EPOCH))),
            Self::Sleep(milliseconds) => return Ok(sleep(*milliseconds)),
            Self::Random(bytes) => return Ok(random(*bytes)),
            // The hasher of a HashMap is keyed by the host's random numbers.
            Self::Hash => return Ok(format!("{:?}", HashMap::from([(1, 2)]))),
            Self::Http(request) => return request.send(),
            Self::Fields(count) => return fields(*count),
            Self::Handles(count) => return Ok(handles(*count)),
            _ => return self.attempt_in(""),
        }
        Ok("ok".to_owned())
    }

    fn attempt_in(&self, bucket: &str) -> Result<String, String> {
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
        match self {
            Self::Get(key) => {
                let value = open(bucket)?.get(key)?;
                return Ok(or_none(value.map(|value| String::from_utf8_lossy(&value).into_owned())));
            }
            Self::Set(key, value) => open(bucket)?.set(key, value.as_bytes())?,
            Self::SetBytes(key, bytes) => open(bucket)?.set(key, &vec![0; *bytes])?,
            Self::Delete(key) => open(bucket)?.delete(key)?,
            Self::List => return Ok(open(bucket)?.list()?.join(" ")),
            Self::Increment(key, delta) => return Ok(open(bucket)?.increment(key, *delta)?.to_string()),
            Self::In(bucket, command) => return command.attempt_in(bucket),
            Self::Tasks(request) => return tasks::list(request),
            Self::Resume(task) => tasks::resume(task)?,
            Self::Steps => return Ok(steps::recorded()),
            Self::Config => return Ok(format!("{:?}", store::get_all())),
            Self::Secret(name) => return Ok(or_none(secrets::get(name)?)),
            _ => return Ok(or_none(task::current())),
        }
        Ok("ok".to_owned())
    }
}

fn open(bucket: &str) -> Result<Keys, String> {
    match bucket {
        "task" => Keys::of_task(),
        "context" => Keys::of_context(),
        _ => Keys::open(),
    }
}

impl HttpCommand {
    fn send(&self) -> Result<String, String> {
        let method = match self.method.as_str() {
            "GET" => Method::Get,
            "POST" => Method::Post,
            other => Method::Other(other.to_owned()),
        };
        let mut request = Request::new(method, self.url.as_str()).body(self.body.as_str());
        if self.body_bytes > 0 {
            request = request.body(vec![b'x'; self.body_bytes]);
        }
        for (name, value) in &self.fields {
            request = request.field(name, value.as_str());
        }
        let response = request.send().map_err(text)?;
        Ok(format!("{} {}", response.status, String::from_utf8_lossy(&response.body)))
    }
}

fn fields(count: usize) -> Result<String, String> {
    let mut request = Request::get("https://fields.example/");
    for number in 0..count {
        request = request.field(&format!("x-{number}"), "");
    }
    request.send().map(|response| response.status.to_string()).map_err(text)
}

fn handles(count: usize) -> String {
    // All are held at the same time: a handle that is dropped makes room for the next.
    let handles: Vec<_> = (0..count).map(|_| wasip2::clocks::monotonic_clock::subscribe_duration(0)).collect();
    handles.len().to_string()
}

fn sleep(milliseconds: u64) -> String {
    let started = Instant::now();
    let duration = Duration::from_millis(milliseconds);
    thread::sleep(duration);
    // The exact time differs between runs, so only its lower bound is reported.
    format!("slept {}", started.elapsed() >= duration)
}

fn random(bytes: u64) -> String {
    wasip2::random::random::get_random_bytes(bytes).len().to_string()
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
