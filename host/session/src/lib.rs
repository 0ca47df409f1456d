//! Sessions: the state and the conversation behind one A2A context.
//!
//! A session belongs to one user of one agent of one tenant. Its state has four scopes, told apart by a prefix of the
//! key (see [`Scope`]). State changes only by appending an [`Event`]. An event and its state delta are stored together
//! or not at all. A revision, counted per session, detects a writer that has not seen the latest event.
//!
//! A [`SessionService`] keeps sessions: in memory ([`InMemorySessionService`]), in a SQLite file
//! ([`SqliteSessionService`]) or in a PostgreSQL database ([`PostgresSessionService`]).
//!
//! The server takes a [`TurnGuard`] from [`Turns`] and opens a [`TurnSession`] with the guard. All reads and writes of
//! that turn go through the `TurnSession`.

#![warn(missing_docs)]

mod artifacts;
mod durability;
mod error;
mod event;
mod event_log;
mod hold;
mod limits;
mod memory;
mod place;
mod postgres;
mod service;
mod session;
mod session_state;
mod sql;
mod sqlite;
mod state;
mod table;
mod turn;
mod turn_session;
mod view;

pub use annex_database::OpenError;
pub use durability::Following;
pub use error::SessionError;
pub use event::{Event, EventError, USER_AUTHOR};
pub use event_log::EventFilter;
pub use limits::{Limits, MAX_KEY_BYTES};
pub use memory::{Bounds, InMemorySessionService};
pub use place::{Joined, TurnPlace};
pub use postgres::{MIGRATIONS as POSTGRES_MIGRATIONS, PostgresSessionService};
pub use service::{Appended, Holdings, OfTurn, Retention, SessionQuery, SessionService, StoredArtifact};
pub use session::{Session, SessionCursor, SessionKey, SessionNames};
pub use session_state::SessionState;
pub use sql::SqlSessionService;
pub use sqlite::SqliteSessionService;
pub use state::{Scope, State, StateDelta};
pub use turn::{TurnGuard, Turns};
pub use turn_session::{Beginning, TurnSession};
