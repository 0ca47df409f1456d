//! Connections, and the limits on the memory and streams of callers: request bodies that are not complete, answers that
//! are not read, and open streams.

pub(crate) mod budget;
pub(crate) mod caller;
pub(crate) mod connection;
pub(crate) mod limits;
pub(crate) mod listener;
pub(crate) mod network;
pub(crate) mod peer;
pub(crate) mod request_body;
pub(crate) mod site;
pub(crate) mod streams;
pub(crate) mod tls;
pub(crate) mod warnings;
pub(crate) mod write_limit;
