//! Checks that the server can listen on the addresses of the config. Each check opens a listener and closes it at once.

use std::io::ErrorKind;
use std::net::SocketAddr;

use super::finding::Finding;
use crate::config::Config;
use crate::process::serve::open;

pub(super) fn examine(config: &Config) -> Vec<Finding> {
    let admin = config.admin.as_ref();
    let of_admin = admin.map(|admin| ("admin.listen", admin.listen));
    let of_metrics = admin.and_then(|admin| Some(("admin.metrics_listen", admin.metrics_listen?)));
    let listeners = [("server.listen", config.server.listen)].into_iter().chain(of_admin).chain(of_metrics);
    listeners.map(|(key, address)| port(key, address)).collect()
}

fn port(key: &str, address: SocketAddr) -> Finding {
    match open(address) {
        Ok(_) => Finding::fine("port", format!("{key}: {address} is free")),
        // The port is in use, too, when the operator examines a running server.
        Err(error) if error.kind() == ErrorKind::AddrInUse => Finding::warning(
            "port",
            format!("{key}: {address} is in use; unless this server is already running there, take another port"),
        ),
        Err(error) => {
            Finding::error("port", format!("{key}: cannot listen on {address}: {error}; take another address"))
        }
    }
}
