//! A component of a toolchain with a standard library: its WASI context is empty.

use std::time::Duration;

use annex_runtime::{Fault, Grants, LimitReached, Limits, LoadError};

use crate::capabilities::{capable, fault, grants, load, result, results};
use crate::support::{component, installation, log_of, refused, runtime};

#[tokio::test]
async fn its_world_has_no_environment_arguments_input_or_files() {
    let expected = [
        (r#""environment""#, "[]"),
        (r#""arguments""#, "[]"),
        (r#""input""#, ""),
        (r#"{"read-file": "/etc/passwd"}"#, "error: "),
        (r#"{"read-file": "Cargo.toml"}"#, "error: "),
        (r#"{"write-file": "/tmp/written-by-a-guest"}"#, "error: "),
    ];
    for (command, expected) in expected {
        let result = result(command).await;
        let fits = if expected == "error: " { result.starts_with(expected) } else { result == expected };
        assert!(fits, "{command}: {result}");
    }
    assert!(!std::path::Path::new("/tmp/written-by-a-guest").exists());
}

#[tokio::test]
async fn it_opens_no_socket_and_looks_up_no_name() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let connect = format!(r#"{{"connect": "127.0.0.1:{port}"}}"#);
    let commands =
        [connect.as_str(), r#"{"listen": "127.0.0.1:0"}"#, r#"{"bind": "127.0.0.1:0"}"#, r#"{"resolve": "localhost"}"#];
    for command in commands {
        let result = result(command).await;
        assert!(result.starts_with("error: "), "{command}: {result}");
    }
    listener.set_nonblocking(true).expect("a socket");
    assert!(listener.accept().is_err(), "somebody connected");
}

#[tokio::test]
async fn what_it_prints_are_lines_of_its_log() {
    let log = log_of(async {
        let extension = load(&runtime(), capable()).await;
        let commands = r#"{"print": ["one", "two\u001b[31m"]}, {"complain": "unended"}"#;
        assert_eq!(results(&extension, commands).await, ["ok", "ok"]);
    })
    .await;
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("capabilities/v1")).collect();
    assert_eq!(lines.len(), 3, "{log}");
    assert!(lines[0].contains("INFO") && lines[0].contains("one") && lines[0].contains("stdout"), "{log}");
    assert!(lines[1].contains(r"two\u{1b}[31m"), "{log}");
    assert!(lines[2].contains("WARN") && lines[2].contains("unended") && lines[2].contains("stderr"), "{log}");
}

#[tokio::test]
async fn a_flood_on_standard_output_is_cut_to_what_the_log_takes() {
    let mut installation = capable();
    installation.limits = Limits { host_calls: 1_000_000, log_lines: 5, log_line: 20, ..installation.limits };
    let log = log_of(Box::pin(async {
        let extension = load(&runtime(), installation).await;
        assert_eq!(results(&extension, r#"{"flood": 1000000}"#).await, ["ok"]);
    }))
    .await;
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("xxx")).collect();
    assert_eq!(lines.len(), 5, "{log}");
    assert!(!log.contains(&"x".repeat(21)), "{log}");
    assert!(log.contains("further log lines of this turn are dropped"), "{log}");
}

#[tokio::test]
async fn calls_of_wasi_count_as_host_calls() {
    let mut installation = capable();
    installation.limits.host_calls = 1_000;
    let extension = load(&runtime(), installation).await;
    let fault = fault(&extension, r#"{"flood": 1000000}"#).await;
    assert!(matches!(fault, Fault::LimitReached { limit: LimitReached::HostCalls, .. }), "{fault:?}");
}

#[tokio::test]
async fn a_sleeping_guest_is_stopped_by_the_outer_limit() {
    let mut installation = capable();
    installation.limits.wall = Duration::from_millis(50);
    let extension = load(&runtime(), installation).await;
    assert_eq!(results(&extension, r#"{"sleep": 1}"#).await, ["slept true"]);
    let fault = fault(&extension, r#"{"sleep": 3600000}"#).await;
    assert!(matches!(fault, Fault::LimitReached { limit: LimitReached::Wall, .. }), "{fault:?}");
}

/// With the standard CPU limits: ten ticks per call, two hundred per turn.
#[tokio::test]
async fn waiting_for_a_timer_takes_no_cpu_time() {
    let mut installation = capable();
    (installation.limits.cpu, installation.limits.turn_cpu) = (Limits::standard().cpu, Limits::standard().turn_cpu);
    let extension = load(&runtime(), installation).await;
    let results = results(&extension, &vec![r#"{"sleep": 6}"#; 250].join(", ")).await;
    assert_eq!(results, vec!["slept true"; 250]);
}

#[tokio::test]
async fn random_bytes_come_in_bounded_amounts() {
    let extension = load(&runtime(), capable()).await;
    assert_eq!(results(&extension, r#"{"random": 65536}, "hash""#).await, ["65536", "{1: 2}"]);
    for bytes in ["65537", "4294967296", "18446744073709551615"] {
        let fault = fault(&extension, &format!(r#"{{"random": {bytes}}}"#)).await;
        assert!(matches!(fault, Fault::Trapped { .. }), "{bytes}: {fault:?}");
    }
}

#[tokio::test]
async fn handles_are_bounded_in_number() {
    let extension = load(&runtime(), capable()).await;
    assert_eq!(results(&extension, r#"{"handles": 50}, {"handles": 50}, {"handles": 50}"#).await, ["50"; 3]);
    let fault = fault(&extension, r#"{"handles": 101}"#).await;
    assert!(matches!(fault, Fault::Trapped { .. }), "{fault:?}");
}

#[tokio::test]
async fn a_wasi_component_needs_the_grant_for_its_clock() {
    let mut installation = installation();
    installation.grants = Grants { clock: false, ..grants() };
    let error = refused(component(annex_components::TEST_CAPABILITIES), installation).await;
    assert!(matches!(error, LoadError::NotGranted { .. }), "{error:?}");
    let told = error.to_string();
    assert!(told.contains("wasi:clocks/") && told.contains("`clock = true`"), "{told}");
}
