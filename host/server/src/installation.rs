//! The installed extensions, how they change while the server runs, and the cards that declare them.

pub(crate) mod allowed;
pub(crate) mod card;
pub(crate) mod denied;
pub(crate) mod editions;
pub(crate) mod encoded_card;
pub(crate) mod file_identity;
pub(crate) mod hiding;
pub(crate) mod installer;
pub(crate) mod issuer;
pub(crate) mod live_cards;
pub(crate) mod locked;
pub(crate) mod named;
pub(crate) mod published;
pub(crate) mod pulling;
pub(crate) mod receipts;
pub(crate) mod shadow;
pub(crate) mod signing;
pub(crate) mod watch;
