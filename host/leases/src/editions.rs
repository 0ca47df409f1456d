//! Editions: the extensions and the cards that all processes on one database serve for an agent.
//!
//! A process proposes an edition. Each process that serves the agent tries the edition and reports the result. One statement
//! accepts the edition if all processes with a valid lease can serve it. New requests then use this edition. This module does
//! not read the content of an edition.

use std::sync::Arc;
use std::time::Duration;

use annex_database::{Database, OpenError, PostgresConnections, PostgresDatabase, Row, Value, from_sql, may_pass};

use crate::{Lease, MIGRATIONS, Replica};

mod statements;

/// The database failed.
#[derive(Debug, thiserror::Error)]
#[error("the database of the editions failed")]
pub struct EditionsError(#[from] sqlx::Error);

/// Proposes, accepts and reads the editions in one database, for one process. Each agent has its own editions and is named by
/// its tenant. The agent of the config has an empty tenant.
#[derive(Debug)]
pub struct Editions {
    database: PostgresDatabase,
    lease: Arc<Lease>,
}

/// The extensions that all processes serve for one agent, and their cards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edition {
    /// The number of the edition. It counts all proposals for the agent, accepted or not.
    pub number: u64,
    /// The digest of the config that named the extensions.
    pub config: String,
    /// The extensions, as the proposer wrote them.
    pub sources: String,
    /// The cards, as the proposer or the last process that renewed them wrote them.
    pub cards: String,
    /// How often the cards were renewed since the edition was accepted.
    pub renewals: u64,
}

/// A renewal of the cards of an edition. Each renewal is made by one process.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// The tenant of the agent.
    pub tenant: &'a str,
    /// The number of the edition.
    pub number: u64,
    /// How often the cards were renewed before.
    pub renewals: u64,
}

/// A proposal of an edition.
#[derive(Clone, Copy, Debug)]
pub struct Proposal<'a> {
    /// The tenant of the agent.
    pub tenant: &'a str,
    /// The number of the edition in force; 0 for the first proposal.
    pub parent: u64,
    /// The digest of the config, see [`Edition::config`].
    pub config: &'a str,
    /// The extensions, see [`Edition::sources`].
    pub sources: &'a str,
    /// The cards, see [`Edition::cards`].
    pub cards: &'a str,
    /// The digests of the components. The database has these components already.
    pub digests: &'a [String],
    /// The time within which the edition must be accepted.
    pub limit: Duration,
}

/// The processes that have to agree to an edition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    /// All processes that serve the agent.
    OfAll,
    /// The processes that can serve the edition. Each other process has to report a reason against the edition.
    OfThoseWhoCan,
}

/// A report on a proposal, by a process with a valid lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The name of the process, or the id of its replica if the process has no name.
    pub replica: String,
    /// The outcome of the trial.
    pub finding: Finding,
}

/// The outcome of a trial of an edition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The process has not tried the edition yet.
    Nothing,
    /// The process can serve the edition.
    Ready,
    /// The process cannot serve the edition, for this reason.
    Unable(String),
}

/// An edition that a process has to serve or to try next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The tenant of the agent.
    pub tenant: String,
    /// The number of the edition.
    pub number: u64,
    /// True for the edition in force, false for a proposal.
    pub is_in_force: bool,
}

impl Editions {
    /// Creates missing tables and runs their migrations.
    ///
    /// # Errors
    /// The errors of [`PostgresDatabase::open`].
    pub async fn open(connections: &PostgresConnections, lease: Arc<Lease>) -> Result<Self, OpenError> {
        Ok(Self { database: PostgresDatabase::open(connections, MIGRATIONS).await?, lease })
    }

    /// The lease of this process.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Marks components as in use, which keeps them from being deleted. Returns false if a component is missing in the
    /// database.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn touch(&self, digests: &[String]) -> Result<bool, EditionsError> {
        let touched = self.database.change(statements::TOUCH, &[Value::Text(&as_json(&digests))]).await?;
        Ok(touched.len() == digests.len())
    }

    /// Stores a component, unless the database has a component with this digest.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn keep(&self, digest: &str, bytes: &[u8]) -> Result<(), EditionsError> {
        // The database has most components already, so their bytes need not be sent.
        if !self.touch(&[digest.to_owned()]).await? {
            self.database.change(statements::KEEP, &[Value::Text(digest), Value::Bytes(bytes)]).await?;
        }
        Ok(())
    }

    /// The bytes of a component; `None` if no component has the digest.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn component(&self, digest: &str) -> Result<Option<Vec<u8>>, EditionsError> {
        let rows = self.database.read(statements::SELECT_BYTES, &[Value::Text(digest)]).await?;
        Ok(rows.first().map(|row| row.bytes(0)).transpose()?)
    }

    /// The edition in force; `None` before the first edition is accepted.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn current(&self, tenant: &str) -> Result<Option<Edition>, EditionsError> {
        let rows = self.database.read(statements::SELECT_CURRENT, &[Value::Text(tenant)]).await?;
        Ok(rows.first().map(edition).transpose()?)
    }

    /// The edition with this number. `None` if the edition was withdrawn or deleted.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn edition(&self, tenant: &str, number: u64) -> Result<Option<Edition>, EditionsError> {
        let values = [Value::Text(tenant), Value::count(number)];
        let rows = self.database.read(statements::SELECT_EDITION, &values).await?;
        Ok(rows.first().map(edition).transpose()?)
    }

    /// True if one of the last eight accepted editions was made of this config.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn has_seen(&self, tenant: &str, config: &str) -> Result<bool, EditionsError> {
        let values = [Value::Text(tenant), Value::Text(config)];
        Ok(!self.database.read(statements::SELECT_SEEN, &values).await?.is_empty())
    }

    /// True if another process with a valid lease serves the agent.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn has_others(&self, tenant: &str) -> Result<bool, EditionsError> {
        let replica = self.lease.replica();
        let values = [Value::Text(tenant), Value::Text(replica.id())];
        Ok(!self.database.read(statements::SELECT_OTHERS, &values).await?.is_empty())
    }

    /// Proposes an edition and returns its number. The proposing process must be able to serve the edition. Returns `None` if
    /// the agent has another proposal, if the parent is not in force, or if the lease of `proposer` has ended.
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
            // The proposal may be stored although the answer was lost. It would block all others until its time is up.
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

    /// The reports on a proposal by the processes with a valid lease. The proposer does not report.
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

    /// Accepts a proposal and returns true, if the processes of `consent` agree. Otherwise returns false and changes nothing.
    /// Also returns false if the lease of the proposer or the time limit of the proposal has ended.
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

    /// Withdraws a proposal. Returns false if the proposal was accepted or withdrawn before.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn withdraw(&self, proposer: &Replica, tenant: &str, number: u64) -> Result<bool, EditionsError> {
        let values = [Value::Text(tenant), Value::count(number), Value::Text(proposer.id())];
        Ok(!self.database.change(statements::WITHDRAW, &values).await?.is_empty())
    }

    /// The names of the processes with a valid lease that may still serve an edition with a number below `number`.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn behind(&self, tenant: &str, number: u64) -> Result<Vec<String>, EditionsError> {
        let values = [Value::Text(tenant), Value::count(number)];
        let rows = self.database.read(statements::SELECT_BEHIND, &values).await?;
        Ok(rows.iter().map(|row| row.text(0)).collect::<sqlx::Result<_>>()?)
    }

    /// Records the agents that the process serves: each entry of `served` is a tenant and the lowest number of an edition that
    /// the process still serves. After this call, a new proposal for one of these agents needs the consent of the process.
    /// Returns false if the lease of the process has ended.
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

    /// Removes the process from the processes that serve the agent.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn leave(&self, replica: &Replica, tenant: &str) -> Result<(), EditionsError> {
        self.database.change(statements::LEAVE, &[Value::Text(tenant), Value::Text(replica.id())]).await?;
        Ok(())
    }

    /// Reports the result of trying a proposal. `reason` tells why the process cannot serve the edition. `None` if the process
    /// can serve it.
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

    /// Tells the other processes that this process no longer serves editions of the agent with a number below `number`.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn serve_from(&self, replica: &Replica, tenant: &str, number: u64) -> Result<(), EditionsError> {
        let values = [Value::Text(tenant), Value::Text(replica.id()), Value::count(number)];
        self.database.change(statements::SERVE_FROM, &values).await?;
        Ok(())
    }

    /// The editions that the process has to serve or to try, for all its agents.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn news(&self, replica: &Replica) -> Result<Vec<News>, EditionsError> {
        let rows = self.database.read(statements::SELECT_NEWS, &[Value::Text(replica.id())]).await?;
        Ok(rows.iter().map(news).collect::<sqlx::Result<_>>()?)
    }

    /// Claims the renewal of the cards of the edition in force, for `limit`. Returns false if the cards were renewed since, if
    /// another process with a valid lease has a claim, or if a later edition is in force.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn claim(&self, replica: &Replica, round: &Round<'_>, limit: Duration) -> Result<bool, EditionsError> {
        let values = [
            Value::Text(round.tenant),
            Value::count(round.number),
            Value::count(round.renewals),
            Value::Text(replica.id()),
            Value::count(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
        ];
        Ok(!self.database.change(statements::CLAIM, &values).await?.is_empty())
    }

    /// Replaces the cards of an edition and ends the claim. Returns false, and changes nothing, if the process has no claim any
    /// more.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn renew(&self, replica: &Replica, round: &Round<'_>, cards: &str) -> Result<bool, EditionsError> {
        let values = [
            Value::Text(round.tenant),
            Value::count(round.number),
            Value::count(round.renewals),
            Value::Text(replica.id()),
            Value::Text(cards),
        ];
        Ok(!self.database.change(statements::RENEW, &values).await?.is_empty())
    }

    /// The editions that the process serves and whose cards were renewed: tenant, number and count of renewals.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn renewed(&self, replica: &Replica) -> Result<Vec<(String, u64, u64)>, EditionsError> {
        let rows = self.database.read(statements::SELECT_RENEWED, &[Value::Text(replica.id())]).await?;
        Ok(rows.iter().map(renewal).collect::<sqlx::Result<_>>()?)
    }

    /// Withdraws proposals whose proposer lost its lease or whose time limit has passed. Deletes old editions, but keeps the
    /// current edition and the last eight editions of each agent. Also deletes components that no edition uses.
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
    let number = from_sql(row.int(0)?);
    let renewals = from_sql(row.int(4)?);
    Ok(Edition { number, config: row.text(1)?, sources: row.text(2)?, cards: row.text(3)?, renewals })
}

fn renewal<R: Row>(row: &R) -> sqlx::Result<(String, u64, u64)> {
    Ok((row.text(0)?, from_sql(row.int(1)?), from_sql(row.int(2)?)))
}

fn report<R: Row>(row: &R) -> sqlx::Result<Report> {
    let finding = match row.int(1)? {
        0 => Finding::Nothing,
        1 => Finding::Ready,
        _ => Finding::Unable(row.text(2)?),
    };
    Ok(Report { replica: row.text(0)?, finding })
}

fn news<R: Row>(row: &R) -> sqlx::Result<News> {
    Ok(News { tenant: row.text(0)?, number: from_sql(row.int(1)?), is_in_force: row.int(2)? == 1 })
}

fn as_json<T: serde::Serialize>(value: &T) -> String {
    // Texts and numbers are always valid JSON.
    serde_json::to_string(value).unwrap_or_default()
}
