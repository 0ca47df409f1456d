//! The systemd service in `host/deploy`, and the page about its installation.

use annex_server::ServerConfig;

const UNIT: &str = include_str!("../../../deploy/systemd/annex.service");
const PAGE: &str = include_str!("../../../docs/deployment.md");

/// The most seconds that a server takes to stop after `server.drain_seconds`: turns, programs of tools, notifications,
/// stores, the last metrics and the last spans.
const AFTER_DRAIN: u64 = 10 + 6 + 5 + 5 + 5 + 5;

/// The value of a key that the unit has once.
fn value(key: &str) -> &str {
    let mut values = UNIT.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let value = values.next().unwrap_or_else(|| panic!("{key} is missing"));
    assert_eq!(values.next(), None, "{key}");
    value
}

#[test]
fn a_server_has_stopped_before_systemd_kills_it() {
    let most: u64 = value("TimeoutStopSec").parse().expect("seconds");
    assert!(most > ServerConfig::default().drain_seconds + AFTER_DRAIN, "{most}");
    assert!(PAGE.contains(&format!("`server.drain_seconds` plus {AFTER_DRAIN} seconds")));
}

#[test]
fn the_service_has_the_files_where_the_page_puts_them() {
    let (program, config) = value("ExecStart").split_once(" serve ").expect("serve");
    assert_eq!((program, config), ("/opt/annex/annex", "/etc/annex/annex.toml"));
    assert_eq!(value("EnvironmentFile"), "-/etc/annex/keys.env");
    assert_eq!((value("StateDirectory"), value("CacheDirectory")), ("annex", "annex"));
    // Compiled code is in the folder `annex` of the user's cache.
    assert_eq!(value("Environment"), "XDG_CACHE_HOME=/var/cache");
    for place in ["`/opt/annex`", "`/etc/annex/annex.toml`", "`/etc/annex/keys.env`", "`/var/lib/annex`"] {
        assert!(PAGE.contains(place), "{place}");
    }
}
