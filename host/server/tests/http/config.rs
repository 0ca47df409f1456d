//! The mistakes of operators in a config, and the resulting errors.

use std::path::Path;

use annex_test_support::{TestConfig, TestServer};

const MINIMAL: &str = r#"
[card]
name = "n"
description = "d"
[agent]
kind = "template"
name = "a"
instruction = "i"
[agent.model.scripted]
fallback = "f"
"#;

/// Starting with `more` fails, and the whole error has each of `expected`.
async fn check(more: &str, expected: &[&str]) {
    let Err(error) = TestServer::start(&format!("{MINIMAL}{more}")).await else {
        panic!("the server started with {more}");
    };
    let text = format!("{error:#}");
    for part in expected {
        assert!(text.contains(part), "{more}\n{text}\nlacks {part}");
    }
}

#[tokio::test]
async fn typing_errors_are_shown_with_place_and_accepted_values() {
    check(
        "[server]\nlisten_on = \"x\"",
        &["test.toml:12:1: server.listen_on: unknown key; did you mean `listen`? `server` takes `listen`,"],
    )
    .await;
    check("[server]\nlisten = \"nowhere\"", &["test.toml:12:10: server.listen: is no address", "127.0.0.1"]).await;
    check("[server]\nmax_body_bytes = \"big\"", &["test.toml:12:18:", "is the text \"big\"", "a whole number"]).await;
    check("[sessions]\nmax_sessions = 0", &["sessions.max_sessions", "at least 1"]).await;
    check(
        "[sessions]\nmax_state_depth = 36",
        &["test.toml:12:1: sessions.max_state_depth: is 36; it must be between 0 and 35"],
    )
    .await;
    check("[postgres]\nmax_connections = 0", &["postgres.max_connections", "at least 1"]).await;
    for key in ["compile_seconds", "compile_memory_bytes", "compile_processes"] {
        check(&format!("[runtime]\n{key} = 0"), &[&format!("runtime.{key}"), "at least 1"]).await;
    }
    check(
        "[[extension]]\ncomponent = \"timestamp\"\n[extension.grants]\nclok = true",
        &["test.toml:14:1: extension.grants.clok: unknown key; did you mean `clock`?", "`random`"],
    )
    .await;
    let model = MINIMAL.replace("model.scripted", "model.scriptd");
    let Err(error) = TestServer::start(&model).await else {
        panic!("the server started");
    };
    let text = format!("{error:#}");
    assert!(text.contains("agent.model.scriptd: unknown key; did you mean `scripted`?"), "{text}");
    assert!(text.contains("`scripted`, `generative`"), "{text}");
}

#[tokio::test]
async fn an_origin_that_no_browser_sends_is_refused_with_its_line_and_what_browsers_send() {
    let cases = [
        ("[\"https://app.example/\"]", "write \"https://app.example\""),
        ("[\"app.example\"]", "is not an origin"),
        ("[\"*\", \"https://app.example\"]", "leave the others out"),
        ("\"https://app.example\"", "a list in brackets"),
    ];
    for (origins, expected) in cases {
        let section = format!("[server]\ncors_origins = {origins}");
        check(&section, &["test.toml:12:16: server.cors_origins: ", expected]).await;
    }
}

#[tokio::test]
async fn replicas_are_for_a_database_that_several_processes_share() {
    check("[replica]\nname = \"a\"", &["replica.name", "tasks.postgres_env"]).await;
    check("[postgres]\nlisten_env = \"A\"", &["postgres.listen_env", "tasks.postgres_env"]).await;
    check("[replica]\nname = \"a b\"\n[tasks]\npostgres_env = \"A\"", &["replica.name", "\"a b\" is not a name"]).await;
    let stored = "[tasks]\npostgres_env = \"A\"";
    check(&format!("[replica]\nname = \"a\"\nname_env = \"B\"\n{stored}"), &["one of name and name_env"]).await;
    check(&format!("[replica]\nname_env = \"ANNEX_TEST_NOT_SET\"\n{stored}"), &["replica.name_env", "is not set"])
        .await;
}

#[tokio::test]
async fn two_listeners_of_a_config_have_two_ports() {
    let at = |admin: &str| format!("[admin]\ntoken_env = \"HOME\"\n{admin}");
    // The server of the test has port 0, which is another one each time.
    let config = |text: &str| annex_server::Config::parse(Path::new("test.toml"), &format!("{MINIMAL}{text}"));
    assert!(config(&at("listen = \"127.0.0.1:0\"")).is_ok());
    let listening = |server: &str, admin: &str| config(&format!("[server]\nlisten = {server:?}\n{}", at(admin)));
    for (server, admin, key, reason) in [
        ("127.0.0.1:9", "listen = \"127.0.0.1:9\"", "admin.listen", "server.listen (127.0.0.1:9)"),
        (
            "127.0.0.1:9",
            "listen = \"0.0.0.0:9\"\nallow_remote = true",
            "admin.listen",
            "is 0.0.0.0:9, where server.listen (127.0.0.1:9) listens too; take another port",
        ),
        ("127.0.0.1:9998", "", "admin", "is 127.0.0.1:9998, where server.listen"),
        ("127.0.0.1:9", "metrics_listen = \"127.0.0.1:9\"", "admin.metrics_listen", "server.listen (127.0.0.1:9)"),
        ("[::1]:9", "metrics_listen = \"127.0.0.1:9998\"", "admin.metrics_listen", "admin.listen (127.0.0.1:9998)"),
    ] {
        let error = listening(server, admin).expect_err(admin).to_string();
        assert!(error.contains(key) && error.contains(reason), "{error}");
    }
    assert!(listening("127.0.0.1:9", "listen = \"127.0.0.2:9\"").is_ok());
    assert!(listening("[::1]:9", "listen = \"127.0.0.1:9\"").is_ok());
}

#[tokio::test]
async fn a_misspelt_list_of_tables_is_one_error() {
    let extension = |header: &str| format!("{header}\ncomponent = \"timestamp\"\n[extension.grants]\nclock = true\n");
    for (text, expected) in [
        (extension("[[extensions]]"), "test.toml:11:1: extensions: unknown key; did you mean `extension`?"),
        (extension("[[extensions]]").repeat(2), "test.toml:11:1: extensions: unknown key; did you mean `extension`?"),
        (extension("[[extention]]"), "test.toml:11:1: extention: unknown key; did you mean `extension`?"),
        (extension("[extension]"), "extension: is one table, and there may be several; write it as [[extension]]"),
        (
            "[[tenants]]\nname = \"a\"\nconfig = \"a.toml\"\n".to_owned(),
            "tenants: is a list of tables, and there is one; write it as [tenants], or as [[tenant]]",
        ),
    ] {
        let parsed = annex_server::Config::parse(Path::new("test.toml"), &format!("{MINIMAL}{text}"));
        let error = parsed.expect_err(&text).to_string();
        assert!(error.contains(expected) && error.lines().count() == 1, "{text}\n{error}");
    }
    // What is wrong in the tables of the list is found all the same.
    let both = extension("[[extensions]]").replace("clock", "clok");
    check(&both, &["2 errors", "extensions: unknown key", "extension.grants.clok: unknown key; did you mean `clock`?"])
        .await;
}

#[tokio::test]
async fn a_missing_grant_is_named_in_the_configs_own_syntax() {
    check(
        "[[extension]]\ncomponent = \"timestamp\"",
        &["timestamp", "wasi:clocks", "`clock = true`", "[extension.grants]"],
    )
    .await;
    check("[[extension]]\ncomponent = \"state-injection\"", &["session-state", "`session-state = { read = true }`"])
        .await;
    let demands = crate::test_extension("[extension.parameters]\ngrants = [\"session-state.scopes.user\"]");
    check(&demands, &["scopes = [\"user\"]"]).await;
}

#[tokio::test]
async fn grants_that_cannot_be_given_are_refused_with_the_key() {
    let granted = |grant: &str| format!("[[extension]]\ncomponent = \"timestamp\"\n[extension.grants]\n{grant}");
    let cases: [(&str, &[&str]); 24] = [
        ("http = { allow = [] }", &["grants.http.allow", "leave http out"]),
        (
            "http = true",
            &["grants.http: is true; it must be a table such as { allow = [{ host = \"api.example.com\" }] }"],
        ),
        ("keyvalue = true", &["grants.keyvalue: is true; it must be a table such as {}"]),
        ("session-state = true", &["grants.session-state: is true; it must be a table such as { read = true }"]),
        ("session-state = { read = false }", &["grants.session-state: grants nothing without read = true; set it"]),
        ("caller = true", &["grants.caller: is true; it must be a table such as { principal = true }"]),
        ("live-card = true", &["grants.live-card: is true; it must be a table such as {}"]),
        ("http = {}", &["extension.grants.http.allow: is missing"]),
        (
            "http = { allow = [{ host = \"https://a.example\" }] }",
            &["test.toml:14:", "\"https://a.example\" is neither"],
        ),
        ("http = { allow = [{ host = \"a.example\", methods = [\"get\"] }] }", &["\"get\" is not a method"]),
        ("http = { allow = [{ host = \"a.example\", methods = [] }] }", &["grants.http.allow.methods"]),
        ("http = { allow = [{ host = \"a.example\", path = \"v1\" }] }", &["grants.http.allow.path", "\"v1\""]),
        (
            "http = { allow = [{ host = \"a.example\", scheme = \"ftp\" }] }",
            &["\"ftp\" is not accepted; did you mean `http`? it takes `https`, `http`"],
        ),
        ("http = { allow = [{ host = \"a.example\" }], allow_private = [\"*\"] }", &["\"*\" is neither"]),
        ("keyvalue = { max_keys = 0 }", &["grants.keyvalue", "at least 1"]),
        ("agent-steps = 1", &["grants.agent-steps", "`true`, or `{ steer = true }`"]),
        ("agent-steps = { stear = true }", &["grants.agent-steps.stear", "`steer`"]),
        ("live-card = { at_least_seconds = 0 }", &["grants.live-card.at_least_seconds", "at least 1"]),
        (
            "secrets = { KEY = { env = \"ANNEX_TEST_NO_SUCH_VARIABLE\" } }",
            &["KEY", "ANNEX_TEST_NO_SUCH_VARIABLE", "set it"],
        ),
        (
            "secrets = { KEY = \"x\" }",
            &["grants.secrets.KEY: is the text \"x\"; it must be a table such as { env = \"NAME\" }"],
        ),
        ("secrets = { KEY = {} }", &["grants.secrets.KEY: has no source; write { env = \"NAME\" }"]),
        (
            "secrets = { KEY = { env = \"A\", file = \"b\" } }",
            &["grants.secrets.KEY: has both `env` and `file`; leave one out"],
        ),
        ("secrets = { KEY = { file = \"/nowhere/key\" } }", &["KEY", "/nowhere/key", "name a file"]),
        ("secrets = { KEY = { file = \"/dev/null\" } }", &["KEY", "/dev/null", "it is not a file"]),
    ];
    for (grant, expected) in cases {
        check(&granted(grant), expected).await;
    }
    let empty = tempfile::NamedTempFile::new().expect("a file");
    let secret = format!("secrets = {{ KEY = {{ file = {:?} }} }}", empty.path());
    check(&granted(&secret), &["KEY", "is empty"]).await;
}

#[tokio::test]
async fn unusable_components_are_refused_with_the_step_and_the_reason() {
    check("[[extension]]\ncomponent = \"nosuch\"", &["nosuch.wasm", "No such file"]).await;
    let cases = [
        ("describe = \"trap\"", "trapped in descriptor"),
        ("describe = \"loop\"", "CPU time limit in descriptor"),
        ("describe = \"error\"", "describe was told to fail"),
        ("describe = \"no-uri\"", "not an absolute URI"),
        ("declare = \"not-an-object\"", "params is not a JSON object"),
        ("declare = \"memory-bomb\"", "memory limit in card"),
    ];
    for (behaviour, expected) in cases {
        let extension = crate::test_extension(&format!("[extension.parameters.behaviour]\n{behaviour}"));
        check(&extension, &["test-extension", expected]).await;
    }
    let both = format!("{0}\n{0}", crate::test_extension(""));
    check(&both, &["two installed extensions have the URI", "test.toml:", " and test.toml:"]).await;
    let dependent = crate::test_extension("[extension.parameters]\ndepends_on = [\"https://example.com/base\"]");
    check(&dependent, &["depends on https://example.com/base"]).await;
}

#[tokio::test]
async fn parameters_and_schemas_are_checked_when_the_component_loads() {
    let injection = |parameters: &str| {
        format!("{}\n[extension.parameters]\n{parameters}", crate::state_injection("session-state = { read = true }"))
    };
    check(&injection("state_shema = \"{}\""), &["state-injection", "state_shema"]).await;
    check(&injection("state_schema = \"{\""), &["state_schema"]).await;
    check(&injection("state_schema = '{\"type\": \"objekt\"}'"), &["schema", "objekt"]).await;
    check(&injection("state_schema = '{\"$ref\": \"https://example.com/s\"}'"), &["https://example.com/s"]).await;
}

#[tokio::test]
async fn keys_of_another_kind_of_agent_are_refused() {
    let cases = [
        (
            "kind = \"template\"\ninstruction = \"i\"",
            "test.toml:4:1: agent.model: is missing; an agent of kind `template` needs it",
        ),
        ("kind = \"script\"", "agent.rule: is missing; an agent of kind `script` needs it"),
        (
            "kind = \"script\"\ninstruction = \"i\"\nrule = []",
            "test.toml:7:1: agent.instruction: unknown key of an agent of kind `script`",
        ),
        (
            "kind = \"template\"\ninstruction = \"i\"\nmodel.scripted.fallback = \"f\"\nrule = []",
            "test.toml:9:1: agent.rule: unknown key of an agent of kind `template`",
        ),
        (
            "kind = \"script\"\nrule = []\non_lost_turn = \"follow\"",
            "on_lost_turn = \"follow\" is for an agent of kind `upstream`; one of kind `script` takes \"fail\" or \"rerun\"",
        ),
        (
            "kind = \"upstream\"\ncard = \"http://127.0.0.1:1\"\non_lost_turn = \"rerun\"",
            "on_lost_turn = \"rerun\" would send a message to the upstream twice; take \"follow\" or \"fail\"",
        ),
        ("kind = \"script\"\nrule = []\non_lost_turn = \"retry\"", "it takes `fail`, `rerun`, `follow`"),
        ("kind = \"none\"", "it takes `template`, `script`, `upstream`"),
    ];
    for (agent, expected) in cases {
        let config = format!("[card]\nname = \"n\"\ndescription = \"d\"\n[agent]\nname = \"a\"\n{agent}");
        let Err(error) = TestServer::start(&config).await else { panic!("the server started with {agent}") };
        let text = format!("{error:#}");
        assert!(text.contains(expected) && text.contains("test.toml:"), "{text}");
    }
}

#[tokio::test]
async fn a_turn_is_run_again_only_where_there_is_another_process() {
    let config = "[card]\nname = \"n\"\ndescription = \"d\"\n[agent]\nname = \"a\"\nkind = \"script\"\non_lost_turn = \"rerun\"\n\
                  rule = [{ steps = [] }]";
    let Err(error) = TestServer::start(config).await else { panic!("the server started") };
    let text = format!("{error:#}");
    assert!(text.contains("agent.on_lost_turn") && text.contains("tasks.postgres_env"), "{text}");
}

#[tokio::test]
async fn a_config_without_an_agent_is_for_programs_that_bring_one() {
    let config = TestConfig::without_agent();
    let Err(error) = config.start().await else { panic!("the server started") };
    let text = format!("{error:#}");
    assert!(text.starts_with("test.toml: agent: is missing; add [agent]"), "{text}");
    let server = config.start_with(crate::durable::counting()).await.expect("a server");
    assert_eq!(server.say("answer").send().await.expect("a reply").code(), 0);
}

#[tokio::test]
async fn bounds_on_what_clients_make_the_process_hold_are_checked() {
    let bounds = [
        "max_connections_per_address",
        "max_requests_per_connection",
        "max_reading_bytes",
        "max_answer_bytes",
        "max_streams",
        "max_streams_per_caller",
    ];
    for key in bounds {
        check(&format!("[server]\n{key} = 0"), &[&format!("server.{key}"), "at least 1"]).await;
    }
    for key in ["max_reading_bytes", "max_answer_bytes"] {
        let below = format!("[server]\nmax_body_bytes = 2000\n{key} = 1999");
        check(&below, &[&format!("server.{key}"), "server.max_body_bytes (2000)", "raise it"]).await;
    }
}

#[tokio::test]
async fn a_switch_for_anonymous_callers_is_refused_where_there_are_none() {
    let key = format!("[[auth.api_key]]\nprincipal = \"ada\"\nkey_sha256 = \"{}\"", "0".repeat(64));
    check(&format!("[tasks]\nlist_all_anonymous = true\n{key}"), &["tasks.list_all_anonymous", "[auth]"]).await;
}

#[tokio::test]
async fn limits_beyond_the_ceiling_or_the_engine_are_refused_with_key_value_and_ceiling() {
    let cases: [(&str, &str, &[&str]); 12] = [
        ("", "cpu_ms = 5000000", &["limits.cpu_ms", "is 5000000; it must be at most 60000"]),
        ("", "output_bytes = 67108865", &["limits.output_bytes", "at most 67108864"]),
        ("turns = 1000001", "", &["runtime.ceiling.turns", "is 1000001; it must be at most 1000000"]),
        ("memory_mib = 8", "memory_mib = 9", &["limits.memory_mib", "is 9", "ceiling of 8", "[runtime.ceiling]"]),
        ("cpu_ms = 20", "cpu_ms = 21", &["limits.cpu_ms", "is 21", "ceiling of 20"]),
        ("turn_cpu_ms = 20", "turn_cpu_ms = 21", &["limits.turn_cpu_ms", "is 21", "ceiling of 20"]),
        ("log_bytes = 0", "log_bytes = 1", &["limits.log_bytes", "is 1", "ceiling of 0"]),
        ("turns = 5", "turns = 6", &["limits.turns", "is 6", "ceiling of 5"]),
        ("", "table_elements = 20001", &["limits.table_elements", "at most 20000"]),
        ("", "turn_wall_ms = 0", &["limits.turn_wall_ms", "at least 1"]),
        ("memory_mib = 65", "", &["runtime.ceiling.memory_mib", "between 1 and 64"]),
        ("memory = 1", "", &["runtime.ceiling.memory: unknown key", "`memory_mib`"]),
    ];
    for (ceiling, limits, expected) in cases {
        let extension = crate::test_extension(&format!("[extension.limits]\n{limits}"));
        check(&format!("[runtime.ceiling]\n{ceiling}\n{extension}"), expected).await;
    }
}

#[tokio::test]
async fn turns_of_instances_are_for_instances_that_are_kept() {
    check(
        &crate::test_extension("instances = \"keep\""),
        &["\"keep\" is not accepted; did you mean `kept`?", "`fresh`"],
    )
    .await;
    check(&crate::test_extension("instance_turns = 5"), &["instance_turns", "instances = \"kept\""]).await;
    check(&crate::test_extension("instances = \"kept\"\ninstance_turns = 0"), &["instance_turns", "at least 1"]).await;
}

#[tokio::test]
async fn a_required_extension_cannot_be_one_that_is_skipped() {
    check(&crate::test_extension("required = true\non_failure = \"skip\""), &["on_failure", "required"]).await;
    check(&crate::test_extension("on_failure = \"ignore\""), &["\"ignore\"", "`reject`, `skip`"]).await;
}

#[tokio::test]
async fn the_mark_that_editors_put_before_a_config_is_no_part_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("annex.toml");
    std::fs::write(&path, format!("\u{feff}{}", TestConfig::template("Be short.").toml())).expect("a file");
    TestServer::from_file(&path, None).await.expect("a server");
}
