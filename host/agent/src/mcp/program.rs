//! A program that speaks MCP on standard input and output, and the processes that the program starts. A process that
//! leaves the program's process group, as with `setsid`, is not ended.
//!
//! All programs end before this process does ([`end_programs`]), also programs that are still starting.

use std::io::{self, Cursor};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

use annex_protocol::portable;
use futures::stream;
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::io::StreamReader;
use tokio_util::sync::CancellationToken;

use super::bounded::aside_if_long;

/// The time that a program has to end after its input is closed, and again after SIGTERM.
const END_PATIENCE: Duration = Duration::from_secs(3);
/// The time that all programs together have to end: twice [`END_PATIENCE`], and one second more.
const ALL_END_PATIENCE: Duration = Duration::from_secs(7);
/// The longest line that is read at once, in bytes. The library accepts lines of 16 MiB and skips longer ones.
const MAX_LINE: u64 = (16 << 20) + 1;

/// The process groups of all running programs.
static GROUPS: LazyLock<watch::Sender<Vec<Pid>>> = LazyLock::new(|| watch::Sender::new(Vec::new()));
/// Fires at the end of this process.
static ENDING: LazyLock<CancellationToken> = LazyLock::new(CancellationToken::new);

/// Ends all MCP programs of this process and waits for their end. Each program's input is closed, and a program that
/// has not ended after a few seconds is killed. No program can start afterwards: call this at the end of the process.
pub async fn end_programs() {
    ENDING.cancel();
    let mut groups = GROUPS.subscribe();
    let ended = timeout(ALL_END_PATIENCE, async { groups.wait_for(Vec::is_empty).await.is_ok() });
    if ended.await.is_err() {
        tracing::warn!("programs that speak MCP have not ended in time, and are killed");
        kill_programs();
    }
}

/// Kills all MCP programs of this process at once, with all processes in their process groups.
pub fn kill_programs() {
    ENDING.cancel();
    for group in GROUPS.borrow().iter() {
        kill(*group, Signal::KILL);
    }
}

/// Returns a new token that fires at the end of this process. If the caller cancels the token, no other token is
/// affected.
pub(super) fn stop_token() -> CancellationToken {
    ENDING.child_token()
}

/// A running program. Dropping it kills the program.
pub(super) struct Program {
    transport: AsyncRwTransport<RoleClient, Output, ChildStdin>,
    /// The process group of the program. This field is declared before `child`, because dropping `child` may reap the
    /// group's leader.
    group: Group,
    child: Child,
}

type Output = Pin<Box<dyn AsyncRead + Send>>;

impl Program {
    /// Starts the program in a separate process group, so that Ctrl-C does not reach the program. At the end of this process,
    /// the program is closed as [`end_programs`] describes.
    pub(super) fn spawn(mut command: Command) -> io::Result<(Self, Option<ChildStderr>)> {
        if ENDING.is_cancelled() {
            return Err(about_to_end());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn()?;
        let group = Group::of(&child);
        // `end_programs` may have started in between, and has not seen this program.
        if ENDING.is_cancelled() {
            return Err(about_to_end());
        }
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the program has no standard input or output"));
        };
        let stderr = child.stderr.take();
        let transport = AsyncRwTransport::new(repaired_lines(output), input);
        Ok((Self { transport, group, child }, stderr))
    }
}

fn about_to_end() -> io::Error {
    io::Error::other("the server is about to end")
}

impl Transport<RoleClient> for Program {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.transport.send(item)
    }

    /// Returns the next message, or `None` at the end of the program's output. Also returns `None` at the end of this
    /// process, so that a running start fails.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        ENDING.run_until_cancelled(self.transport.receive()).await.flatten()
    }

    /// Ends the program as MCP prescribes (2025-06-18, "Lifecycle"): closes its input, then sends SIGTERM, then
    /// SIGKILL.
    async fn close(&mut self) -> Result<(), Self::Error> {
        let by_itself = async {
            // Waits until a message is sent completely, which may never happen if the program does not read.
            self.transport.close().await?;
            self.group.leader_ended().await
        };
        if timeout(END_PATIENCE, by_itself).await.is_err() {
            self.group.signal(Signal::TERM);
            // A program that does not end by itself is killed below.
            let _ = timeout(END_PATIENCE, self.group.leader_ended()).await;
        }
        // Processes that the program has started may outlive it.
        self.group.signal(Signal::KILL);
        self.group.leader_ended().await?;
        // Before the leader is reaped, because its process id may belong to another group afterwards.
        self.group.leave();
        self.child.wait().await?;
        Ok(())
    }
}

/// The process group of a program. Dropping this value kills the group's processes. Call [`Group::leave`] or drop this
/// value before the group's leader is reaped.
struct Group {
    id: Option<Pid>,
}

impl Group {
    fn of(leader: &Child) -> Self {
        let id = leader.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        GROUPS.send_modify(|groups| groups.extend(id));
        Self { id }
    }

    fn signal(&self, signal: Signal) {
        if let Some(id) = self.id {
            kill(id, signal);
        }
    }

    /// Waits until the leader has ended, without reaping the leader. The leader's process id stays reserved until the
    /// leader is reaped.
    async fn leader_ended(&self) -> io::Result<()> {
        let Some(leader) = self.id else { return Ok(()) };
        // Before the first look, so that no end is missed.
        let mut ends = signal(SignalKind::child())?;
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // An error means that the process does not exist any more.
        while matches!(waitid(WaitId::Pid(leader), look), Ok(None)) && ends.recv().await.is_some() {}
        Ok(())
    }

    /// Removes the group from the list of running programs.
    fn leave(&mut self) {
        if let Some(id) = self.id.take() {
            GROUPS.send_modify(|groups| groups.retain(|group| *group != id));
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        self.leave();
    }
}

fn kill(group: Pid, signal: Signal) {
    // Fails if the group has ended, which is fine.
    let _ = kill_process_group(group, signal);
}

/// Reads the lines that a program prints. Each line is repaired, so that every JSON parser can read its values.
fn repaired_lines(output: ChildStdout) -> Output {
    let lines = stream::try_unfold(BufReader::new(output), |mut output| async move {
        let mut line = Vec::new();
        (&mut output).take(MAX_LINE).read_until(b'\n', &mut line).await?;
        let line = aside_if_long(line, repaired_line).await?;
        let next = (!line.is_empty()).then(|| (Cursor::new(line), output));
        Ok::<_, io::Error>(next)
    });
    Box::pin(StreamReader::new(lines))
}

fn repaired_line(line: Vec<u8>) -> Vec<u8> {
    // Without the line break, which must not become a part of a string.
    let text = line.strip_suffix(b"\n").and_then(|text| std::str::from_utf8(text).ok());
    match text.and_then(portable::repaired) {
        Some(repaired) => [repaired.as_bytes(), b"\n"].concat(),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a program that ends while a process in its group still holds its standard error.
    async fn ended_before_its_group() -> (Program, ChildStderr) {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 &"]);
        let (program, stderr) = Program::spawn(command).unwrap();
        program.group.leader_ended().await.unwrap();
        (program, stderr.unwrap())
    }

    /// Waits until no process holds the standard error any more.
    async fn closed(mut stderr: ChildStderr) {
        let mut said = Vec::new();
        timeout(Duration::from_secs(20), stderr.read_to_end(&mut said)).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_program_that_has_ended_is_not_reaped_by_the_wait_for_its_end() {
        let (mut program, _stderr) = ended_before_its_group().await;
        assert!(program.child.try_wait().unwrap().is_some());
    }

    #[tokio::test]
    async fn what_a_program_has_started_ends_with_it_when_it_is_closed_or_dropped() {
        let (mut program, stderr) = ended_before_its_group().await;
        program.close().await.unwrap();
        assert!(program.group.id.is_none());
        closed(stderr).await;
        let (program, stderr) = ended_before_its_group().await;
        drop(program);
        closed(stderr).await;
    }

    #[test]
    fn a_line_stays_one_line_whatever_is_replaced_in_it() {
        let deep = format!("{}{}\n", "[".repeat(100), "]".repeat(100));
        let unclosed = format!("{}\r\n", "[".repeat(100));
        for line in [deep.as_str(), &unclosed, "{\"a\":\"\\ud800\"}\n", "no JSON\n", "\n", "no end", ""] {
            let repaired = String::from_utf8(repaired_line(line.as_bytes().to_vec())).unwrap();
            assert_eq!(repaired.matches('\n').count(), line.matches('\n').count(), "{line:?}");
            assert_eq!(repaired.ends_with('\n'), line.ends_with('\n'), "{line:?}");
        }
        assert_eq!(repaired_line(b"{\"a\":\"\\ud800\"}\n".to_vec()), b"{\"a\":\"\\ufffd\"}\n");
    }
}
