//! Connections, and what callers may make the process hold: bodies that are read, answers that are not read, streams.

pub(crate) mod budget;
pub(crate) mod caller;
pub(crate) mod connection;
pub(crate) mod limits;
pub(crate) mod listener;
pub(crate) mod network;
pub(crate) mod request_body;
pub(crate) mod site;
pub(crate) mod streams;
pub(crate) mod warnings;
pub(crate) mod write_limit;
