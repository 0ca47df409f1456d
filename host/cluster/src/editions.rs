//! Editions: what an agent is served with by all processes on one database, and how they agree on something else.
//!
//! A process proposes an edition. Each one that serves the agent tries it and reports, and one statement puts it in force if
//! all whose lease holds can serve it. What is in an edition is not known here.

use std::sync::Arc;
use std::time::Duration;

use annex_database::{
    Database, Migrations, OpenError, PostgresConnections, PostgresDatabase, Row, Value, from_sql, may_pass,
};

use crate::{Lease, Replica};

mod statements;

/// The migrations of the tables of editions.
pub const MIGRATIONS: Migrations = Migrations {
    // Tables of their own, so that the tables of tasks stay at the version that an earlier program starts on.
    table: "_cluster_migrations",
    files: &[(1, "editions", include_str!("../migrations/1_editions.sql"))],
};

/// The database does not say what it is asked.
#[derive(Debug, thiserror::Error)]
#[error("the database of the editions failed")]
pub struct EditionsError(#[from] sqlx::Error);

/// The editions in one database, for one process. An agent is named by its tenant, which is empty for that of the config.
#[derive(Debug)]
pub struct Editions {
    database: PostgresDatabase,
    lease: Arc<Lease>,
}

/// One edition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edition {
    /// Counts the editions of the agent, those that never came in force too.
    pub number: u64,
    /// The digest of what a config named when it came in force.
    pub config: String,
    /// Its extensions, as the proposer wrote them.
    pub sources: String,
    /// Its cards, as the proposer wrote them.
    pub cards: String,
}

/// A set of extensions that is proposed.
#[derive(Clone, Copy, Debug)]
pub struct Proposal<'a> {
    /// The agent.
    pub tenant: &'a str,
    /// The number of the edition that it follows; 0 for the first.
    pub parent: u64,
    /// As in [`Edition`].
    pub config: &'a str,
    /// As in [`Edition`].
    pub sources: &'a str,
    /// As in [`Edition`].
    pub cards: &'a str,
    /// The components that it needs, which are kept.
    pub digests: &'a [String],
    /// It cannot come in force later.
    pub limit: Duration,
}

/// Whose agreement puts an edition in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    /// That of all processes.
    OfAll,
    /// That of the processes that can serve it. The others have to say that they cannot.
    OfThoseWhoCan,
}

/// The finding of a process whose lease holds on a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The name of the process, or its id where it has none.
    pub replica: String,
    /// Its finding.
    pub found: Found,
}

/// The outcome of trying an edition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It has not been tried yet.
    Nothing,
    /// It can be served.
    Ready,
    /// It cannot, for this reason.
    Unable(String),
}

/// An edition that a process has to take or to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The agent.
    pub tenant: String,
    /// The edition.
    pub number: u64,
    /// True if it is in force, false if it is proposed.
    pub is_in_force: bool,
}

impl Editions {
    /// Makes the tables if they are not there. The table of replicas is.
    ///
    /// # Errors
    /// As [`PostgresDatabase::open`].
    pub async fn open(connections: &PostgresConnections, lease: Arc<Lease>) -> Result<Self, OpenError> {
        Ok(Self { database: PostgresDatabase::open(connections, MIGRATIONS).await?, lease })
    }

    /// The lease of this process.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Notes that components are needed. Returns false if one of them is not kept.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn touch(&self, digests: &[String]) -> Result<bool, EditionsError> {
        let touched = self.database.change(statements::TOUCH, &[Value::Text(&as_json(&digests))]).await?;
        Ok(touched.len() == digests.len())
    }

    /// Keeps a component.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn keep(&self, digest: &str, bytes: &[u8]) -> Result<(), EditionsError> {
        // Most are there already, and need not be sent.
        if !self.touch(&[digest.to_owned()]).await? {
            self.database.change(statements::KEEP, &[Value::Text(digest), Value::Bytes(bytes)]).await?;
        }
        Ok(())
    }

    /// The bytes of a component.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn component(&self, digest: &str) -> Result<Option<Vec<u8>>, EditionsError> {
        let rows = self.database.read(statements::SELECT_BYTES, &[Value::Text(digest)]).await?;
        Ok(rows.first().map(|row| row.bytes(0)).transpose()?)
    }

    /// The edition in force; `None` before the first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn current(&self, tenant: &str) -> Result<Option<Edition>, EditionsError> {
        let rows = self.database.read(statements::SELECT_CURRENT, &[Value::Text(tenant)]).await?;
        Ok(rows.first().map(edition).transpose()?)
    }

    /// The edition of this number; `None` for one that is withdrawn, or forgotten.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn edition(&self, tenant: &str, number: u64) -> Result<Option<Edition>, EditionsError> {
        let values = [Value::Text(tenant), Value::count(number)];
        let rows = self.database.read(statements::SELECT_EDITION, &values).await?;
        Ok(rows.first().map(edition).transpose()?)
    }

    /// True if an edition of this config is or was in force, one of the last eight.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn has_seen(&self, tenant: &str, config: &str) -> Result<bool, EditionsError> {
        let values = [Value::Text(tenant), Value::Text(config)];
        Ok(!self.database.read(statements::SELECT_SEEN, &values).await?.is_empty())
    }

    /// True if another process whose lease holds serves the agent.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn has_others(&self, tenant: &str) -> Result<bool, EditionsError> {
        let replica = self.lease.replica();
        let values = [Value::Text(tenant), Value::Text(replica.id())];
        Ok(!self.database.read(statements::SELECT_OTHERS, &values).await?.is_empty())
    }

    /// Proposes an edition as `proposer`, which can serve it. Returns its number; `None` while there is another proposal,
    /// where the parent is not in force, or where the lease of the proposer is over.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn propose(&self, proposer: &Replica, proposal: &Proposal<'_>) -> Result<Option<u64>, EditionsError> {
        self.database.change(statements::WITHDRAW_LEFT, &[]).await?;
        let digests = as_json(&proposal.digests);
        let values = [
            Value::Text(proposal.tenant),
            Value::count(proposal.parent),
            Value::Text(proposer.id()),
            Value::count(u64::try_from(proposal.limit.as_millis()).unwrap_or(u64::MAX)),
            Value::Text(proposal.config),
            Value::Text(proposal.sources),
            Value::Text(proposal.cards),
            Value::Text(&digests),
        ];
        let rows = match self.database.change(statements::PROPOSE, &values).await {
            // The answer may be lost and not the proposal, which would be in the way of all others until its time is up.
            Err(error) if may_pass(&error) => {
                let rows = self.database.read(statements::SELECT_PROPOSED, &values[..3]).await?;
                if rows.is_empty() {
                    return Err(error.into());
                }
                rows
            }
            made => made?,
        };
        Ok(rows.first().map(|row| row.int(0).map(from_sql)).transpose()?)
    }

    /// The findings on a proposal of the processes whose lease holds, but for the proposer.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn reports(
        &self,
        proposer: &Replica,
        (tenant, number): (&str, u64),
    ) -> Result<Vec<Report>, EditionsError> {
        let values = [Value::Text(tenant), Value::count(number), Value::Text(proposer.id())];
        let rows = self.database.read(statements::SELECT_REPORTS, &values).await?;
        Ok(rows.iter().map(report).collect::<sqlx::Result<_>>()?)
    }

    /// Puts a proposal in force, if those whose consent it takes have given it. Returns false, and has changed nothing, if not,
    /// and where the lease of the proposer or the time of the proposal is over.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn conclude(
        &self,
        proposer: &Replica,
        (tenant, number): (&str, u64),
        consent: Consent,
    ) -> Result<bool, EditionsError> {
        let overlooks = Value::Int(i64::from(consent == Consent::OfThoseWhoCan));
        let values = [Value::Text(tenant), Value::count(number), Value::Text(proposer.id()), overlooks];
        Ok(!self.database.change(statements::CONCLUDE, &values).await?.is_empty())
    }

    /// Takes a proposal back. Returns false if it is in force, or withdrawn already.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn withdraw(&self, proposer: &Replica, tenant: &str, number: u64) -> Result<bool, EditionsError> {
        let values = [Value::Text(tenant), Value::count(number), Value::Text(proposer.id())];
        Ok(!self.database.change(statements::WITHDRAW, &values).await?.is_empty())
    }

    /// The processes whose lease holds and that may still serve something older.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn behind(&self, tenant: &str, number: u64) -> Result<Vec<String>, EditionsError> {
        let values = [Value::Text(tenant), Value::count(number)];
        let rows = self.database.read(statements::SELECT_BEHIND, &values).await?;
        Ok(rows.iter().map(|row| row.text(0)).collect::<sqlx::Result<_>>()?)
    }

    /// The process serves these agents, each with nothing older than that edition, and is asked from now on. Returns false if
    /// its lease is over.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn join(&self, replica: &Replica, served: &[(&str, u64)]) -> Result<bool, EditionsError> {
        let rows: Vec<_> =
            served.iter().map(|(tenant, number)| serde_json::json!({"tenant": tenant, "number": number})).collect();
        let rows = as_json(&rows);
        let joined = self.database.change(statements::JOIN, &[Value::Text(replica.id()), Value::Text(&rows)]).await?;
        Ok(joined.len() == served.len())
    }

    /// The process serves the agent no longer.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn leave(&self, replica: &Replica, tenant: &str) -> Result<(), EditionsError> {
        self.database.change(statements::LEAVE, &[Value::Text(tenant), Value::Text(replica.id())]).await?;
        Ok(())
    }

    /// The process has tried a proposal, and cannot serve it where there is a reason.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn report(
        &self,
        replica: &Replica,
        (tenant, number): (&str, u64),
        reason: Option<&str>,
    ) -> Result<(), EditionsError> {
        let values = [Value::Text(tenant), Value::Text(replica.id()), Value::count(number), Value::MaybeText(reason)];
        self.database.change(statements::REPORT, &values).await?;
        Ok(())
    }

    /// The process serves nothing older than this edition any more.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn serve_from(&self, replica: &Replica, tenant: &str, number: u64) -> Result<(), EditionsError> {
        let values = [Value::Text(tenant), Value::Text(replica.id()), Value::count(number)];
        self.database.change(statements::SERVE_FROM, &values).await?;
        Ok(())
    }

    /// The editions that the process has to take or to try, of all agents that it serves.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn news(&self, replica: &Replica) -> Result<Vec<News>, EditionsError> {
        let rows = self.database.read(statements::SELECT_NEWS, &[Value::Text(replica.id())]).await?;
        Ok(rows.iter().map(news).collect::<sqlx::Result<_>>()?)
    }

    /// Withdraws proposals that nobody concludes any more. Forgets all editions but the last eight of each agent and the one
    /// in force, and components that none of them names.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn sweep(&self) -> Result<(), EditionsError> {
        for sql in [statements::WITHDRAW_LEFT, statements::FORGET_EDITIONS, statements::FORGET_COMPONENTS] {
            self.database.change(sql, &[]).await?;
        }
        Ok(())
    }
}

fn edition<R: Row>(row: &R) -> sqlx::Result<Edition> {
    Ok(Edition { number: from_sql(row.int(0)?), config: row.text(1)?, sources: row.text(2)?, cards: row.text(3)? })
}

fn report<R: Row>(row: &R) -> sqlx::Result<Report> {
    let found = match row.int(1)? {
        0 => Found::Nothing,
        1 => Found::Ready,
        _ => Found::Unable(row.text(2)?),
    };
    Ok(Report { replica: row.text(0)?, found })
}

fn news<R: Row>(row: &R) -> sqlx::Result<News> {
    Ok(News { tenant: row.text(0)?, number: from_sql(row.int(1)?), is_in_force: row.int(2)? == 1 })
}

fn as_json<T: serde::Serialize>(value: &T) -> String {
    // Texts and numbers always are JSON.
    serde_json::to_string(value).unwrap_or_default()
}
