//! The lease of a process: its renewal, its end, and the replica that the process is after the end.

use std::time::Duration;

use annex_database::PostgresConnections;
use annex_leases::{Description, Lease, is_alive, living_replicas};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};

use crate::clock::{Clock, RENEWAL};
use crate::table;

const STEP: Duration = Duration::from_millis(250);

/// A process, after its first renewal.
async fn lease(clock: &mut Clock, name: Option<&str>) -> Lease {
    let lease = Lease::open(&PostgresConnections::new(clock.url(), 2).unwrap(), name).await.unwrap();
    clock.until_renewed(lease.replica().id()).await;
    lease
}

fn id(lease: &Lease) -> String {
    lease.replica().id().to_owned()
}

/// Lets time pass until all of these leases are renewed.
async fn renew(clock: &mut Clock, leases: &[&Lease]) {
    let ids: Vec<_> = leases.iter().map(|lease| move || id(lease)).collect();
    let ids: Vec<_> = ids.iter().map(|id| id as &dyn Fn() -> String).collect();
    clock.renew(&ids).await;
}

/// True if the lease of the replica is valid, as the statements of other crates see it.
async fn is_alive(clock: &mut Clock, replica: &str) -> bool {
    let sql = concat!(
        "SELECT ",
        is_alive!("asked.id"),
        " AND ",
        is_alive!("asked.id", "statement_timestamp()"),
        " AND asked.id IN ",
        living_replicas!(),
        ", ",
        is_alive!("asked.id"),
        " FROM (SELECT $1::TEXT AS id) AS asked"
    );
    let (by_all, by_one): (bool, bool) =
        sqlx::query_as(sql).bind(replica).fetch_one(&mut clock.database).await.unwrap();
    assert_eq!(by_all, by_one, "all ways to ask say the same");
    by_all
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_until_its_process_ends_it() {
    let Some(mut clock) = Clock::create().await else { return };
    let lease = lease(&mut clock, None).await;
    let replica = lease.replica();
    for _ in 0..20 {
        renew(&mut clock, &[&lease]).await;
    }
    assert_eq!(id(&lease), replica.id());
    assert!(lease.holds(&replica) && lease.may_judge());
    assert!(is_alive(&mut clock, replica.id()).await);
    lease.end().await;
    assert!(replica.is_over() && !lease.holds(&replica));
    assert!(!is_alive(&mut clock, replica.id()).await);
    clock.remove().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_renewed_is_over_after_five_seconds_by_the_clock_of_the_database() {
    let Some(mut clock) = Clock::create().await else { return };
    let killed = lease(&mut clock, None).await;
    let replica = killed.replica();
    drop(killed);
    clock.pass(Duration::from_millis(4_999)).await;
    assert!(is_alive(&mut clock, replica.id()).await);
    clock.pass(Duration::from_millis(2)).await;
    assert!(!is_alive(&mut clock, replica.id()).await);
    clock.remove().await;
}

#[tokio::test(start_paused = true)]
async fn a_process_whose_lease_is_over_is_another_replica_and_takes_nothing_over_for_a_lease() {
    let Some(mut clock) = Clock::create().await else { return };
    let lease = lease(&mut clock, None).await;
    let replica = lease.replica();
    assert!(lease.may_judge(), "it has kept nobody waiting");
    // The clock of the process stands, and no renewal comes.
    clock.pass_in_database(Duration::from_secs(5)).await;
    assert!(!is_alive(&mut clock, replica.id()).await);
    clock.pass(RENEWAL).await;
    clock.until("another replica", || id(&lease) != replica.id()).await;
    assert!(replica.is_over() && !lease.holds(&replica));
    assert!(is_alive(&mut clock, &id(&lease)).await);
    for _ in 0..3 {
        renew(&mut clock, &[&lease]).await;
        assert!(!lease.may_judge());
    }
    renew(&mut clock, &[&lease]).await;
    assert!(lease.may_judge());
    assert_eq!(clock.number("SELECT count(*) FROM replica").await, 1);
    clock.remove().await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_cannot_renew_its_lease_stops_a_second_before_it_is_over() {
    let Some(mut clock) = Clock::create().await else { return };
    let lease = lease(&mut clock, None).await;
    let replica = lease.replica();
    renew(&mut clock, &[&lease]).await;
    let mut locks = PgConnection::connect(clock.url()).await.unwrap();
    let mut transaction = locks.begin().await.unwrap();
    sqlx::query("LOCK TABLE replica IN ACCESS EXCLUSIVE MODE").execute(&mut *transaction).await.unwrap();
    let mut passed = Duration::ZERO;
    while passed < Duration::from_millis(3_750) {
        clock.pass(STEP).await;
        passed += STEP;
        assert!(!replica.is_over() && lease.holds(&replica), "after {passed:?}");
    }
    clock.pass(STEP).await;
    assert!(!lease.holds(&replica), "from the first moment on");
    clock.until("stopped", || replica.is_over()).await;
    let left = "SELECT extract(epoch FROM max(lease_until) - clock_timestamp())::float8 FROM replica";
    let left: f64 = sqlx::query_scalar(left).fetch_one(&mut *transaction).await.unwrap();
    assert!((0.9..=1.0).contains(&left), "{left} s are left");
    transaction.commit().await.unwrap();
    locks.close().await.unwrap();
    clock.until("another replica", || id(&lease) != replica.id()).await;
    assert_eq!(clock.left(replica.id()).await, None);
    assert_eq!(clock.number("SELECT count(*) FROM replica").await, 1);
    clock.remove().await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stood_still_is_without_its_lease_from_the_first_moment_on() {
    let Some(mut clock) = Clock::create().await else { return };
    let lease = lease(&mut clock, None).await;
    let replica = lease.replica();
    renew(&mut clock, &[&lease]).await;
    clock.pass(Duration::from_secs(4)).await;
    assert!(!lease.holds(&replica));
    clock.until("another replica", || id(&lease) != replica.id()).await;
    assert!(replica.is_over());
    clock.remove().await;
}

#[tokio::test(start_paused = true)]
async fn a_start_under_the_same_name_ends_the_lease_of_its_predecessor_at_once_and_no_other() {
    let Some(mut clock) = Clock::create().await else { return };
    let [first, other] = [lease(&mut clock, Some("a")).await, lease(&mut clock, Some("b")).await];
    let next = lease(&mut clock, Some("a")).await;
    assert!(!is_alive(&mut clock, &id(&first)).await);
    assert!(is_alive(&mut clock, &id(&other)).await && is_alive(&mut clock, &id(&next)).await);
    clock.remove().await;
}

#[tokio::test(start_paused = true)]
async fn two_processes_of_one_name_do_not_end_each_others_leases_by_turns() {
    let Some(mut clock) = Clock::create().await else { return };
    let first = lease(&mut clock, Some("a")).await;
    let taken = id(&first);
    let second = lease(&mut clock, Some("a")).await;
    let kept = id(&second);
    clock.pass(RENEWAL).await;
    clock.until("another replica", || id(&first) != taken).await;
    let nameless = id(&first);
    for _ in 0..5 {
        renew(&mut clock, &[&first, &second]).await;
    }
    assert_eq!([id(&first), id(&second)], [nameless.clone(), kept.clone()]);
    let replicas = second.replicas().await.unwrap();
    let names: Vec<_> = replicas.into_iter().map(|replica| (replica.id, replica.name)).collect();
    assert_eq!(names, [(kept, Some("a".to_owned())), (nameless, None)]);
    clock.remove().await;
}

#[tokio::test(start_paused = true)]
async fn a_process_keeps_its_name_when_it_did_not_hear_that_its_next_lease_has_begun() {
    let Some(mut clock) = Clock::create().await else { return };
    let lease = lease(&mut clock, Some("a")).await;
    let first = id(&lease);
    renew(&mut clock, &[&lease]).await;
    // The first lease that begins from now on waits for a lock.
    let slowly = "
        CREATE SEQUENCE begun;
        CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN IF nextval('begun') = 1 THEN PERFORM pg_advisory_xact_lock(1); END IF; RETURN NEW; END$$;
        CREATE TRIGGER slowly BEFORE INSERT ON replica FOR EACH ROW EXECUTE FUNCTION slowly();
        DELETE FROM replica";
    let mut lock = PgConnection::connect(clock.url()).await.unwrap();
    sqlx::query("SELECT pg_advisory_lock(1)").execute(&mut lock).await.unwrap();
    sqlx::raw_sql(slowly).execute(&mut clock.database).await.unwrap();
    clock.pass(RENEWAL).await;
    clock.until_number("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 1).await;
    // The process waits for an answer for a second, and the lease begins after it has given up.
    clock.pass(Duration::from_secs(1)).await;
    lock.close().await.unwrap();
    clock.until_number("SELECT count(*) FROM replica", 1).await;
    clock.until("another replica", || id(&lease) != first).await;
    let [replica] = lease.replicas().await.unwrap().try_into().unwrap();
    assert_eq!((replica.id, replica.name.as_deref()), (id(&lease), Some("a")));
    assert!(clock.number("SELECT last_value FROM begun").await > 1, "it was begun twice");
    clock.remove().await;
}

#[tokio::test(start_paused = true)]
async fn each_replica_of_a_process_has_the_description_of_the_process() {
    let Some(mut clock) = Clock::create().await else { return };
    let lease = lease(&mut clock, None).await;
    let description =
        Description { version: "1".to_owned(), address: "http://a".to_owned(), phase: "ready".to_owned() };
    lease.describe(description.clone());
    for _ in 0..2 {
        let before = id(&lease);
        renew(&mut clock, &[&lease]).await;
        // The description follows the renewal.
        clock.until_number("SELECT count(*) FROM replica WHERE phase = 'ready'", 1).await;
        let [listed] = lease.replicas().await.unwrap().try_into().unwrap();
        assert_eq!((&listed.id, listed.description.as_ref(), listed.lease_left), (&before, Some(&description), 5_000));
        sqlx::raw_sql(AssertSqlSafe(table::end(&before))).execute(&mut clock.database).await.unwrap();
        clock.pass(RENEWAL).await;
        clock.until("another replica", || id(&lease) != before).await;
    }
    clock.remove().await;
}

#[tokio::test(start_paused = true)]
async fn replicas_are_forgotten_an_hour_after_their_leases() {
    let Some(mut clock) = Clock::create().await else { return };
    let (killed, lease) = (lease(&mut clock, None).await, lease(&mut clock, None).await);
    let gone = id(&killed);
    drop(killed);
    clock.pass_in_database(Duration::from_secs(60 * 60)).await;
    lease.forget_gone().await.unwrap();
    assert!(clock.left(&gone).await.is_some());
    clock.pass_in_database(Duration::from_secs(6)).await;
    lease.forget_gone().await.unwrap();
    assert_eq!(clock.left(&gone).await, None);
    clock.remove().await;
}
