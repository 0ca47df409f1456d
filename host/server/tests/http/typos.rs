//! Typing errors in a config, and the messages that an operator gets: all at once, each with its place.

use std::fs;
use std::path::Path;

use annex_server::{Config, ConfigError, Locations, Problem, check};

/// A config of seven lines. The lines of a case begin in line 8.
const SOUND: &str = "[card]\nname = \"n\"\ndescription = \"d\"\n[agent]\nkind = \"script\"\nname = \"a\"\nrule = []\n";

fn problems(text: &str) -> Vec<Problem> {
    match Config::parse(Path::new("annex.toml"), text) {
        Ok(_) => Vec::new(),
        Err(ConfigError::Problems(problems)) => problems,
        Err(error) => unreachable!("{error}"),
    }
}

/// Checks that the config with `more` has exactly these errors. Each is given by its beginning and a part of its text.
#[track_caller]
fn refused(text: &str, expected: &[(&str, &str)]) {
    let found: Vec<String> = problems(text).iter().map(Problem::to_string).collect();
    let is_as_expected =
        |(found, (begins, has)): (&String, &(&str, &str))| found.starts_with(begins) && found.contains(has);
    let all = found.iter().zip(expected).all(is_as_expected);
    assert!(all && found.len() == expected.len(), "{text}\n{found:#?}\n{expected:#?}");
}

#[test]
fn a_typing_error_is_named_with_its_place_what_was_meant_and_what_is_accepted() {
    let cases: [(&str, &str, &str); 27] = [
        ("[sevrer]\nlisten = \"127.0.0.1:1\"", "annex.toml:8:1: sevrer: unknown key", "did you mean `server`?"),
        ("[server]\nlistn = \"127.0.0.1:1\"", "annex.toml:9:1: server.listn: unknown key", "did you mean `listen`?"),
        ("[server]\nlistn = \"127.0.0.1:1\"", "annex.toml:9:1:", "`server` takes `listen`, `public_url`"),
        (
            "[server]\n\n  port = 1",
            "annex.toml:10:3: server.port: unknown key; `server` takes `listen`",
            "`max_streams`",
        ),
        ("[server]\nlisten = \"9999\"", "annex.toml:9:10: server.listen: is no address", "\"127.0.0.1:9999\""),
        ("[server]\nlisten = 9999", "annex.toml:9:10: server.listen: is the number 9999", "it must be"),
        (
            "[server]\nmax_body_bytes = \"1 MiB\"",
            "annex.toml:9:18:",
            "is the text \"1 MiB\"; it must be a whole number",
        ),
        ("[server]\nmax_streams = -1", "annex.toml:9:15:", "is the number -1; it must be a whole number, 0 or more"),
        ("[server]\na2a_0_3 = \"yes\"", "annex.toml:9:11: server.a2a_0_3:", "it must be true or false"),
        ("[server]\nmax_streams = 0", "annex.toml:9:1: server.max_streams:", "must be at least 1"),
        ("[server]\nlisten = \"0.0.0.0:80\"", "annex.toml:9:1: server.listen:", "add [auth]"),
        ("[server]\npublic_url = \"a.example\"", "annex.toml:9:1: server.public_url:", "write it as in"),
        ("extension = 1", "annex.toml:8:1: agent.extension: unknown key", "`agent` takes"),
        ("[extension]\ncomponent = \"timestamp\"", "annex.toml:8:1: extension:", "write it as [[extension]]"),
        ("[[extension]]\nrequired = true", "annex.toml:8:1: extension.component:", "is missing"),
        ("[[extension]]\ncomponent = \"x\"\nrequire = true", "annex.toml:10:1: extension.require:", "`required`?"),
        ("[[extension]]\ncomponent = \"x\"\n[extension.grnts]\nclock = true", "annex.toml:10:1:", "`grants`?"),
        ("[[extension]]\ncomponent = \"x\"\ngrants = { clok = true }", "annex.toml:10:12:", "did you mean `clock`?"),
        ("[[extension]]\ncomponent = \"x\"\non_failure = \"skipp\"", "annex.toml:10:14:", "did you mean `skip`?"),
        ("[tasks]\ndata_dir = \"d\"\npostgres_env = \"P\"", "annex.toml:8:1: tasks:", "leave one out"),
        ("[replica]\nname = \"r\"", "annex.toml:9:1: replica.name:", "tasks.postgres_env is not set"),
        ("[admin]\ntoken_flie = \"t\"", "annex.toml:9:1: admin.token_flie:", "did you mean `token_file`?"),
        ("[admin]\nlisten = \"127.0.0.1:1\"", "annex.toml:8:1: admin:", "exactly one of token_file and token_env"),
        ("[auth.jwt]\nissuer = \"i\"", "annex.toml:8:1: auth.jwt.audience:", "is missing"),
        ("[[tenant]]\nname = \"Acme\"\nconfig = \"a.toml\"", "annex.toml:9:1: tenant.name:", "lower-case letters"),
        ("[push]\nallow = [\"10.0.0.0/99\"]", "annex.toml:9:9: push.allow:", "10.0.0.0/99"),
        ("[server\nlisten = \"127.0.0.1:1\"", "annex.toml:8:", "expected"),
    ];
    for (more, begins, has) in cases {
        refused(&format!("{SOUND}{more}"), &[(begins, has)]);
    }
    assert_eq!(problems(SOUND), Vec::new());
}

#[test]
fn a_text_without_quotes_is_shown_as_it_should_be_written() {
    let cases = [
        ("x = template", "is a text without quotes; write x = \"template\""),
        ("x = Jane Doe # her name", "is a text without quotes; write x = \"Jane Doe\""),
        ("x = a.wasm", "is a text without quotes; write x = \"a.wasm\""),
        ("x = ./a", "is a text without quotes; write x = \"./a\""),
        ("x = Books, and more", "is a text without quotes; write x = \"Books, and more\""),
        ("x = https://a.example/?c=d,e", "is a text without quotes; write x = \"https://a.example/?c=d,e\""),
        ("x = \"a\" b", "unexpected key or value, expected newline, `#`"),
        ("x = it's mine", "is a text without quotes; write x = \"it's mine\""),
        ("x = [1, b]", "is a text without quotes; write \"b\""),
        ("x = { y = 1, z = null }", "is a text without quotes; write z = \"null\""),
        ("x = 127.0.0.1:9999", "is no number, and a text needs quotes; write x = \"127.0.0.1:9999\""),
        ("x = 10MB", "is no number, and a text needs quotes; write x = \"10MB\""),
        ("x = True", "takes true and false in small letters only; write x = true"),
        (
            "x = { y = no }",
            "is neither true nor false, and a text needs quotes; write y = false, or y = \"no\" for a text",
        ),
        ("x = nope\"", "lacks the quote at its beginning; write x = \"nope\""),
        ("x =", "has no value; one must stand behind the `=`"),
    ];
    for (line, expected) in cases {
        let text = format!("{SOUND}[server]\n{line}\n");
        let found = problems(&text);
        let [first, ..] = found.as_slice() else { unreachable!("{line}") };
        let Problem { place, key, .. } = first;
        assert!(place.is_some_and(|(line, _)| line == 9), "{line}: {found:?}");
        assert!(first.to_string().ends_with(&format!(" {expected}")), "{line}: {found:?}");
        assert!(key.is_empty() || key.starts_with("server.x"), "{line}: {key}");
    }
    refused(
        &SOUND.replace("\"script\"", "script"),
        &[("annex.toml:5:8: agent.kind: is a text without quotes; write kind = \"script\"", "")],
    );
}

#[test]
fn a_repeated_key_is_named_with_the_line_of_the_first_one() {
    let cases = [
        ("[server]\nmax_streams = 1\n\nmax_streams = 2", "annex.toml:11:1: server.max_streams: duplicate key", 9),
        ("[tasks]\n[server]\n[tasks]", "annex.toml:10:2: tasks: duplicate key", 8),
        ("[card.provider]\n[card]", "annex.toml:9:2: card: duplicate key", 1),
        ("[card.provider]\n[ card . provider ]", "annex.toml:9:10: card.provider: duplicate key", 8),
        ("[server]\nx.y = 1\nx.y = 2", "annex.toml:10:3: server.x.y: duplicate key", 9),
        ("x = { y = 1, \"y\" = 2 }", "annex.toml:8:14: agent.x.y: duplicate key", 8),
        (
            "[[tenant]]\nname = \"a\"\n[[tenant]]\nname = \"b\"\nname = \"c\"",
            "annex.toml:12:1: tenant.name: duplicate key",
            11,
        ),
    ];
    for (more, begins, line) in cases {
        let found: Vec<String> = problems(&format!("{SOUND}{more}\n")).iter().map(Problem::to_string).collect();
        let has = format!("it stands in line {line} already");
        assert!(found.iter().any(|found| found.starts_with(begins) && found.contains(&has)), "{more}\n{found:#?}");
    }
}

#[test]
fn all_typing_errors_of_a_config_are_named_at_once() {
    let text = "[card]\nnme = \"n\"\n[agent]\nkind = \"scrpt\"\nname = \"a\"\nrule = []\n[server]\nlistn = \"nowhere\"\n\
                max_streams = \"many\"\nbody_seconds = 0\n[[extension]]\nrequird = true\n[[tenant]]\nname = \"a\"\n\
                [tenant.quota]\nturns = 0\n[[tenant]]\nname = \"a\"\nconfig = \"a.toml\"\n";
    refused(
        text,
        &[
            ("annex.toml:1:1: card.description:", "is missing"),
            ("annex.toml:2:1: card.nme:", "`name`?"),
            ("annex.toml:4:8: agent.kind:", "`script`?"),
            // The address is wrong too, and is looked at once its key is right.
            ("annex.toml:8:1: server.listn:", "`listen`?"),
            ("annex.toml:9:15: server.max_streams:", "whole number"),
            ("annex.toml:10:1: server.body_seconds:", "at least 1"),
            ("annex.toml:11:1: extension.component:", "is missing"),
            ("annex.toml:12:1: extension.requird:", "`required`?"),
            ("annex.toml:13:1: tenant.config:", "is missing"),
            ("annex.toml:16:1: tenant.quota.turns:", "at least 1"),
            ("annex.toml:18:1: tenant.name:", "is the name of an earlier [[tenant]]"),
        ],
    );
}

#[test]
fn a_quota_of_callers_that_would_refuse_everything_or_that_does_not_exist_is_refused() {
    let tenant = "[[tenant]]\nname = \"a\"\nconfig = \"a.toml\"\n[tenant.quota.caller]\n";
    for (quota, begins, told) in [
        ("requests_per_second = 0", "annex.toml:12:1: tenant.quota.caller.requests_per_second:", "at least 1"),
        ("cpu_ms_per_second = 0", "annex.toml:12:1: tenant.quota.caller.cpu_ms_per_second:", "at least 1"),
        ("tokens_per_day = 0", "annex.toml:12:1: tenant.quota.caller.tokens_per_day:", "at least 1"),
        ("tokens_per_dya = 1", "annex.toml:12:1: tenant.quota.caller.tokens_per_dya:", "`tokens_per_day`?"),
        ("requests_per_second = -1", "annex.toml:12:23: tenant.quota.caller.requests_per_second:", ""),
    ] {
        refused(&format!("{SOUND}{tenant}{quota}\n"), &[(begins, told)]);
    }
}

#[test]
fn what_comes_of_another_mistake_is_no_mistake_of_its_own() {
    // Without its table the address would be open to everybody, and the card would lack an agent.
    let open = "[server]\nlisten = \"0.0.0.0:80\"\n";
    refused(&format!("{SOUND}{open}[auth]\napi_key = 5\n"), &[("annex.toml:11:11: auth.api_key:", "list")]);
    let text = SOUND.replace("\"script\"", "5");
    refused(&text, &[("annex.toml:5:8: agent.kind:", "")]);
    refused(&SOUND.replace("name = \"n\"", "name = 5"), &[("annex.toml:2:8: card.name:", "text in quotes")]);
    let postgres = "[tasks]\npostgres_env = 5\n[replica]\nname = \"a\"\n";
    refused(&format!("{SOUND}{postgres}"), &[("annex.toml:9:16: tasks.postgres_env:", "text in quotes")]);
    // A line that is no TOML hides what it would have said.
    refused(&SOUND.replace("name = \"n\"", "name = "), &[("annex.toml:2:", "")]);
}

#[test]
fn a_config_that_was_mended_in_thought_is_refused_all_the_same() {
    let text = format!("{SOUND}[server]\nlistn = \"127.0.0.1:0\"\n");
    assert!(Config::parse(Path::new("annex.toml"), &text).is_err());
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        Self(folder)
    }

    async fn check(&self) -> Result<annex_server::Counts, Vec<String>> {
        let built = Path::new(annex_components::STATE_INJECTION);
        let components = built.parent().expect("a folder").to_owned();
        let locations = Locations { config: self.0.path().to_owned(), components, cache: None };
        let checked = check(&self.0.path().join("annex.toml"), &locations).await;
        checked.outcome.map_err(|error| match error {
            ConfigError::Problems(problems) => problems.iter().map(|problem| self.shown(problem)).collect(),
            ConfigError::Read { .. } => vec![error.to_string()],
        })
    }

    /// Without the path of the folder.
    fn shown(&self, problem: &Problem) -> String {
        problem.to_string().replace(&format!("{}/", self.0.path().display()), "")
    }
}

#[tokio::test]
async fn a_check_looks_at_the_files_and_variables_that_the_config_and_its_tenants_name() {
    let config = format!(
        "{SOUND}[[extension]]\ncomponent = \"timestmp\"\n[[extension]]\ncomponent = \"./mine.wasm\"\n\
         grants = {{ secrets = {{ KEY = {{ env = \"ANNEX_TEST_NOT_SET\" }} }} }}\n\
         [[extension]]\ncomponent = \"timestamp\"\n[extension.limits]\ncpu_ms = 0\n\
         [[auth.api_key]]\nprincipal = \"ada\"\nkey_file = \"no.key\"\n\
         [[auth.api_key]]\nprincipal = \"bob\"\nkey_env = \"ANNEX_TEST_NOT_SET\"\n\
         [tasks]\npostgres_env = \"ANNEX_TEST_NOT_SET\"\n\
         [[tenant]]\nname = \"acme\"\nconfig = \"acme/agent.toml\"\n[[tenant]]\nname = \"gone\"\nconfig = \"gone.toml\"\n"
    );
    let acme = format!(
        "{SOUND}[card.signing]\nkid = \"k\"\nkey_file = \"no.pem\"\n[[extension]]\ncomponent = \"gone.wasm\"\n"
    );
    let folder = Folder::new(&[("annex.toml", &config), ("acme/agent.toml", &acme)]);
    let found = folder.check().await.expect_err("errors");
    let expected = [
        (
            "annex.toml:9:1: extension.component: cannot read \"timestmp\", which is /",
            "did you mean `timestamp`? these ship:",
        ),
        ("annex.toml:11:1: extension.component: cannot read \"./mine.wasm\", which is mine.wasm", "No such file"),
        (
            "annex.toml:12:32: extension.grants.secrets.KEY.env: the environment variable",
            "ANNEX_TEST_NOT_SET is not set",
        ),
        ("annex.toml:16:1: extension.limits.cpu_ms:", "at least 1"),
        ("annex.toml:19:1: auth.api_key.key_file:", "no.key"),
        ("annex.toml:22:1: auth.api_key.key_env: the environment variable", "ANNEX_TEST_NOT_SET is not set"),
        ("annex.toml:24:1: tasks.postgres_env:", "ANNEX_TEST_NOT_SET is not set"),
        ("annex.toml:30:1: tenant.config: cannot read \"gone.toml\", which is gone.toml:", "No such file"),
        ("acme/agent.toml:10:1: card.signing.key_file:", "no.pem"),
        ("acme/agent.toml:12:1: extension.component:", "which is acme/gone.wasm"),
    ];
    let all =
        found.iter().zip(&expected).all(|(found, (begins, has))| found.starts_with(begins) && found.contains(has));
    assert!(all && found.len() == expected.len(), "{found:#?}");
}

#[tokio::test]
async fn all_settings_of_an_extension_that_cannot_be_used_are_named_at_once() {
    let config = format!(
        "{SOUND}[runtime.ceiling]\nwall_ms = 1000\ncpu_ms = 0\nhost_calls = 99000000\n\
         [[extension]]\ncomponent = \"timestamp\"\nrequired = true\non_failure = \"skip\"\ninstance_turns = 0\nallow = []\n\
         [extension.limits]\ncpu_ms = 0\nwall_ms = 2000\n\
         [extension.grants]\nhttp = {{ allow = [] }}\nkeyvalue = {{ max_keys = 0 }}\n"
    );
    let found = Folder::new(&[("annex.toml", &config)]).check().await.expect_err("errors");
    let expected = [
        "annex.toml:10:1: runtime.ceiling.cpu_ms: must be at least 1",
        "annex.toml:11:1: runtime.ceiling.host_calls: is 99000000",
        "annex.toml:15:1: extension.on_failure: is \"skip\"",
        "annex.toml:16:1: extension.instance_turns: is 0",
        "annex.toml:17:1: extension.allow: names callers, but without [auth]",
        "annex.toml:17:1: extension.allow: is empty",
        "annex.toml:19:1: extension.limits.cpu_ms: must be at least 1",
        "annex.toml:20:1: extension.limits.wall_ms: is 2000, above the ceiling of 1000",
        "annex.toml:22:10: extension.grants.http.allow: allows nothing",
        "annex.toml:23:1: extension.grants.keyvalue: its bounds must be at least 1",
    ];
    let all = found.iter().zip(expected).all(|(found, begins)| found.starts_with(begins));
    assert!(all && found.len() == expected.len(), "{found:#?}");
}

#[tokio::test]
async fn ways_to_a_token_that_the_card_cannot_declare_are_all_named() {
    let check = async |auth: &str| Folder::new(&[("annex.toml", &format!("{SOUND}{auth}"))]).check().await;
    let jwt = "[auth.jwt]\nissuer = \"i\"\naudience = [\"a\"]\njwks_url = \"https://issuer.example/keys\"\n";
    let declared = "[auth.declare]\nopenid_connect_url = \"https://issuer.example/openid\"\n";
    check(&format!("{jwt}{declared}")).await.expect("nothing is wrong");
    let wrong = format!(
        "{jwt}[auth.declare]\nopenid_connect_url = \"issuer.example\"\n[auth.declare.client_credentials]\n\
         token_url = \"http://issuer.example/token\"\nscopes = {{ \"two words\" = \"\" }}\n"
    );
    let found = check(&wrong).await.expect_err("errors");
    let expected = [
        "annex.toml:13:1: auth.declare.openid_connect_url: is not a URL",
        "annex.toml:15:1: auth.declare.client_credentials.token_url: must be https, or http on this machine",
        "annex.toml:16:1: auth.declare.client_credentials.scopes: has a name that is no scope",
    ];
    let all = found.iter().zip(expected).all(|(found, begins)| found.starts_with(begins));
    assert!(all && found.len() == expected.len(), "{found:#?}");
    let key = format!("[[auth.api_key]]\nprincipal = \"ada\"\nkey_sha256 = \"{}\"\n", "0".repeat(64));
    let found = check(&format!("{key}{declared}")).await.expect_err("an error");
    let [found] = &found[..] else { panic!("{found:#?}") };
    assert!(found.starts_with("annex.toml:11:") && found.contains("auth.declare:"), "{found}");
}

#[tokio::test]
async fn a_list_that_lost_a_wrong_element_is_not_said_to_be_empty() {
    let http = "http = { allow = [{ host = \"https://a.example\" }] }";
    let config = format!("{SOUND}[[extension]]\ncomponent = \"timestamp\"\n[extension.grants]\n{http}\n");
    let found = Folder::new(&[("annex.toml", &config)]).check().await.expect_err("an error");
    let [found] = &found[..] else { panic!("{found:#?}") };
    assert!(found.starts_with("annex.toml:11:") && found.contains("is neither a host name"), "{found}");
}

#[tokio::test]
async fn a_file_of_a_tenant_is_named_as_such_where_it_has_a_table_of_the_server() {
    let config = format!("{SOUND}[[tenant]]\nname = \"acme\"\nconfig = \"acme.toml\"\n");
    let acme = format!("{SOUND}[tasks]\ndata_dir = \"d\"\n");
    let found = Folder::new(&[("annex.toml", &config), ("acme.toml", &acme)]).check().await.expect_err("an error");
    let [found] = &found[..] else { panic!("{found:#?}") };
    assert!(found.starts_with("acme.toml:8:1: tasks: unknown key; the file of a tenant takes `card`"), "{found}");
}

#[tokio::test]
async fn what_is_wrong_with_tokens_is_named_at_its_key() {
    let jwt = |keys: &str| format!("[auth.jwt]\nissuer = \"i\"\n{keys}\n");
    let url = "jwks_url = \"https://issuer.example/keys\"";
    for (auth, expected) in [
        (jwt(&format!("audience = []\n{url}")), "annex.toml:10:1: auth.jwt.audience: must name at least one audience"),
        (
            jwt(&format!("audience = [\"a\"]\n{url}\nleeway_seconds = 301")),
            "annex.toml:12:1: auth.jwt.leeway_seconds: must be at most 300",
        ),
        (jwt("audience = [\"a\"]"), "annex.toml:8:1: auth.jwt.jwks_url: must be set, or jwks_file in its place"),
        ("[auth]\n".to_owned(), "annex.toml:8:1: auth: accepts no caller; add [[auth.api_key]]"),
    ] {
        let config = format!("{SOUND}{auth}");
        let found = Folder::new(&[("annex.toml", &config)]).check().await.expect_err("an error");
        let [found] = &found[..] else { panic!("{found:#?}") };
        assert!(found.starts_with(expected), "{found}");
    }
}

#[tokio::test]
async fn a_limit_on_readers_without_an_effect_is_named() {
    let check = async |more: &str| {
        let config = format!("{SOUND}[[extension]]\ncomponent = \"timestamp\"\nreads = \"active\"\n{more}");
        Folder::new(&[("annex.toml", &config)]).check().await
    };
    check("").await.expect("nothing is wrong");
    let found = check("activate = \"always\"\n").await.expect_err("an error");
    let [found] = &found[..] else { panic!("{found:#?}") };
    assert!(found.starts_with("annex.toml:10:1: extension.reads: is \"active\", but with activate"), "{found}");
}

#[tokio::test]
async fn a_variable_that_is_not_set_is_named_at_its_own_key_and_in_the_same_words() {
    let template = "[card]\nname = \"n\"\ndescription = \"d\"\n[agent]\nkind = \"template\"\nname = \"a\"\ninstruction = \"i\"\n\
                    [agent.model.generative]\nmodel = \"m\"\napi_key_env = \"ANNEX_TEST_NOT_SET\"\n\
                    [[agent.mcp]]\nname = \"m\"\nurl = \"http://127.0.0.1:1\"\ntoken_env = \"ANNEX_TEST_NOT_SET\"\n\
                    [[agent.mcp]]\nname = \"o\"\ncommand = \"x\"\nenv = [\"ANNEX_TEST_NOT_SET\"]\n\
                    [card.signing]\nkid = \"k\"\nkey_env = \"ANNEX_TEST_NOT_SET\"\n\
                    [admin]\ntoken_env = \"ANNEX_TEST_NOT_SET\"\nmetrics_token_env = \"ANNEX_TEST_NOT_SET\"\n\
                    [[admin.token]]\nname = \"bot\"\ntoken_env = \"ANNEX_TEST_NOT_SET\"\n\
                    [[auth.api_key]]\nprincipal = \"bob\"\nkey_env = \"ANNEX_TEST_NOT_SET\"\n\
                    [auth.introspection]\nurl = \"https://issuer.example/ask\"\nissuer = \"i\"\naudience = [\"a\"]\n\
                    client_id = \"annex\"\nclient_secret_env = \"ANNEX_TEST_NOT_SET\"\n\
                    [tasks]\npostgres_env = \"ANNEX_TEST_NOT_SET\"\n[replica]\nname_env = \"ANNEX_TEST_NOT_SET\"\n\
                    [tenants.secrets]\nA = { env = \"ANNEX_TEST_NOT_SET\" }\n\
                    [[extension]]\ncomponent = \"timestamp\"\n[extension.grants]\nclock = true\n\
                    secrets.B = { env = \"ANNEX_TEST_NOT_SET\" }\n[extension.grants.secrets.C]\nenv = \"ANNEX_TEST_NOT_SET\"\n";
    let upstream = "[agent]\nkind = \"upstream\"\nname = \"a\"\ncard = \"http://127.0.0.1:1\"\n\
                    [agent.credentials]\nenv = \"ANNEX_TEST_NOT_SET\"\n";
    let oauth = "[agent]\nkind = \"upstream\"\nname = \"a\"\ncard = \"http://127.0.0.1:1\"\n[agent.oauth]\n\
                 token_url = \"https://issuer.example/token\"\nclient_id = \"annex\"\n\
                 client_secret_env = \"ANNEX_TEST_NOT_SET\"\n";
    for (config, count) in [(template, 14), (upstream, 1), (oauth, 1)] {
        let folder = Folder::new(&[("annex.toml", config)]);
        let found = folder.check().await.expect_err("errors");
        let words = "the environment variable ANNEX_TEST_NOT_SET is not set; set it before the start";
        let lines = config.lines().enumerate().filter(|(_, line)| line.contains("ANNEX_TEST_NOT_SET"));
        for (number, line) in lines.clone() {
            let begins = format!("annex.toml:{}:", number + 1);
            let is_told = found.iter().any(|found| found.starts_with(&begins) && found.ends_with(words));
            assert!(is_told, "{line}: {found:#?}");
        }
        assert_eq!((found.len(), lines.count()), (count, count), "{found:#?}");
    }
}

#[tokio::test]
async fn a_check_finds_nothing_in_a_config_that_can_be_served() {
    let config = format!(
        "{SOUND}[[extension]]\ncomponent = \"timestamp\"\ngrants = {{ clock = true }}\n\
         [[tenant]]\nname = \"acme\"\nconfig = \"acme.toml\"\n"
    );
    let folder = Folder::new(&[("annex.toml", &config), ("acme.toml", SOUND)]);
    let checked = folder.check().await.expect("no errors");
    assert_eq!((checked.extensions, checked.tenants), (1, 1));
    assert_eq!(fs::read_dir(folder.0.path()).expect("a folder").count(), 2, "nothing is made");
}

#[tokio::test]
async fn a_missing_config_is_named() {
    let folder = Folder::new(&[]);
    let found = folder.check().await.expect_err("no file");
    assert!(found.iter().all(|text| text.contains("cannot read") && text.contains("annex.toml")), "{found:?}");
}

#[tokio::test]
async fn each_mistake_about_registries_and_their_signers_is_shown_with_its_line() {
    let config = format!(
        "{SOUND}[trust]\nall_of = [{{ key = \"no.pub\" }}, {{ issuer = \"https://issuer.example\" }}]\n\
         [[trust.rule]]\nprefix = \"Registry.example\"\ndefault = \"allow\"\n\
         [registries.\"registry.example:5000\"]\nca_file = \"no.pem\"\n\
         [[tenant]]\nname = \"acme\"\nconfig = \"acme/agent.toml\"\n"
    );
    let acme = format!("{SOUND}[trust]\ndeny_file = \"denied.txt\"\n");
    let folder = Folder::new(&[("annex.toml", &config), ("acme/agent.toml", &acme)]);
    let found = folder.check().await.expect_err("errors").join("\n");
    for expected in [
        "annex.toml:9:",
        "\"no.pub\" cannot be read",
        "is a keyless identity",
        "annex.toml:11:1: trust.rule.prefix: \"Registry.example\" cannot be used",
        "annex.toml:14:1: registries.registry.example:5000.ca_file: cannot read no.pem",
        "acme/agent.toml:9:1: trust.deny_file: is for the config of the server",
    ] {
        assert!(found.contains(expected), "{expected}: {found}");
    }
    let folder = Folder::new(&[("annex.toml", &format!("{SOUND}[registries.\"Registry.example\"]\n"))]);
    let found = folder.check().await.expect_err("an error").join("\n");
    assert!(found.contains("annex.toml:8:") && found.contains("is not a registry"), "{found}");
}
