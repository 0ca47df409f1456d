//! Signs the receipt of a turn that ends.

use annex_auth::receipt::{SignedReceipt, metadata_key};
use annex_conversation::Entry;
use annex_protocol::{Json, Message};

use super::Turn;
use crate::receipts::{StoredReceipt, TurnEndFacts, TurnFacts, added_to};
use crate::tasks::long_work::LongWork;

/// The reason why entries of a turn get no receipt.
#[derive(Debug, thiserror::Error)]
#[error("the last entries of the turn have no status that could have the receipt")]
struct NoStatus;

impl Turn {
    /// The last entries of the turn with its receipt, and the receipt. `None` if the receipt cannot be signed.
    pub(super) async fn with_receipt(&mut self, entries: &[Entry]) -> Option<(Vec<Entry>, SignedReceipt)> {
        // `self` is exclusive, because the future of a turn is sent between threads, and its chain cannot be shared.
        let task = self.context.conversation.task().await.with(entries);
        // The digests cover all artifacts of the task.
        let long = LongWork::begin(task.size().bytes).await;
        let signed = self.sign(TurnEndFacts::of_task(&task));
        drop(long);
        let signed = signed?;
        let with_receipt = added_to(entries, &signed);
        if with_receipt.is_none() {
            self.log_unsigned(&NoStatus);
        }
        with_receipt.map(|entries| (entries, signed))
    }

    /// Adds the receipt of the turn to the message that is its answer.
    pub(super) fn sign_answer(&self, message: &mut Message) -> Option<SignedReceipt> {
        self.handler.receipts.as_ref()?;
        let signed = self.sign(TurnEndFacts::of_answer(message))?;
        message.metadata.insert(metadata_key(signed.link.number), Json::string(&signed.jws));
        Some(signed)
    }

    /// Sends a copy of a stored receipt to the audit file, if there is one. The turn does not wait for the file.
    pub(super) fn send_copy(&self, signed: SignedReceipt) {
        let Some(receipts) = self.handler.receipts.as_ref() else { return };
        let Some(copies) = &receipts.copies else { return };
        let (context, task) = (&self.context.context_id, &self.context.task_id);
        let copy = StoredReceipt {
            tenant: receipts.issuer.tenant.clone(),
            context_id: context.clone(),
            task_id: task.clone(),
            signed,
        };
        if copies.try_send(copy).is_err() {
            let tenant = self.tenant();
            tracing::error!(target: crate::LOG_TARGET, tenant, %context, %task, "the receipt of a turn is not in the audit file, because too many receipts wait for the file");
        }
    }

    fn sign(&self, end: TurnEndFacts) -> Option<SignedReceipt> {
        let receipts = self.handler.receipts.as_ref()?;
        let facts = TurnFacts {
            context_id: &self.context.context_id,
            task_id: &self.context.task_id,
            message: &self.context.message,
            chain: &self.chain,
        };
        let signed = receipts.sign(&facts, end, &self.context.conversation);
        signed.inspect_err(|error| self.log_unsigned(error)).ok()
    }

    /// Logs that the turn ends without a receipt.
    pub(super) fn log_unsigned(&self, error: &(dyn std::error::Error + 'static)) {
        let (tenant, context, task) = (self.tenant(), &self.context.context_id, &self.context.task_id);
        let reason = crate::fault::text(error);
        tracing::error!(target: crate::LOG_TARGET, tenant, %context, %task, "a turn ends without a receipt: {reason}");
    }
}
