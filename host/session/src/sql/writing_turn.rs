//! The statements by which a turn that appends proves its right to write.

use annex_database::{Database, Step, Value};

use super::queue_statements;
use crate::SessionError;
use crate::place::TurnPlace;
use crate::service::OfTurn;

/// A turn that appends, and leaves the queue of its session with that if it is the last time.
pub(super) struct WritingTurn {
    /// Its place in the queue of the session.
    place: TurnPlace,
    /// True if it leaves the queue with this.
    is_last: bool,
}

impl WritingTurn {
    pub(super) fn of(turn: OfTurn<'_>) -> Self {
        Self { place: turn.place.clone(), is_last: turn.is_last }
    }

    /// The parameters by which a statement sees that the turn may write.
    pub(super) fn proof(&self) -> [Value<'_>; 2] {
        [Value::Text(self.place.member()), Value::Text(self.place.replica().id())]
    }

    /// The statement for this turn in place of `statements::ADVANCE_SESSION`.
    pub(super) fn advance(&self) -> &'static str {
        if self.is_last { queue_statements::ADVANCE_SESSION_AND_LEAVE } else { queue_statements::ADVANCE_SESSION }
    }

    /// The statement for this turn in place of `statements::ADVANCE_SESSION_WITHIN`.
    pub(super) fn advance_within(&self) -> &'static str {
        if self.is_last {
            queue_statements::ADVANCE_SESSION_WITHIN_AND_LEAVE
        } else {
            queue_statements::ADVANCE_SESSION_WITHIN
        }
    }

    pub(super) async fn has_lease<D: Database>(&self, transaction: &mut D::Transaction) -> sqlx::Result<bool> {
        let replica = [Value::Text(self.place.replica().id())];
        Ok(!D::query(transaction, queue_statements::SELECT_LEASE, &replica).await?.is_empty())
    }

    /// The step that creates the session.
    pub(super) fn begin_session<'a>(&'a self, values: [Value<'a>; 3], names: [Value<'a>; 4]) -> Step<'a> {
        let [member, replica] = self.proof();
        let values = names.into_iter().chain(values);
        if self.is_last {
            Step::new(queue_statements::BEGIN_SESSION_AND_LEAVE, values.chain([replica, member]).collect::<Vec<_>>())
        } else {
            Step::new(queue_statements::BEGIN_SESSION, values.chain([member, replica, member]).collect::<Vec<_>>())
        }
    }

    /// Removes the turn from the queue of a locked session, or enters the turn into the queue of a new session.
    pub(super) async fn move_on<D: Database>(
        &self,
        transaction: &mut D::Transaction,
        id: i64,
        is_new: bool,
    ) -> Result<(), SessionError> {
        let values = [Value::Int(id), Value::Text(self.place.member())];
        match (self.is_last, is_new) {
            (true, true) | (false, false) => {}
            (true, false) => drop(D::execute(transaction, queue_statements::LEAVE_LOCKED, &values).await?),
            (false, true) => drop(D::execute(transaction, queue_statements::ENTER_NEW, &values).await?),
        }
        Ok(())
    }
}
