//! Attacks in requests: each fails its own request, clearly and without a word of why to the client; its neighbours are
//! served while it runs, and so is the next request.

use std::net::TcpListener;

use super::attack::Attack;
use super::{Arena, CAPABLE, HAND_MADE, Row, TEST, capable, log};
use crate::agent;

/// The outcome that an attack must have.
enum AttackOutcome {
    /// The request is refused with an error id; the log says this.
    Refused(&'static str),
    /// The task fails with an error id; the log says this.
    Failed(&'static str),
    /// The extension gets this error, and the request succeeds.
    Told(&'static str),
}

use AttackOutcome::{Failed, Refused, Told};

fn attacks(port: u16) -> Vec<(Attack, AttackOutcome)> {
    let state = [
        ("loop", "reached its CPU time limit in state"),
        ("costly-schema", "reached its "),
        ("costly-pattern", "time limit in state"),
        ("memory-bomb", "reached its memory limit in state"),
        ("stack-overflow", "trapped in state"),
        ("trap", "trapped in state"),
        ("panic", "trapped in state"),
        ("log-flood 10000000", "reached its limit of host calls in state"),
        ("big-result 2000000", "reached its limit of output bytes in state"),
        ("big-result 2000000000", "reached its memory limit in state"),
        ("bad-json", "the delta is not a JSON object"),
        ("not-an-object", "the delta is not a JSON object"),
        ("deep-json 10000", "nest deeper than 40 levels"),
        ("odd-json 0", "deep: the text has half of a surrogate pair"),
        ("odd-json 1", "deep: the number is beyond the range of a double"),
        ("odd-json 2", "deep: the number is beyond the range of a double"),
        ("odd-json 3", "deep.k: the key stands twice in its object"),
        ("scope-escalation", "the delta writes `app:x` without a grant for it"),
        ("forged-code", "it forged the core error code -32001"),
        ("empty-violations", "it refused the request without naming a violation"),
    ];
    let response = [
        ("loop", "reached its CPU time limit in response"),
        ("trap", "trapped in response"),
        ("turn 2", "trapped in response"),
        ("foreign-key", r#".metadata["someone/else"], which it does not own"#),
        ("deep-json 10000", "nest deeper than 40 levels"),
        ("odd-json 0", "the text has half of a surrogate pair"),
        ("odd-json 1", "the number is beyond the range of a double"),
        ("odd-json 2", "the number is beyond the range of a double"),
        ("odd-json 3", "the key stands twice in its object"),
        ("big-result 2000000", "reached its limit of output bytes in response"),
    ];
    let by_hand = [
        ("a result of 1 GiB by its length", "trapped in state"),
        ("a result that is not UTF-8", "trapped in state"),
        ("a table bomb", "reached its table limit in state"),
        ("memory.fill over 12 MiB for ever", "reached its CPU time limit in state"),
        ("65,536 violations", "reached its limit of output bytes in state"),
        ("a case that the result's type does not have", "trapped in state"),
    ];
    let state = state.map(|(command, logged)| (Attack::by_state(command), Refused(logged)));
    let response = response.map(|(command, logged)| (Attack::by_response(command), Failed(logged)));
    let by_hand = by_hand.into_iter().zip(HAND_MADE);
    let by_hand = by_hand.map(|((case, logged), (uri, _))| (Attack::by_hand(case, uri), Refused(logged)));
    state.into_iter().chain(response).chain(by_hand).chain(with_grants(port)).collect()
}

fn with_grants(port: u16) -> Vec<(Attack, AttackOutcome)> {
    let faults = [
        (r#"{"sleep": 3600000}"#, "reached its time limit in state"),
        (r#"{"flood": 10000000}"#, "reached its limit of host calls in state"),
        (r#"{"random": 4294967296}"#, "trapped in state"),
        (r#"{"fields": 40000}"#, "reached its limit of output bytes in state"),
        (r#"{"handles": 101}"#, "trapped in state"),
    ];
    let faults = faults.map(|(command, logged)| (Attack::with_grants(command), Refused(logged)));
    let get =
        |url: &str, fields: &str| format!(r#"{{"http": {{"method": "GET", "url": "{url}", "fields": [{fields}]}}}}"#);
    let told = [
        (get(&format!("http://localhost:{port}/"), ""), "DestinationIpProhibited"),
        (get(&format!("http://127.0.0.1:{port}/"), ""), "DestinationIpProhibited"),
        (get("http://169.254.169.254/latest/meta-data/", ""), "DestinationIpProhibited"),
        (get("http://other.example/", ""), "HttpRequestDenied"),
        (get(&format!("http://localhost:{port}/"), r#"["Host", "other.example"]"#), "the header fields are refused"),
        (get(&format!("http://localhost:{port}/"), r#"["Transfer-Encoding", "x"]"#), "the header fields are refused"),
        (get(&format!("http://localhost:{port}/"), r#"["Connection", "x"]"#), "the header fields are refused"),
        (r#"{"read-file": "/proc/self/environ"}"#.to_owned(), "error: "),
        (r#""environment""#.to_owned(), "[]"),
        (format!(r#"{{"connect": "127.0.0.1:{port}"}}"#), "error: "),
    ];
    let told = told.map(|(command, told)| (Attack::with_grants(&command), Told(told)));
    faults.into_iter().chain(told).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attack_fails_its_own_request_and_neighbours_are_served_meanwhile() {
    log::listen();
    let victim = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = victim.local_addr().expect("an address").port();
    let arena = Arena::open(port).await;
    println!("| case | what the client saw | what the log said | neighbours served meanwhile | contained after |");
    println!("|---|---|---|---|---|");
    for (attack, expected) in attacks(port) {
        let outcome = attack.run(&arena.server).await;
        let case = &attack.case;
        let seen = &outcome.seen;
        let logged = &outcome.logged;
        let neighbours = outcome.neighbours.to_string();
        println!("{}", Row { case, columns: &[seen, logged, &neighbours], took: outcome.took });
        match expected {
            Refused(reason) => {
                assert_eq!((outcome.reply.status, outcome.reply.code()), (200, -32_603), "{case}: {seen}");
                assert!(logged.contains(reason), "{case}: {logged}");
            }
            Failed(reason) => {
                assert_eq!(outcome.reply.task()["status"]["state"], "TASK_STATE_FAILED", "{case}: {seen}");
                assert!(logged.contains(reason), "{case}: {logged}");
            }
            Told(answer) => assert!(seen.contains(answer), "{case}: {seen}"),
        }
        // Both are served again, and not quarantined for failing again and again.
        for good in [Attack::by_state("ok"), Attack::with_grants(r#""environment""#)] {
            assert_eq!(good.run(&arena.server).await.reply.code(), 0, "after {case}");
        }
    }
    victim.set_nonblocking(true).expect("a socket");
    assert!(victim.accept().is_err(), "somebody called the victim");
    assert_eq!(log::count(&[TEST, "INFO line "]), 100, "lines of the flood");
}

/// Two extensions with the grant, in one server and one store.
#[tokio::test]
async fn keys_of_a_neighbour_are_out_of_reach() {
    let other = "https://annex.example/hostile/other/v1";
    let folder = tempfile::tempdir().expect("a folder");
    let both = format!("{}\n{}", capable(CAPABLE, 1), capable(other, 1));
    let server = agent("{results?}", &format!("[keyvalue]\ndata_dir = {:?}\n{both}", folder.path())).await;
    let results = async |uri: &str, commands: &str| {
        let request = server.say("prompt").extensions(uri).metadata("test/capability", commands);
        let reply = request.send().await.expect("a reply");
        assert_eq!(reply.code(), 0, "{}", reply.text);
        reply.answer().to_owned()
    };
    assert!(results(other, r#"[{"set": ["password", "hunter2"]}]"#).await.contains("ok"));
    let spied = r#"["list", {"get": "password"}, {"get": "../password"}, {"get": "%"}, {"get": "' OR ''='"},
        {"get": "https://annex.example/hostile/other/v1/password"}, {"set": ["password", "x"]}, {"delete": "password"}]"#;
    let answer = results(CAPABLE, spied).await;
    assert!(!answer.contains("hunter2") && answer.matches("none").count() == 5, "{answer}");
    assert!(results(other, r#"[{"get": "password"}]"#).await.contains("hunter2"));
}
