//! The log of refused changes from clients without a valid token or with a foreign `Host`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::Request;
use axum::http::StatusCode;

use super::action::Action;
use super::caller::is_change;
use crate::audit::Audit;
use crate::audit::record::{Outcome, Record, bounded};
use crate::connections::network::Network;
use crate::connections::warnings::Warnings;

/// The maximum number of networks with log lines of their own. Refusals of further networks share one line.
const MAX_NETWORKS: usize = 1_000;
/// The maximum size, in bytes, of the method in a log line, and of the path.
const MAX_TEXT: usize = 200;

/// The log lines for refused changes. Each network has at most one line per period, because a stranger can send any
/// number of requests.
pub(crate) struct Strangers {
    lines: Mutex<Lines>,
    audit: Option<Arc<Audit>>,
}

#[derive(Default)]
struct Lines {
    of_networks: HashMap<Network, Warnings>,
    of_others: Warnings,
    /// The line in the audit file, which all networks share.
    of_audit: Warnings,
}

impl Strangers {
    pub(super) fn new(audit: Option<Arc<Audit>>) -> Self {
        Self { lines: Mutex::default(), audit }
    }

    /// Logs and records that a request was refused, if it asked for a change.
    pub(crate) fn were_refused(&self, network: &Network, request: &Request, status: StatusCode) {
        if !is_change(request.method()) {
            return;
        }
        self.record(network, request, status);
        let Some(times) = self.lines.lock().unwrap_or_else(PoisonError::into_inner).due(network) else { return };
        let method = annex_text::line_within(request.method().as_str(), MAX_TEXT);
        let path = annex_text::line_within(request.uri().path(), MAX_TEXT);
        let (from, status) = (network.address(), status.as_u16());
        tracing::info!(%from, method, path, status, times, "a change over the admin API was refused");
    }

    /// Records a refusal in the audit file, at most once per period for all networks together, so that strangers cannot
    /// fill the disk.
    fn record(&self, network: &Network, request: &Request, status: StatusCode) {
        let Some(audit) = &self.audit else { return };
        let due = self.lines.lock().unwrap_or_else(PoisonError::into_inner).of_audit.due();
        let Some(times) = due else { return };
        let (method, path) = (request.method(), request.uri().path());
        let action = Action::of(method, path).unwrap_or(Action::Other);
        audit.record_later(Record {
            from: Some(network.address().to_string()),
            request: Some(bounded(&format!("{method} {path}"))),
            status: Some(status.as_u16()),
            times: Some(times),
            ..Record::new(action.name(), Outcome::Refused)
        });
    }
}

impl Lines {
    /// Counts a refusal. If the next line of the network is due, returns the number of refusals since the last line.
    fn due(&mut self, network: &Network) -> Option<usize> {
        if self.of_networks.len() >= MAX_NETWORKS && !self.of_networks.contains_key(network) {
            self.of_networks.retain(|_, warnings| warnings.is_pausing());
            if self.of_networks.len() >= MAX_NETWORKS {
                return self.of_others.due();
            }
        }
        self.of_networks.entry(*network).or_default().due()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use super::{Lines, MAX_NETWORKS};
    use crate::connections::network::Network;

    #[tokio::test(start_paused = true)]
    async fn each_network_has_a_line_in_a_while_and_only_so_many_are_remembered() {
        let mut lines = Lines::default();
        let network = |number: usize| {
            let bits = u32::try_from(number).expect("a small number");
            Network::of(IpAddr::V4(Ipv4Addr::from_bits(bits)))
        };
        for number in 0..MAX_NETWORKS {
            assert_eq!(lines.due(&network(number)), Some(1), "{number}");
        }
        assert_eq!(lines.due(&network(0)), None);
        assert_eq!(lines.due(&network(MAX_NETWORKS)), Some(1));
        assert_eq!(lines.due(&network(MAX_NETWORKS + 1)), None, "those beyond share their lines");
        assert_eq!(lines.of_networks.len(), MAX_NETWORKS);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(lines.due(&network(0)), Some(2));
        assert_eq!(lines.due(&network(MAX_NETWORKS)), Some(1));
        assert_eq!(lines.of_networks.len(), 2, "those that ask no more are forgotten");
    }
}
