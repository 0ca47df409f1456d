//! Signs receipts of turns with the key of the card.

use std::sync::Arc;

use annex_auth::receipt::Issuer as ReceiptIssuer;
use annex_operations::receipts::{Receipts, StoredReceipt};
use tokio::sync::mpsc;

use crate::config::served::ServedConfig;
use crate::config::wants_receipts;
use crate::installation::issuer::Issuer;

/// Makes the signer of an agent's receipts. `None` if the config asks for no receipts, or has no key. `agent` is the name in
/// receipts if the config has none. `tenant` is empty for the agent of the config itself. `copies` leads to the audit file.
pub(crate) fn receipts(
    config: &ServedConfig,
    issuer: &Issuer,
    (base_url, tenant, agent): (&str, &str, &str),
    copies: Option<mpsc::Sender<StoredReceipt>>,
) -> Option<Arc<Receipts>> {
    if !wants_receipts(config.receipts.as_ref()) {
        return None;
    }
    let signer = Arc::clone(issuer.signer()?);
    let name = config.card.name.as_deref().unwrap_or(agent).to_owned();
    let tenant = (!tenant.is_empty()).then(|| tenant.to_owned());
    let issuer = ReceiptIssuer { url: base_url.to_owned(), name, tenant };
    Some(Arc::new(Receipts { issuer, signer, copies }))
}
