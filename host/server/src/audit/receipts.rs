//! Receipts of turns in the audit file. A task of its own writes them, so that no turn waits for the file.

use std::sync::Arc;

use annex_auth::receipt::SignedReceipt;
use annex_operations::receipts::StoredReceipt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Audit;
use super::record::{Outcome, ReceiptCopy, Record, Subject};

/// The maximum number of receipts that wait for the file. Further receipts are only in their tasks.
pub(crate) const MAX_WAITING: usize = 1_024;
/// The maximum number of receipts that are written together.
const MAX_TOGETHER: usize = 64;
/// The maximum size of a JWS in a line, in bytes. A line for a longer one has only its digest.
const MAX_JWS_BYTES: usize = 32 << 10;
/// The `action` of a line with a receipt.
const SIGN_RECEIPT: &str = "sign_receipt";

impl Audit {
    /// Begins to append the receipts that come from `receipts`. Ends after `closing` is cancelled, when no receipt waits.
    pub(crate) fn follow(self: &Arc<Self>, mut receipts: mpsc::Receiver<StoredReceipt>, closing: CancellationToken) {
        let audit = Arc::clone(self);
        self.writers.spawn(async move {
            let mut batch = Vec::new();
            while let Some(1..) = closing.run_until_cancelled(receipts.recv_many(&mut batch, MAX_TOGETHER)).await {
                audit.append_receipts(&mut batch).await;
            }
            receipts.close();
            while receipts.recv_many(&mut batch, MAX_TOGETHER).await > 0 {
                audit.append_receipts(&mut batch).await;
            }
        });
    }

    /// Waits until all receipts are written. Called after the last turn.
    pub(crate) async fn close(&self) {
        self.writers.close();
        self.writers.wait().await;
    }

    /// Appends the receipts in `batch`, and empties it. A failure is logged.
    async fn append_receipts(self: &Arc<Self>, batch: &mut Vec<StoredReceipt>) {
        let records: Vec<Record> = batch.drain(..).map(record).collect();
        let receipts = records.len();
        if let Err(error) = self.record_all(records).await {
            tracing::error!(error = annex_text::with_causes(&error), receipts, "receipts are not in the audit file");
        }
    }
}

fn record(StoredReceipt { tenant, context_id, task_id, signed }: StoredReceipt) -> Record {
    let SignedReceipt { jws, link } = signed;
    let (context, task) = (Some(context_id.to_string()), Some(task_id.to_string()));
    let subject = Subject { tenant, context, task, ..Subject::default() };
    let jws = (jws.len() <= MAX_JWS_BYTES).then_some(jws);
    let receipt = ReceiptCopy { number: link.number, sha256: link.digest, jws };
    let record = Record { receipt: Some(receipt), ..Record::new(SIGN_RECEIPT, Outcome::Done) };
    record.about(&subject)
}
