//! File descriptors: the limit of the process, compared with the number that the config needs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;
use crate::connections::limits::OF_ADMIN;

/// The number of descriptors for files, databases and connections to peers.
const RESERVE: u64 = 512;

/// Raises the soft limit on open files to the number that the config needs, but not above the hard limit. Logs a
/// warning if the hard limit is too low. Child processes of the agent inherit the limit.
pub(crate) fn provide(config: &Config) {
    let wanted = wanted(config);
    let limit = getrlimit(Resource::Nofile);
    let raised = raised(limit, wanted);
    if raised != limit.current {
        match setrlimit(Resource::Nofile, Rlimit { current: raised, ..limit }) {
            Ok(()) => tracing::debug!(from = limit.current, to = raised, "raised the limit on open files"),
            // If the old limit is too low, the warning below tells the operator.
            Err(error) => tracing::debug!(%error, "cannot raise the limit on open files"),
        }
    }
    // The limit is read again, because raising it may have failed.
    if let Some(warning) = shortage(getrlimit(Resource::Nofile).current, wanted) {
        tracing::warn!("{warning}");
    }
}

/// Checks that the process may open as many files as the config needs. Changes nothing. `Ok` has a text for the
/// operator, and the error is a warning.
pub(crate) fn check(config: &Config) -> Result<String, String> {
    let wanted = wanted(config);
    let limit = raised(getrlimit(Resource::Nofile), wanted);
    shortage(limit, wanted)
        .map_or_else(|| Ok(format!("the process may open the {wanted} files that the config wants")), Err)
}

/// The number of descriptors that the config needs: one per connection, and a reserve.
fn wanted(config: &Config) -> u64 {
    let admin = config.admin.as_ref().map_or(0, |_| OF_ADMIN.connections);
    let connections = config.server.max_connections.saturating_add(admin);
    u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(RESERVE)
}

/// The soft limit that [`provide`] sets. `None` means unlimited.
fn raised(limit: Rlimit, wanted: u64) -> Option<u64> {
    let current = limit.current?;
    let reachable = limit.maximum.map_or(wanted, |hard| hard.min(wanted));
    Some(current.max(reachable))
}

fn shortage(limit: Option<u64>, wanted: u64) -> Option<String> {
    let limit = limit.filter(|limit| *limit < wanted)?;
    Some(format!(
        "the process may open {limit} files, and the config wants {wanted} (server.max_connections and {RESERVE} for files, \
         databases and peers): clients will wait when they are used up; raise the limit (ulimit -n, LimitNOFILE= of \
         systemd) or lower server.max_connections"
    ))
}

#[cfg(test)]
mod tests {
    use rustix::process::Rlimit;

    use super::{raised, shortage};

    #[test]
    fn the_soft_limit_is_raised_as_far_as_it_helps_and_never_lowered() {
        let cases = [
            ((Some(1_024), Some(4_096)), 2_000, Some(2_000)),
            ((Some(1_024), Some(4_096)), 9_000, Some(4_096)),
            ((Some(1_024), None), 9_000, Some(9_000)),
            ((Some(20_000), Some(40_000)), 9_000, Some(20_000)),
            ((None, None), 9_000, None),
        ];
        for ((current, maximum), wanted, expected) in cases {
            assert_eq!(raised(Rlimit { current, maximum }, wanted), expected, "{current:?} {maximum:?} {wanted}");
        }
    }

    #[test]
    fn a_limit_below_what_is_promised_is_told_with_both_numbers() {
        let warning = shortage(Some(1_024), 16_896).expect("a warning");
        for part in ["1024", "16896", "server.max_connections", "ulimit -n"] {
            assert!(warning.contains(part), "{warning}");
        }
        assert_eq!(shortage(Some(16_896), 16_896), None);
        assert_eq!(shortage(None, 16_896), None);
    }
}
