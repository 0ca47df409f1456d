//! The checks of an append before its first write, in its transaction.

use annex_database::{Database, Row, Value, from_sql};
use annex_protocol::Timestamp;

use super::append::Write;
use super::statements;
use super::values::{members, named};
use crate::error::AppendError;

/// The row of a conversation, which the transaction has locked.
pub(super) struct Locked {
    pub(super) id: i64,
    pub(super) number: u64,
    turns: String,
    orphan: String,
    is_alive: bool,
}

impl Write {
    /// Locks the row of the conversation. If there is no row, a writer without a turn inserts one.
    pub(super) async fn lock<D: Database>(&self, transaction: &mut D::Transaction) -> Result<Locked, AppendError> {
        let [tenant, app, user, context] = named(&self.key);
        let replica = self.by.as_ref().map_or("", |(fence, _)| fence.replica.id());
        let values = [tenant, app, user, context, Value::Text(replica)];
        let mut rows = D::query(transaction, self.lock, &values).await?;
        if rows.is_empty() && self.by.is_none() && self.at.number == 0 {
            let now = Value::Int(Timestamp::now().as_millis());
            let new = [tenant, app, user, context, now];
            D::execute(transaction, statements::INSERT_CONVERSATION, &new).await?;
            rows = D::query(transaction, self.lock, &values).await?;
        }
        let missing = if self.by.is_some() { AppendError::Fenced } else { AppendError::Missing };
        let row = rows.first().ok_or(missing)?;
        Ok(Locked {
            id: row.int(0)?,
            number: from_sql(row.int(1)?),
            turns: row.text(2)?,
            orphan: row.text(3)?,
            is_alive: row.int(4)? == 1,
        })
    }

    pub(super) async fn check_writer<D: Database>(
        &self,
        transaction: &mut D::Transaction,
        locked: &Locked,
    ) -> Result<(), AppendError> {
        let Some((_, member)) = &self.by else {
            // Updates of a task that no turn works on are nobody's turn's.
            let Some(task) = self.at.task.as_ref().filter(|_| !self.says()) else {
                return if locked.turns.is_empty() { Ok(()) } else { Err(AppendError::Fenced) };
            };
            let values = [Value::Text(task.as_str())];
            let rows = D::query(transaction, statements::SELECT_TURN_OF_TASK, &values).await?;
            return if rows.is_empty() { Ok(()) } else { Err(AppendError::Fenced) };
        };
        let index = members(&locked.turns).position(|other| other == member).ok_or(AppendError::Fenced)?;
        if !locked.is_alive || (index > 0 && (self.says() || !self.ends)) || self.at.task.is_none() {
            return Err(AppendError::Fenced);
        }
        if self.says() && locked.orphan == *member {
            return Err(AppendError::Missing);
        }
        Ok(())
    }

    pub(super) async fn check_position<D: Database>(
        &self,
        transaction: &mut D::Transaction,
        locked: &Locked,
    ) -> Result<(), AppendError> {
        let found = match &self.at.task {
            None => locked.number,
            Some(task) => {
                let rows = D::query(transaction, statements::SELECT_NUMBER, &[Value::Text(task.as_str())]).await?;
                match rows.first() {
                    Some(row) if row.int(0)? != locked.id => return Err(AppendError::Missing),
                    Some(row) => {
                        let found = from_sql(row.int(1)?);
                        if found != self.at.number {
                            return Err(AppendError::Stale { expected: self.at.number, found });
                        }
                        found
                    }
                    None => 0,
                }
            }
        };
        match (self.at.number, found) {
            (expected, found) if expected == found => Ok(()),
            (_, 0) => Err(AppendError::Missing),
            (expected, found) => Err(AppendError::Stale { expected, found }),
        }
    }

    /// True if an earlier attempt has stored the append: the entries of the task after its position are exactly these. Of an end without entries: if the turn has left.
    pub(super) async fn is_stored<D: Database>(
        &self,
        transaction: &mut D::Transaction,
        locked: &Locked,
    ) -> sqlx::Result<bool> {
        let Some(task) = &self.at.task else { return Ok(false) };
        if self.entries.is_empty() {
            return self.has_left::<D>(transaction, (locked, Value::Text(task.as_str()))).await;
        }
        let values = [Value::Text(task.as_str()), Value::count(self.at.number), Value::count(self.entries.len())];
        let rows = D::query(transaction, statements::SELECT_WRITTEN, &values).await?;
        if rows.len() != self.entries.len() {
            return Ok(false);
        }
        for (row, entry) in rows.iter().zip(&self.entries) {
            if row.text(0)? != entry.kind.name() || row.text(1)? != entry.json {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// True if the turn has left the queue with its task as this append leaves it. A turn that another process has taken over
    /// has not left: its task has another fence, or further entries.
    async fn has_left<D: Database>(
        &self,
        transaction: &mut D::Transaction,
        (locked, task): (&Locked, Value<'_>),
    ) -> sqlx::Result<bool> {
        let Some((_, member)) = self.by.as_ref().filter(|_| self.ends) else { return Ok(false) };
        if members(&locked.turns).any(|other| other == member) {
            return Ok(false);
        }
        let stored = D::query(transaction, statements::SELECT_NUMBER, &[task]).await?;
        let Some(stored) = stored.first() else { return Ok(self.deletes_task()) };
        let turns = D::query(transaction, statements::SELECT_TURN_OF_TASK, &[task]).await?;
        Ok(!self.deletes_task() && turns.is_empty() && from_sql::<u64>(stored.int(1)?) == self.at.number)
    }
}
