//! Turns of one session that come to several processes on one PostgreSQL database: their order, and what those may still write
//! that have lost their place.

mod order;

use std::sync::Arc;
use std::time::Duration;

use annex_session::{
    Beginning, Event, EventFilter, Following, Limits, PostgresSessionService, Retention, SessionError, TurnSession,
    Turns,
};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::cluster::Scratch;
use crate::support::{Store, create, event, events, find, ids, key, query, refusal};
use crate::table;

/// A generous limit for a turn without earlier turns.
const SOON: Duration = Duration::from_secs(60);
/// Longer than a turn takes that need not wait.
const A_WHILE: Duration = Duration::from_millis(300);
/// The time between two questions to the database.
const LOOK: Duration = Duration::from_millis(2);

/// The turns in the queue of session `s`.
const QUEUED: &str = "SELECT coalesce(sum(cardinality(turns)), 0)::BIGINT FROM session";

/// A database with its leases.
struct Place {
    scratch: Scratch,
    database: PgConnection,
}

/// A process that has the sessions among others.
struct Process {
    service: Store,
    turns: Turns,
}

impl Place {
    async fn create() -> Option<Self> {
        let scratch = Scratch::create().await?;
        let mut database = PgConnection::connect(scratch.url()).await.unwrap();
        sqlx::raw_sql(table::CREATE).execute(&mut database).await.unwrap();
        Some(Self { scratch, database })
    }

    async fn execute(&mut self, sql: &str) -> u64 {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut self.database).await.unwrap().rows_affected()
    }

    async fn number(&mut self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut self.database).await.unwrap()
    }

    /// A process whose lease does not end by itself.
    async fn process(&mut self, replica: &'static str) -> Process {
        self.execute(&table::endless(replica)).await;
        let url = self.scratch.url().to_owned();
        let runtime = tokio::runtime::Handle::current();
        // On a thread of its own: sqlx's migrations are no future that can be sent.
        let open = move || runtime.block_on(PostgresSessionService::connect(&url, 4, Limits::default()));
        let service = tokio::task::spawn_blocking(open).await.unwrap().unwrap();
        Process { service: Arc::new(service.among_others(move || replica.into())), turns: Turns::default() }
    }

    async fn end_lease(&mut self, replica: &str) {
        assert_eq!(self.execute(&table::end(replica)).await, 1);
    }

    async fn queued(&mut self) -> i64 {
        self.number(QUEUED).await
    }

    async fn until_queued(&mut self, turns: i64) {
        self.until(QUEUED, turns).await;
    }

    async fn until_no_row(&mut self) {
        self.until("SELECT count(*) FROM session", 0).await;
    }

    /// Waits until the database answers `sql` with this number.
    async fn until(&mut self, sql: &str, number: i64) {
        let comes = async {
            while self.number(sql).await != number {
                // Two that ask and answer without a pause can keep a new process of the database from running for seconds.
                sleep(LOOK).await;
            }
        };
        timeout(SOON, comes).await.unwrap_or_else(|_| panic!("{sql} is never {number}"));
    }

    async fn remove(self) {
        self.database.close().await.unwrap();
        self.scratch.remove().await;
    }
}

impl Process {
    async fn begin(&self) -> Result<TurnSession, SessionError> {
        let beginning = Beginning { place: self.service.place(), history: 10 };
        TurnSession::open(&self.service, key("s"), &self.turns, beginning).await
    }

    async fn begin_new(&self) -> TurnSession {
        let guard = self.turns.begin(&key("s")).await.unwrap();
        let beginning = Beginning { place: self.service.place(), history: 0 };
        TurnSession::open_new(&self.service, key("s"), guard, beginning)
    }
}

fn said(id: &str) -> Event {
    Event { author: annex_session::USER_AUTHOR.into(), invocation_id: id.into(), ..event(id, "{}") }
}

fn answer(id: &str) -> Event {
    Event { author: "agent".into(), ..event(id, "{}") }
}

/// A turn that stores one event.
fn speak(process: &Arc<Process>, id: &'static str) -> JoinHandle<()> {
    let process = Arc::clone(process);
    tokio::spawn(async move { process.begin().await.unwrap().append_last(answer(id)).await.unwrap() })
}

fn is_fenced<T: std::fmt::Debug>(result: Result<T, SessionError>) {
    let refused = refusal(result);
    assert_eq!(refused, "the turn has lost its place in session s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_waits_for_that_of_another_process_and_sees_its_answer() {
    let Some(mut place) = Place::create().await else { return };
    let [one, other] = [place.process("one").await, place.process("other").await];
    let first = one.begin().await.unwrap();
    first.append(said("question")).await.unwrap();
    let waiting = async {
        let second = other.begin().await.unwrap();
        second.append(said("question of the other")).await.unwrap();
        assert_eq!(second.history(10).await.unwrap().len(), 4, "all that the first one stored");
        second.append_last(answer("answer of the other")).await.unwrap();
    };
    let answering = async {
        place.until_queued(2).await;
        first.append(answer("half an answer")).await.unwrap();
        first.append(answer("answer")).await.unwrap();
        drop(first);
    };
    timeout(SOON, async { tokio::join!(waiting, answering) }).await.unwrap();
    let stored = events(&one.service, "s").await;
    let expected = ["question", "half an answer", "answer", "question of the other", "answer of the other"];
    assert_eq!(ids(&stored), expected, "nothing was broken off");
    place.until_queued(0).await;
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_whose_session_was_deleted_and_made_again_adds_nothing_to_it() {
    let Some(mut place) = Place::create().await else { return };
    let [one, other] = [Arc::new(place.process("one").await), Arc::new(place.process("other").await)];
    let running = one.begin().await.unwrap();
    running.append(answer("old")).await.unwrap();
    assert!(other.service.delete(&key("s")).await.unwrap());
    timeout(SOON, speak(&other, "new")).await.unwrap().unwrap();
    is_fenced(running.append(answer("late")).await);
    drop(running);
    assert_eq!(ids(&events(&one.service, "s").await), ["new"]);
    place.until_queued(0).await;
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_takes_the_place_of_one_whose_lease_is_over_and_that_one_writes_nothing_more() {
    let Some(mut place) = Place::create().await else { return };
    let [one, other] = [place.process("one").await, place.process("other").await];
    let zombie = one.begin().await.unwrap();
    zombie.append(said("question")).await.unwrap();
    let next = tokio::spawn(async move { (other.begin().await.unwrap(), other) });
    place.until_queued(2).await;
    sleep(A_WHILE).await;
    assert!(!next.is_finished());
    place.end_lease("one").await;
    let (next, other) = timeout(SOON, next).await.unwrap().unwrap();
    // The next turn has written nothing yet: the revision is what the zombie expects.
    for lease in [table::end("one"), table::endless("one")] {
        place.execute(&lease).await;
        is_fenced(zombie.append(answer("late")).await);
        // What takes more than one statement, too.
        is_fenced(zombie.append(event("late", r#"{"user:a":1,"app:b":2}"#)).await);
        is_fenced(zombie.append_last(answer("late")).await);
    }
    next.append(said("question of the other")).await.unwrap();
    is_fenced(zombie.append(answer("late")).await);
    next.append_last(answer("answer")).await.unwrap();
    drop(zombie);
    let stored = events(&other.service, "s").await;
    let texts: Vec<&str> =
        stored.iter().map(|event| event.error.as_ref().map_or(&*event.id, |error| &error.code)).collect();
    assert_eq!(texts, ["question", "BROKEN_OFF", "question of the other", "answer"]);
    assert!(find(&other.service, "s").await.unwrap().state.merged().is_empty());
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_whose_lease_is_over_writes_nothing_more_although_nobody_waits() {
    let Some(mut place) = Place::create().await else { return };
    let one = place.process("one").await;
    let known = one.begin().await.unwrap();
    known.append(said("question")).await.unwrap();
    place.end_lease("one").await;
    is_fenced(known.append(answer("late")).await);
    is_fenced(known.append(event("late", r#"{"user:a":1}"#)).await);
    assert_eq!(ids(&events(&one.service, "s").await), ["question"]);
    // Nor does it begin a session.
    one.service.delete(&key("s")).await.unwrap();
    drop(known);
    let new = one.begin_new().await;
    is_fenced(new.append(said("late")).await);
    is_fenced(new.append(event("late", r#"{"user:a":1}"#)).await);
    assert!(!one.service.exists(&key("s")).await.unwrap());
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_whose_lease_is_over_does_not_begin() {
    let Some(mut place) = Place::create().await else { return };
    let [one, other] = [place.process("one").await, place.process("other").await];
    let running = other.begin().await.unwrap();
    let waiting = tokio::spawn(async move { one.begin().await.map(drop) });
    place.until_queued(2).await;
    place.end_lease("one").await;
    // Its place may be taken from it by anybody who waits.
    place.execute("UPDATE session SET turns = turns[:1]").await;
    is_fenced(timeout(SOON, waiting).await.unwrap().unwrap());
    drop(running);
    place.until_no_row().await;
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_is_given_up_leaves_no_place_and_no_row() {
    let Some(mut place) = Place::create().await else { return };
    let [one, other] = [place.process("one").await, place.process("other").await];
    let running = one.begin().await.unwrap();
    assert!(timeout(A_WHILE, other.begin()).await.is_err(), "it did not wait");
    place.until_queued(1).await;
    // Given up while it joins.
    place.execute("BEGIN; UPDATE session SET revision = revision").await;
    assert!(timeout(A_WHILE, other.begin()).await.is_err());
    place.execute("COMMIT").await;
    drop(running);
    place.until_queued(0).await;
    place.until_no_row().await;
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_only_a_queue_is_no_session() {
    let Some(mut place) = Place::create().await else { return };
    let one = place.process("one").await;
    let turn = one.begin().await.unwrap();
    assert!(!one.service.exists(&key("s")).await.unwrap());
    assert!(find(&one.service, "s").await.is_none());
    assert!(one.service.list(&query(None)).await.unwrap().is_empty());
    assert!(!one.service.delete(&key("s")).await.unwrap());
    assert_eq!(create(&one.service, "s", r#"{"a":1}"#).await.revision, 1);
    assert_eq!(refusal(turn.append(said("question")).await), "stale session: expected revision 0, found 1");
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_event_and_leaving_are_one_step() {
    let Some(mut place) = Place::create().await else { return };
    let [one, other] = [place.process("one").await, place.process("other").await];
    // As first of all, in one statement and in several, with the message that begins the conversation and behind others.
    for (number, delta) in ["{}", r#"{"a":1}"#, r#"{"user:a":1}"#].into_iter().enumerate() {
        let turn = one.begin().await.unwrap();
        turn.append_user(said(&format!("question {number}")), Following::Answer).await.unwrap();
        turn.append_last(Event { author: "agent".into(), ..event(&format!("answer {number}"), delta) }).await.unwrap();
        assert_eq!(place.queued().await, 0);
        let next = timeout(SOON, other.begin()).await.unwrap().unwrap();
        assert_eq!(place.queued().await, 1);
        // More than what was to be the last.
        is_fenced(turn.append(answer("late")).await);
        drop((turn, next));
        place.until_queued(0).await;
    }
    one.service.delete(&key("s")).await.unwrap();
    let new = one.begin_new().await;
    new.append_user(said("question"), Following::Answer).await.unwrap();
    new.append_last(answer("answer")).await.unwrap();
    assert_eq!(place.queued().await, 0);
    new.append(answer("more, as nobody has come")).await.unwrap();
    assert_eq!(events(&one.service, "s").await.len(), 3);
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_turn_of_a_new_session_is_in_its_queue_from_its_first_event_on() {
    let Some(mut place) = Place::create().await else { return };
    let [one, other] = [place.process("one").await, place.process("other").await];
    for delta in ["{}", r#"{"user:a":1}"#] {
        let new = one.begin_new().await;
        assert_eq!(place.queued().await, 0);
        let question = Event { state_delta: crate::support::delta(delta), ..said("question") };
        new.append(question).await.unwrap();
        assert!(timeout(A_WHILE, other.begin()).await.is_err(), "it did not wait");
        new.append_last(answer("answer")).await.unwrap();
        drop(new);
        timeout(SOON, other.begin()).await.unwrap().unwrap();
        place.until_queued(0).await;
        one.service.delete(&key("s")).await.unwrap();
    }
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_joins_while_the_last_one_ends_sees_what_that_one_stored() {
    let Some(mut place) = Place::create().await else { return };
    let one = place.process("one").await;
    create(&one.service, "s", "{}").await;
    // As an append of another process that is not committed yet.
    place.execute("BEGIN; UPDATE session SET revision = 2").await;
    let sql = "INSERT INTO session_event SELECT id, 2, 'e', 0, json FROM session, (VALUES ('{\"id\":\"e\",\"author\":\"user\",
        \"invocationId\":\"t\",\"timestamp\":0}')) AS event (json)";
    place.execute(sql).await;
    let joining = tokio::spawn(async move { (one.begin().await.unwrap(), one) });
    let waits = "SELECT count(DISTINCT pid) FROM pg_locks
        WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))";
    place.until(waits, 1).await;
    place.execute("COMMIT").await;
    let (turn, one) = timeout(SOON, joining).await.unwrap().unwrap();
    turn.append(said("question")).await.unwrap();
    let stored = one.service.read(&key("s"), EventFilter::ALL).await.unwrap();
    assert_eq!(stored.revision, 4, "the event, that its turn was broken off, and the question");
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_event_sent_again_is_a_repetition_although_the_turn_has_left() {
    let Some(mut place) = Place::create().await else { return };
    let [one, other] = [place.process("one").await, place.process("other").await];
    let turn = one.begin().await.unwrap();
    turn.append(said("question")).await.unwrap();
    let place_of_turn = one.service.place().unwrap();
    drop(turn);
    place.until_queued(0).await;
    one.service.join(&key("s"), &place_of_turn, EventFilter::NONE).await.unwrap();
    let last = annex_session::OfTurn { place: &place_of_turn, is_last: true };
    let sent = || vec![answer("answer")];
    one.service.append_in_turn(&key("s"), 1, sent(), last).await.unwrap();
    let next = other.begin().await.unwrap();
    assert!(one.service.append_in_turn(&key("s"), 1, sent(), last).await.unwrap().repeated);
    next.append_last(answer("of the other")).await.unwrap();
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hint_makes_a_turn_that_waits_look_at_once() {
    let Some(mut place) = Place::create().await else { return };
    let [one, other] = [place.process("one").await, place.process("other").await];
    let turns = other.turns.clone();
    let running = one.begin().await.unwrap();
    let waiting = tokio::spawn(async move { other.begin().await.map(drop) });
    place.until_queued(2).await;
    // By now it looks no more than twice a second.
    sleep(Duration::from_secs(3)).await;
    running.append(said("question")).await.unwrap();
    running.append_last(answer("answer")).await.unwrap();
    let begin = std::time::Instant::now();
    turns.hint(&key("s"));
    waiting.await.unwrap().unwrap();
    assert!(begin.elapsed() < Duration::from_millis(200), "{:?}", begin.elapsed());
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_that_processes_have_left_behind_are_swept() {
    let Some(mut place) = Place::create().await else { return };
    let one = place.process("one").await;
    let turn = one.begin().await.unwrap();
    let all = Retention { age: Duration::MAX, count: u64::MAX };
    place.execute("UPDATE session SET changed_at = 0").await;
    one.service.sweep(&all).await.unwrap();
    assert_eq!(place.queued().await, 1, "the turn is alive");
    place.end_lease("one").await;
    one.service.sweep(&all).await.unwrap();
    assert_eq!(place.number("SELECT count(*) FROM session").await, 0);
    drop(turn);
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_has_the_sessions_for_itself_has_no_queue() {
    let Some(mut place) = Place::create().await else { return };
    let url = place.scratch.url().to_owned();
    let service = crate::support::Backend::Postgres(url).service().await;
    assert!(service.place().is_none());
    let turn = crate::support::open(&service, "s").await;
    turn.append(said("question")).await.unwrap();
    assert_eq!(place.queued().await, 0);
    drop(turn);
    place.remove().await;
}
