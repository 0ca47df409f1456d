//! Editions of what agents are served with, over several processes on one PostgreSQL database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use annex_database::PostgresConnections;
use annex_leases::editions::{Consent, Editions, Finding, News, Proposal, Report, Round};
use annex_leases::{Lease, Replica};
use futures::future::join_all;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection};

use crate::cluster::Scratch;
use crate::table;
use crate::wires::Proxy;

const LIMIT: Duration = Duration::from_secs(60);

/// A process that serves agents.
struct Process {
    editions: Editions,
}

impl Process {
    async fn start(scratch: &Scratch) -> Self {
        Self::start_over(scratch, scratch.url()).await
    }

    /// A process with another URL of the database for its editions.
    async fn start_over(scratch: &Scratch, url: &str) -> Self {
        let lease = Lease::open(&PostgresConnections::new(scratch.url(), 2).unwrap(), None).await.unwrap();
        let connections = PostgresConnections::new(url, 2).unwrap();
        Self { editions: Editions::open(&connections, Arc::new(lease)).await.unwrap() }
    }

    /// A process that serves the agent `a` from this edition on.
    async fn serving(scratch: &Scratch, number: u64) -> Self {
        let process = Self::start(scratch).await;
        assert!(process.editions.join(&process.replica(), &[("a", number)]).await.unwrap());
        process
    }

    fn replica(&self) -> Replica {
        self.editions.lease().replica()
    }

    async fn propose(&self, parent: u64) -> Option<u64> {
        self.propose_with(parent, &[], LIMIT).await
    }

    async fn propose_with(&self, parent: u64, digests: &[String], limit: Duration) -> Option<u64> {
        let config = format!("after {parent}");
        let proposal = Proposal { tenant: "a", parent, config: &config, sources: "s", cards: "c", digests, limit };
        self.editions.propose(&self.replica(), &proposal).await.unwrap()
    }

    async fn report(&self, number: u64, reason: Option<&str>) {
        self.editions.report(&self.replica(), ("a", number), reason).await.unwrap();
    }

    async fn conclude(&self, number: u64, consent: Consent) -> bool {
        self.editions.conclude(&self.replica(), ("a", number), consent).await.unwrap()
    }

    async fn current(&self) -> u64 {
        self.editions.current("a").await.unwrap().map_or(0, |edition| edition.number)
    }

    /// Accepts an edition where no other process serves the agent.
    async fn accept(&self, parent: u64) -> u64 {
        let number = self.propose(parent).await.unwrap();
        assert!(self.conclude(number, Consent::OfAll).await);
        number
    }

    async fn kill(self, scratch: &Scratch) {
        let replica = self.replica();
        drop(self);
        execute(scratch, table::end(replica.id())).await;
    }
}

async fn count(scratch: &Scratch, sql: &str) -> i64 {
    let mut connection = PgConnection::connect(scratch.url()).await.unwrap();
    let count = sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    count
}

async fn execute(scratch: &Scratch, sql: impl Into<String>) {
    let mut connection = PgConnection::connect(scratch.url()).await.unwrap();
    sqlx::query(AssertSqlSafe(sql.into())).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposal_whose_answer_is_lost_is_gone_on_with() {
    let Some(scratch) = Scratch::create().await else { return };
    let options: PgConnectOptions = scratch.url().parse().unwrap();
    let proxy = Proxy::start(options.clone());
    let one = Process::start_over(&scratch, &proxy.url(&options)).await;
    assert!(one.editions.join(&one.replica(), &[("a", 0)]).await.unwrap());
    for statement in [
        "CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$",
        "CREATE TRIGGER held BEFORE INSERT ON edition FOR EACH ROW EXECUTE FUNCTION held()",
    ] {
        execute(&scratch, statement).await;
    }
    let mut lock = PgConnection::connect(scratch.url()).await.unwrap();
    sqlx::query("SELECT pg_advisory_lock(1)").execute(&mut lock).await.unwrap();
    let until = async |sql: &str| {
        let begin = Instant::now();
        while count(&scratch, sql).await != 1 {
            assert!(begin.elapsed() < Duration::from_secs(10), "{sql}");
        }
    };
    let lose = async {
        until("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").await;
        proxy.silence();
        lock.close().await.unwrap();
        until("SELECT count(*) FROM edition WHERE state = 'proposed'").await;
        proxy.cut();
    };
    let (number, ()) = tokio::join!(one.propose(0), lose);
    assert_eq!(number, Some(1));
    assert!(one.conclude(1, Consent::OfAll).await);
    assert_eq!(one.current().await, 1);
    scratch.remove().await;
}

fn told(number: u64, is_in_force: bool) -> News {
    News { tenant: "a".to_owned(), number, is_in_force }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edition_is_in_force_once_all_whose_lease_holds_can_serve_it() {
    let Some(scratch) = Scratch::create().await else { return };
    let [one, other] = [Process::serving(&scratch, 0).await, Process::serving(&scratch, 0).await];
    let number = one.propose(0).await.unwrap();
    assert!(!one.conclude(number, Consent::OfAll).await, "the other has not tried it");
    assert!(!one.conclude(number, Consent::OfThoseWhoCan).await, "nor said that it cannot");
    assert_eq!(other.editions.news(&other.replica()).await.unwrap(), [told(number, false)]);
    other.report(number, None).await;
    assert_eq!(other.editions.news(&other.replica()).await.unwrap(), []);
    assert!(!other.conclude(number, Consent::OfAll).await, "it is not its own");
    // The proposer is not asked, also where it joins as the replica that it is now.
    assert!(one.editions.join(&one.replica(), &[("a", 0)]).await.unwrap());
    assert_eq!(one.editions.news(&one.replica()).await.unwrap(), []);
    assert!(one.conclude(number, Consent::OfAll).await);
    assert_eq!((one.current().await, other.current().await), (number, number));
    assert_eq!(other.editions.news(&other.replica()).await.unwrap(), [told(number, true)]);
    assert_eq!(one.editions.behind("a", number).await.unwrap().len(), 2);
    for process in [&one, &other] {
        process.editions.serve_from(&process.replica(), "a", number).await.unwrap();
    }
    assert!(one.editions.behind("a", number).await.unwrap().is_empty());
    assert!(one.editions.has_seen("a", "after 0").await.unwrap());
    assert!(!one.editions.has_seen("b", "after 0").await.unwrap(), "editions are of one agent");
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_cannot_serve_an_edition_keeps_it_out_of_force_unless_it_is_overlooked() {
    let Some(scratch) = Scratch::create().await else { return };
    let [one, other] = [Process::serving(&scratch, 0).await, Process::serving(&scratch, 0).await];
    let number = one.propose(0).await.unwrap();
    other.report(number, Some("the ceiling")).await;
    assert!(!one.conclude(number, Consent::OfAll).await);
    let reports = one.editions.reports(&one.replica(), ("a", number)).await.unwrap();
    let unable =
        Report { replica: other.replica().id().to_owned(), finding: Finding::Unable("the ceiling".to_owned()) };
    assert_eq!(reports, [unable]);
    assert!(one.editions.withdraw(&one.replica(), "a", number).await.unwrap());
    assert!(!one.conclude(number, Consent::OfThoseWhoCan).await, "it is withdrawn");
    assert_eq!(one.current().await, 0);
    assert!(one.editions.edition("a", number).await.unwrap().is_none());

    let number = one.propose(0).await.unwrap();
    other.report(number, Some("the ceiling")).await;
    assert!(one.conclude(number, Consent::OfThoseWhoCan).await);
    assert!(!one.editions.withdraw(&one.replica(), "a", number).await.unwrap(), "it is in force");
    assert_eq!(other.current().await, number);
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_proposals_at_once_one_is_made_and_none_on_what_is_not_in_force() {
    let Some(scratch) = Scratch::create().await else { return };
    let [one, other] = [Process::start(&scratch).await, Process::start(&scratch).await];
    for parent in 0..10 {
        let proposing = (0..6).map(|turn| if turn % 2 == 0 { one.propose(parent) } else { other.propose(parent) });
        let made: Vec<u64> = join_all(proposing).await.into_iter().flatten().collect();
        assert_eq!(made, [parent + 1]);
        assert!(one.conclude(parent + 1, Consent::OfAll).await || other.conclude(parent + 1, Consent::OfAll).await);
        assert_eq!(one.propose(parent).await, None, "it is not in force any more");
    }
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposal_of_a_killed_process_is_in_nobodys_way() {
    let Some(scratch) = Scratch::create().await else { return };
    let [killed, other] = [Process::start(&scratch).await, Process::serving(&scratch, 0).await];
    let number = killed.propose(0).await.unwrap();
    assert_eq!(other.propose(0).await, None, "it may be concluded");
    other.report(number, None).await;
    let replica = killed.replica();
    killed.kill(&scratch).await;
    assert!(!other.editions.conclude(&replica, ("a", number), Consent::OfAll).await.unwrap(), "its lease is over");
    let next = other.propose(0).await.unwrap();
    assert_eq!(next, number + 1);
    assert!(other.conclude(next, Consent::OfAll).await);
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_whose_lease_is_over_is_not_waited_for_and_neither_joins_nor_proposes() {
    let Some(scratch) = Scratch::create().await else { return };
    let [one, gone] = [Process::serving(&scratch, 0).await, Process::serving(&scratch, 0).await];
    assert!(one.editions.has_others("a").await.unwrap());
    let replica = gone.replica();
    let number = one.propose(0).await.unwrap();
    assert!(!one.conclude(number, Consent::OfAll).await);
    gone.kill(&scratch).await;
    assert!(one.conclude(number, Consent::OfAll).await);
    one.editions.serve_from(&one.replica(), "a", number).await.unwrap();
    assert!(one.editions.behind("a", number).await.unwrap().is_empty());
    assert!(!one.editions.has_others("a").await.unwrap());
    assert!(!one.editions.join(&replica, &[("a", number)]).await.unwrap());
    let proposal =
        Proposal { tenant: "a", parent: number, config: "", sources: "", cards: "", digests: &[], limit: LIMIT };
    assert_eq!(one.editions.propose(&replica, &proposal).await.unwrap(), None);
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposal_whose_time_is_up_never_comes_in_force() {
    let Some(scratch) = Scratch::create().await else { return };
    let one = Process::start(&scratch).await;
    let number = one.propose_with(0, &[], Duration::ZERO).await.unwrap();
    assert!(!one.conclude(number, Consent::OfAll).await);
    assert_eq!(one.propose(0).await, Some(number + 1));
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_editions_are_forgotten_and_components_that_none_names() {
    let Some(scratch) = Scratch::create().await else { return };
    let one = Process::serving(&scratch, 0).await;
    let digests = ["x".to_owned(), "y".to_owned()];
    assert!(!one.editions.touch(&digests).await.unwrap());
    for (digest, bytes) in [("x", [1]), ("y", [2]), ("x", [3])] {
        one.editions.keep(digest, &bytes).await.unwrap();
    }
    assert!(one.editions.touch(&digests).await.unwrap());
    assert_eq!(one.editions.component("x").await.unwrap(), Some(vec![1]), "the first bytes of a digest stay");
    let number = one.propose_with(0, &digests[..1], LIMIT).await.unwrap();
    assert!(one.conclude(number, Consent::OfAll).await);
    execute(&scratch, "UPDATE component SET kept_at = kept_at - INTERVAL '2 hours'").await;
    one.editions.sweep().await.unwrap();
    let there = [one.editions.component("x").await.unwrap(), one.editions.component("y").await.unwrap()];
    assert_eq!(there, [Some(vec![1]), None], "an edition names x");
    for parent in 1..20 {
        assert_eq!(one.accept(parent).await, parent + 1);
    }
    one.editions.sweep().await.unwrap();
    assert_eq!(count(&scratch, "SELECT count(*) FROM edition").await, 8);
    assert_eq!(one.current().await, 20);
    assert_eq!(one.editions.component("x").await.unwrap(), None);
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cards_of_an_edition_are_renewed_by_one_process_at_a_time() {
    let Some(scratch) = Scratch::create().await else { return };
    let [one, other] = [Process::serving(&scratch, 0).await, Process::serving(&scratch, 0).await];
    let number = one.propose(0).await.unwrap();
    other.report(number, None).await;
    let round = |renewals| Round { tenant: "a", number, renewals };
    let claim = async |process: &Process, renewals: u64, limit: Duration| {
        process.editions.claim(&process.replica(), &round(renewals), limit).await.unwrap()
    };
    let renew = async |process: &Process, renewals: u64, cards: &str| {
        process.editions.renew(&process.replica(), &round(renewals), cards).await.unwrap()
    };
    assert!(!claim(&one, 0, LIMIT).await, "it is not in force");
    assert!(one.conclude(number, Consent::OfAll).await);
    for process in [&one, &other] {
        process.editions.serve_from(&process.replica(), "a", number).await.unwrap();
    }
    assert!(!claim(&one, 1, LIMIT).await, "the cards were not renewed before");
    assert!(claim(&one, 0, LIMIT).await);
    assert!(!claim(&other, 0, LIMIT).await, "another process has the claim");
    assert!(!renew(&other, 0, "x").await);
    assert!(other.editions.renewed(&other.replica()).await.unwrap().is_empty());
    assert!(renew(&one, 0, "c2").await);
    assert!(!claim(&other, 0, LIMIT).await, "the cards were renewed");
    let edition = other.editions.current("a").await.unwrap().unwrap();
    assert_eq!((edition.number, edition.cards.as_str(), edition.renewals), (number, "c2", 1));
    assert_eq!(other.editions.renewed(&other.replica()).await.unwrap(), [("a".to_owned(), number, 1)]);

    assert!(claim(&one, 1, Duration::ZERO).await);
    assert!(claim(&other, 1, LIMIT).await, "the time of the claim is over");
    assert!(!renew(&one, 1, "late").await);
    assert!(renew(&other, 1, "c3").await);
    assert!(claim(&one, 2, LIMIT).await);
    one.kill(&scratch).await;
    assert!(claim(&other, 2, LIMIT).await, "the process with the claim has ended");
    assert_eq!(other.accept(number).await, number + 1);
    assert!(!claim(&other, 2, LIMIT).await, "a later edition is in force");
    scratch.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_serves_no_agent_is_not_waited_for() {
    let Some(scratch) = Scratch::create().await else { return };
    let [one, other] = [Process::serving(&scratch, 0).await, Process::start(&scratch).await];
    one.accept(0).await;
    assert!(other.editions.news(&other.replica()).await.unwrap().is_empty());
    scratch.remove().await;
}
