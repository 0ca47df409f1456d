//! Measures the round trip to the database, and refuses a database that is too far away for leases.

use std::time::Duration;

use annex_database::PostgresConnections;

/// The longest round trip with which a lease can be renewed in time. A renewal takes three trips and must end within a second.
/// In that second it may also have to open a connection.
const MAX_TRIP: Duration = Duration::from_millis(200);

/// The error for a database that is too far away.
#[derive(Debug, thiserror::Error)]
#[error(
    "a round trip to the database takes {} ms; with more than {} ms the lease of this process would be over before it is \
     renewed: run it nearer to the database, or find what slows the way there",
    trip.as_millis(), MAX_TRIP.as_millis()
)]
struct TooFar {
    trip: Duration,
}

/// Checks that a process can renew its lease in time.
///
/// # Errors
/// When a round trip takes too long, or the database is not reached.
pub(crate) async fn check(connections: &PostgresConnections) -> sqlx::Result<()> {
    let trip = connections.round_trip().await?;
    if trip > MAX_TRIP { Err(sqlx::Error::Configuration(Box::new(TooFar { trip }))) } else { Ok(()) }
}
