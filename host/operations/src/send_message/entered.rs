//! Gives the turn of a message a permit and a place in the queue of its conversation (the stage `Entered`).

use std::sync::Arc;

use annex_conversation::{AppendError, Arrival, Beginning, Conversation, QueuedTurn, Submission};
use annex_fairness::of_same_tenant;
use annex_leases::Replica;
use annex_protocol::{A2aError, Timestamp};
use annex_runtime::Extension;
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::claims::HeldClaim;
use crate::extension_set::ExtensionSet;
use crate::fault;
use crate::permits::TurnPermit;
use crate::request_handler::RequestHandler;
use crate::send_message::asked::Refused;
use crate::send_message::claimed::{Claimed, check_task};
use crate::send_message::forgotten::cannot_wait;
use crate::send_message::incoming::Incoming;
use crate::tasks::Tasks;
use crate::tasks::record::{self, TaskRecord};

/// A message whose turn runs.
pub(crate) struct Entered {
    pub(crate) incoming: Incoming,
    pub(crate) extensions: Arc<ExtensionSet>,
    pub(crate) active: Vec<Arc<Extension>>,
    /// The claim of the message. `None` for a message that was accepted before, or that is not claimed.
    pub(crate) claim: Option<HeldClaim>,
    pub(crate) permit: TurnPermit,
    pub(crate) conversation: Conversation,
    /// Makes a draining server wait for the turn.
    pub(crate) counted: TaskTrackerToken,
    /// The token that cancels a turn which has waited. The client of such a turn already has the task. `None` for a
    /// turn that did not wait.
    pub(crate) waited: Option<CancellationToken>,
}

/// A message that is accepted, and whose turn waits.
pub(crate) struct Accepted {
    pub(crate) incoming: Incoming,
    pub(crate) extensions: Arc<ExtensionSet>,
    pub(crate) active: Vec<Arc<Extension>>,
    pub(crate) permit: TurnPermit,
    pub(crate) queued: Box<QueuedTurn>,
    pub(crate) counted: TaskTrackerToken,
}

/// Whether a turn that has entered the queue runs now or waits.
pub(crate) enum QueueStanding {
    Runs(Box<Entered>),
    Waits(Box<Accepted>),
}

impl RequestHandler {
    /// Takes a permit and enters the queue of the conversation.
    pub(super) async fn entered(&self, claimed: Claimed) -> Result<QueueStanding, A2aError> {
        let Claimed { incoming, extensions, active, claim, replica } = claimed;
        // The permit comes before the queue, so that waiting turns are limited as well.
        let permit = self.turn_limiter.take(&incoming.call.owner).await?;
        // The message counts as a turn from here on, so a draining server waits for it.
        let counted = self.process.running.token();
        self.check_begins()?;
        let (arrival, claim) = self.enter(&incoming, claim, replica).await?;
        match arrival {
            Arrival::Runs(conversation) => {
                let waited = None;
                let entered = Entered { incoming, extensions, active, claim, permit, conversation, counted, waited };
                match self.check_entered(&entered).await {
                    Ok(()) => Ok(QueueStanding::Runs(Box::new(entered))),
                    Err(error) => Err(Refused { entered, error }.leave_nothing().await),
                }
            }
            Arrival::Waits(queued) => {
                if let Some(claim) = claim {
                    claim.settle();
                }
                Ok(QueueStanding::Waits(Box::new(Accepted { incoming, extensions, active, permit, queued, counted })))
            }
        }
    }

    /// Enters the queue of the conversation. The attempt completes even if the client disconnects. In that case the place in
    /// the queue is released first, and then the claim.
    pub(crate) async fn enter(
        &self,
        incoming: &Incoming,
        claim: Option<HeldClaim>,
        replica: Replica,
    ) -> Result<(Arrival, Option<HeldClaim>), A2aError> {
        let beginning = self.beginning(incoming.record.as_deref());
        let submission = Submission {
            replica: replica.clone(),
            task: incoming.task_id.clone(),
            since: Timestamp::now(),
            message: claim.as_ref().map(|claim| claim.key().clone()),
            request: self.stored_request(incoming),
            resume: self.stored_turn(&incoming.lasting),
            // A message that waits is stored.
            max_waiting: if incoming.forgotten.is_empty() { self.turn_limiter.bounds().waiting } else { 0 },
        };
        let (store, key) = (Arc::clone(self.process.tasks.store()), incoming.key.clone());
        let entering = async move {
            let arrival = Conversation::enter(&store, key, submission, beginning).await?;
            Ok((arrival, claim))
        };
        // Nothing waits for a store in memory.
        let entered = match self.process.tasks.process().store_outlives() {
            true => tokio::spawn(of_same_tenant(entering)).await.map_err(|error| fault::internal(&error))?,
            false => entering.await,
        };
        entered.map_err(|error| match (&error, &incoming.record) {
            // Another turn has entered for the task since the task was read.
            (AppendError::Fenced, Some(record)) if !replica.is_over() => record::worked_on(record),
            (AppendError::QueueFull { .. }, _) if !incoming.forgotten.is_empty() => cannot_wait(incoming.context_id()),
            _ => fault::of_append(error),
        })
    }

    /// The input for the conversation of a turn. `record` is the task, or `None` for a new task.
    pub(crate) fn beginning(&self, record: Option<&TaskRecord>) -> Beginning {
        let task = record.map(TaskRecord::numbered);
        Beginning { task, limits: self.process.tasks.limits(), history: self.agent.reads_history() }
    }

    /// Checks the conditions that can change until the turn runs: the quota of sessions, and the state of the task.
    async fn check_entered(&self, entered: &Entered) -> Result<(), A2aError> {
        if !entered.incoming.is_new && !entered.conversation.exists() {
            self.check_new_session()?;
        }
        if let Some(record) = &entered.incoming.record {
            // The task may have changed before the turn entered. From now on nobody else changes it.
            entered.follow_task(record).await?;
            check_task(Some(record))?;
            Tasks::check_question(record, entered.incoming.asked)?;
        }
        Ok(())
    }
}

impl Entered {
    /// Reads the stored task. Other turns can no longer change the task, because this turn has entered the queue.
    pub(crate) async fn follow_task(&self, record: &TaskRecord) -> Result<(), A2aError> {
        let is_there = record.refresh_all().await.map_err(fault::of_store)?;
        if !is_there {
            return Err(A2aError::TaskNotFound { task_id: record.id().clone() });
        }
        let (task, number) = record.numbered();
        self.conversation.follow(task, number).await;
        record.is_entered();
        Ok(())
    }

    /// The time since which the task is SUBMITTED, if the message opens the task.
    pub(super) async fn opens(&self) -> Option<Timestamp> {
        match &self.incoming.record {
            Some(record) => record.opens(),
            None => self.conversation.task().await.status_at(),
        }
    }
}
