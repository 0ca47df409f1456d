//! Recordings: the turns of an extension as a stream of JSON lines, until a bound is reached or the client hangs up.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annex_protocol::{Json, JsonObject, Timestamp};
use annex_runtime::{
    Extension, FORMAT_VERSION, Hide, RecordedTurn, RecordingEnd, RecordingHead, RecordingLine, TurnObserver,
};
use axum::body::{Body, Bytes};
use axum::extract::{Extension as OfRequest, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::action::Action;
use super::caller::{AdminCaller, of_tenant};
use super::error::AdminError;
use super::extensions::subject;
use super::shared::{Admin, OfTenant, read_optional, whole};
use crate::admin_api::Recording;
use crate::installation::hiding::RecordingRedactor;
use crate::installation::installer::{Installer, Version};

/// The maximum number of turns that are being recorded at the same time. It is also the maximum number of recorded
/// turns that wait for the writer. Each turn has at most a mebibyte.
const MAX_WAITING: usize = 16;
/// The maximum number of lines that wait for the client.
const MAX_LINES: usize = 4;
/// The interval at which a recording checks whether its version was replaced.
const LOOK: Duration = Duration::from_secs(1);
/// The time for the client to read the last lines after the recording has ended.
const GOODBYE: Duration = Duration::from_secs(5);
/// The default and the maximum of the number of turns in a recording. The next two constants are the default and the
/// maximum of its bytes, and of its seconds.
const TURNS: (u64, u64) = (50, 100_000);
const BYTES: (u64, u64) = (16 << 20, 1 << 30);
const SECONDS: (u64, u64) = (60, 24 * 60 * 60);

/// Records an extension until a bound is reached or the client hangs up.
pub(super) async fn record(
    State(admin): State<Arc<Admin>>,
    OfRequest(caller): OfRequest<AdminCaller>,
    Query(of): Query<OfTenant>,
    Path(id): Path<String>,
    body: Body,
) -> Result<Response, AdminError> {
    if !admin.access.rules().allow_recording {
        let message =
            "recordings have what users wrote, so they are off; the operator can set admin.allow_recording = true";
        return Err(AdminError::new(StatusCode::FORBIDDEN, "recording_not_allowed", message));
    }
    let installer = admin.installer(&of).await?;
    let version = installer.find(&id)?;
    let Recording { turns, bytes, seconds } = read_optional(body).await?;
    let bounds = Bounds {
        turns: bound("turns", turns, TURNS)?,
        bytes: bound("bytes", bytes, BYTES)?,
        until: Instant::now() + Duration::from_secs(bound("seconds", seconds, SECONDS)?),
    };
    let (turns, noted) = channel(MAX_WAITING);
    let recorder = Arc::new(Recorder { turns, running: AtomicU64::new(0), left_out: AtomicU64::new(0) });
    let uri = version.uri();
    let told = format!("turns of extension {uri}{} are being recorded", of_tenant(of.tenant.as_deref()));
    let caller = caller.about(Action::RecordTurns, subject(&of, uri));
    let observing = observe(Arc::clone(&version.extension), Arc::clone(&recorder));
    let observed = whole(caller, observing, |_| told).await?;
    let (lines, written) = channel(MAX_LINES);
    let writer = Writer {
        _observed: observed,
        installer,
        hiding: Arc::new(RecordingRedactor {
            redaction: admin.sessions.redaction.clone(),
            extensions: vec![Arc::clone(&version.extension)],
        }),
        // The last lines get a grace period.
        until: bounds.until + GOODBYE,
        closing: admin.process.closing.clone(),
        lines,
        version,
    };
    tokio::spawn(writer.write(noted, bounds, recorder));
    let written = futures::stream::unfold(written, async |mut written| {
        written.recv().await.map(|line: Bytes| (Ok::<_, Infallible>(line), written))
    });
    Ok(([(header::CONTENT_TYPE, "application/jsonl")], Body::from_stream(written)).into_response())
}

/// Begins the observation of an extension. It ends when the guard is dropped.
async fn observe(extension: Arc<Extension>, recorder: Arc<Recorder>) -> Result<ObservationGuard, AdminError> {
    if !extension.observe(recorder) {
        let uri = extension.uri();
        let message = format!("{uri} is recorded already, or has a shadow, which has to be dropped first");
        return Err(AdminError::new(StatusCode::CONFLICT, "observed", message));
    }
    Ok(ObservationGuard(extension))
}

fn bound(name: &str, asked: Option<u64>, (standard, most): (u64, u64)) -> Result<u64, AdminError> {
    match asked.unwrap_or(standard) {
        0 => Err(AdminError::invalid(format!("`{name}` is 0; leave it out, or write 1 to {most}"))),
        asked if asked > most => Err(AdminError::invalid(format!("`{name}` is {asked}, and at most {most}"))),
        asked => Ok(asked),
    }
}

struct Bounds {
    turns: u64,
    bytes: u64,
    until: Instant,
}

/// Observes an extension, and passes its recorded turns to the writer.
struct Recorder {
    turns: Sender<RecordedTurn>,
    /// The number of turns that are being recorded.
    running: AtomicU64,
    left_out: AtomicU64,
}

impl TurnObserver for Recorder {
    fn wants(&self) -> bool {
        let room = |running: u64| (running < MAX_WAITING as u64).then_some(running + 1);
        let has_room = self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok();
        if !has_room {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }

    fn ended(&self, turn: RecordedTurn) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        // A full queue drops the turn: the request that the turn belongs to must not wait for the reader of a
        // recording.
        if self.turns.try_send(turn).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn left_out(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.left_out.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ends the observation of the extension when the recording is dropped.
struct ObservationGuard(Arc<Extension>);

impl Drop for ObservationGuard {
    fn drop(&mut self) {
        self.0.end_observation();
    }
}

struct Writer {
    _observed: ObservationGuard,
    version: Version,
    installer: Arc<Installer>,
    hiding: Arc<RecordingRedactor>,
    until: Instant,
    closing: CancellationToken,
    lines: Sender<Bytes>,
}

impl Writer {
    async fn write(self, mut noted: Receiver<RecordedTurn>, bounds: Bounds, recorder: Arc<Recorder>) {
        let Some(mut bytes) = self.own_line(&self.head()).await else { return };
        let mut turns = 0;
        let reason = loop {
            if turns >= bounds.turns {
                break "turns";
            }
            if bytes >= bounds.bytes {
                break "bytes";
            }
            let turn = tokio::select! {
                turn = noted.recv() => turn,
                () = sleep_until(bounds.until) => break "time",
                () = self.closing.cancelled() => break "shutdown",
                // The client has hung up, so the recording needs no last line.
                () = self.lines.closed() => return,
                () = tokio::time::sleep(LOOK) => {
                    if self.is_in_force() {
                        continue;
                    }
                    break "replaced";
                }
            };
            // `recv` returns `None` only if all senders are dropped, and this task holds one.
            let Some(turn) = turn else { return };
            match self.turn(turn).await {
                Some(WriteOutcome::Bytes(written)) => {
                    bytes = bytes.saturating_add(written);
                    turns += 1;
                }
                Some(WriteOutcome::Nothing) => drop(recorder.left_out.fetch_add(1, Ordering::Relaxed)),
                None => return,
            }
        };
        let left_out = recorder.left_out.load(Ordering::Relaxed);
        self.own_line(&RecordingLine::End(RecordingEnd { turns, left_out, reason: reason.to_owned() })).await;
    }

    fn head(&self) -> RecordingLine {
        let extension = &self.version.extension;
        RecordingLine::Recording(RecordingHead {
            version: FORMAT_VERSION,
            uri: extension.uri().clone(),
            name: extension.descriptor().name.clone(),
            component_version: extension.descriptor().version.clone(),
            digest: extension.digest().to_string(),
            at: Timestamp::now(),
            settings: self.settings(),
        })
    }

    /// The settings of the extension. In its parameters, each value that must be hidden is replaced.
    fn settings(&self) -> Json {
        let settings = self.version.settings.to_json();
        let Ok(mut object) = JsonObject::parse(settings.get()) else { return settings };
        if let Some(parameters) = object.get("parameters").map(|parameters| self.hiding.json(parameters)) {
            object.insert("parameters".to_owned(), parameters);
        }
        object.to_json().unwrap_or(settings)
    }

    fn is_in_force(&self) -> bool {
        self.installer.versions().iter().any(|version| version.number == self.version.number)
    }

    /// Writes a turn. `None` if the client has hung up.
    async fn turn(&self, turn: RecordedTurn) -> Option<WriteOutcome> {
        let hiding = Arc::clone(&self.hiding);
        // A turn has up to a mebibyte. Reading it would block a thread that serves requests.
        let line = tokio::task::spawn_blocking(move || {
            turn.hidden(hiding.as_ref()).and_then(|turn| serde_json::to_string(&RecordingLine::Turn(turn)).ok())
        });
        match line.await {
            Ok(Some(line)) => self.line(line).await.map(WriteOutcome::Bytes),
            _ => Some(WriteOutcome::Nothing),
        }
    }

    /// Writes one line and returns its length in bytes. `None` if the client has hung up.
    async fn line(&self, mut line: String) -> Option<u64> {
        line.push('\n');
        let bytes = line.len() as u64;
        tokio::select! {
            sent = self.lines.send(Bytes::from(line)) => sent.ok().map(|()| bytes),
            // A client that reads nothing must not delay the end of the recording.
            () = self.closing.cancelled() => None,
            () = sleep_until(self.until) => None,
        }
    }

    /// Writes a line without redaction, because it has no content of users.
    async fn own_line(&self, line: &RecordingLine) -> Option<u64> {
        self.line(serde_json::to_string(line).ok()?).await
    }
}

/// The outcome of writing a turn.
enum WriteOutcome {
    Bytes(u64),
    /// Redaction of the turn failed, so the turn was not written.
    Nothing,
}
