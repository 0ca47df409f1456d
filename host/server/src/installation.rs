//! What is installed, how it changes while the server runs, and the cards that declare it.

pub(crate) mod card;
pub(crate) mod encoded_card;
pub(crate) mod installer;
pub(crate) mod issuer;
pub(crate) mod published;
pub(crate) mod signing;
pub(crate) mod watch;
