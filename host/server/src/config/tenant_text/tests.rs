//! Tests of texts by authors other than the operator.

use std::path::Path;
use std::sync::Arc;

use annex_upstream::UpstreamConfig;

use super::super::served::ServedConfig;
use super::super::{ActivateConfig, AgentConfig, Config, ModelConfig, ReadsConfig, SecretConfig, StoredTenantsConfig};
use super::{AdmittedTenant, MAX_TEXT_BYTES, TenantText};

const DIGEST: &str = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn allowed() -> StoredTenantsConfig {
    toml::from_str(
        "hosts = [\"*.example.com\", \"127.0.0.1\"]\nclaims = [\"org\"]\nheaders = [\"X-Scope\"]\n[secrets]\nkey = { env = \"KEY\" }\npem = { file = \"card.pem\" }",
    )
    .expect("a table")
}

/// A text with a card and a script agent, followed by `more`. The first lines of `more` may continue the table
/// `[agent]`.
fn text(more: &str) -> String {
    let card = "[card]\nname = \"n\"\ndescription = \"d\"\n[agent]\nkind = \"script\"\nname = \"a\"\n";
    format!("{card}rule = []\n{more}")
}

fn upstream(more: &str) -> String {
    format!("[agent]\nkind = \"upstream\"\nname = \"a\"\n{more}")
}

/// An upstream agent with access tokens.
fn oauth(more: &str) -> String {
    let agent = upstream("card = \"https://a.example.com\"\n[agent.oauth]\nclient_id = \"annex\"\n");
    format!("{agent}token_url = \"https://a.example.com/token\"\n{more}")
}

fn template(more: &str) -> String {
    format!(
        "[card]\nname = \"n\"\ndescription = \"d\"\n[agent]\nkind = \"template\"\nname = \"a\"\ninstruction = \"i\"\n{more}"
    )
}

fn generative(more: &str) -> String {
    template(&format!("[agent.model.generative]\nmodel = \"m\"\nendpoint = \"https://a.example.com/v1\"\n{more}"))
}

fn generative_at(endpoint: &str) -> String {
    template(&format!("[agent.model.generative]\nmodel = \"m\"\nendpoint = {endpoint:?}\n"))
}

const SCRIPTED: &str = "[agent.model.scripted]\nfallback = \"f\"\n";

fn admit(text: &str) -> Result<AdmittedTenant, String> {
    let text = TenantText::parse(text).map_err(|error| error.to_string())?;
    text.admit(&allowed()).map_err(|error| error.to_string())
}

#[track_caller]
fn refused(text: &str, expected: &[&str]) {
    let reason = admit(text).err().unwrap_or_else(|| unreachable!("not refused: {text}"));
    for expected in expected {
        assert!(reason.contains(expected), "{text}\n{reason}");
    }
}

#[test]
fn a_text_names_no_files_variables_programs_or_paths() {
    let mcp = |more: &str| template(&format!("{SCRIPTED}[[agent.mcp]]\nname = \"m\"\n{more}"));
    let unknown = [
        (text("[card.signing]\nkid = \"k\"\nkey_file = \"/etc/key\""), "key_file"),
        (text("[card.signing]\nkid = \"k\"\nkey_env = \"KEY\""), "key_env"),
        (generative("api_key_env = \"HOME\"\n"), "api_key_env"),
        (mcp("command = \"sh\"\n"), "command"),
        (mcp("url = \"https://a.example.com\"\nargs = [\"-c\"]\n"), "args"),
        (mcp("url = \"https://a.example.com\"\nenv = [\"HOME\"]\n"), "env"),
        (mcp("url = \"https://a.example.com\"\ntoken_env = \"HOME\"\n"), "token_env"),
        (upstream("card = \"https://a.example.com\"\n[agent.credentials]\nenv = \"HOME\"\n"), "env"),
        (oauth("client_secret_env = \"HOME\"\n"), "client_secret_env"),
        (oauth("client_secret_file = \"/etc/passwd\"\n"), "client_secret_file"),
        (oauth("fallback = \"client_credentials\"\n"), "fallback"),
        (text("[server]\nlisten = \"127.0.0.1:1\""), "server"),
        (text("[tasks]\ndata_dir = \"/tmp\""), "tasks"),
        (text("[[tenant]]\nname = \"x\"\nconfig = \"/etc/passwd\""), "tenant"),
        (
            text(&format!(
                "[[extension]]\ncomponent = \"{DIGEST}\"\n[extension.grants.http]\nallow = [{{ host = \"a.example.com\" }}]\n\
                 allow_private = [\"127.0.0.1\"]"
            )),
            "allow_private",
        ),
    ];
    for (text, key) in unknown {
        refused(&text, &["line ", &format!("{key}: unknown key"), "[tenants.secrets]"]);
    }
    for secret in ["{ env = \"HOME\" }", "{ file = \"/etc/passwd\" }"] {
        let grants =
            format!("[[extension]]\ncomponent = \"{DIGEST}\"\n[extension.grants]\nsecrets = {{ S = {secret} }}");
        refused(&text(&grants), &["line ", "a text in quotes"]);
    }
    for path in ["/etc/passwd", "../x.wasm", "x.wasm", "./x", "sha256:00", "sha256:/../x", ""] {
        let extension = format!("[[extension]]\ncomponent = {path:?}");
        refused(&text(&extension), &["extension.component", "digest"]);
    }
    let reference = "[[extension]]\ncomponent = \"oci://registry.example/acme/redact:1.2\"";
    refused(&text(reference), &["extension.component", "tenants.components"]);
}

#[test]
fn only_what_is_lent_can_be_named() {
    refused(&text("[card.signing]\nkid = \"k\"\nsecret = \"other\""), &["card.signing.secret", "[tenants.secrets]"]);
    refused(&generative("secret = \"other\""), &["agent.model.generative.secret", "[tenants.secrets]"]);
    refused(&generative("secret = \"pem\""), &["agent.model.generative.secret", "`env`"]);
    let provider = template("[agent.model.generative]\nmodel = \"m\"\nsecret = \"key\"\n");
    refused(&provider, &["agent.model.generative.endpoint", "is missing", "hosts"]);
    let grants = format!("[[extension]]\ncomponent = \"{DIGEST}\"\n[extension.grants]\nsecrets = {{ S = \"other\" }}");
    refused(&text(&grants), &["extension.grants.secrets", "[tenants.secrets]"]);
    for url in
        ["https://example.com", "http://169.254.169.254/latest", "http://localhost:9998", "https://a.example.com.evil"]
    {
        refused(&upstream(&format!("card = {url:?}\n")), &["agent.card", "tenants.hosts"]);
        refused(&generative_at(url), &["agent.model.generative.endpoint", "tenants.hosts"]);
        let mcp = template(&format!("{SCRIPTED}[[agent.mcp]]\nname = \"m\"\nurl = {url:?}\n"));
        refused(&mcp, &["agent.mcp.url", "tenants.hosts"]);
    }
    for url in ["https://user:pass@a.example.com", "https://user@a.example.com/"] {
        refused(&upstream(&format!("card = {url:?}\n")), &["agent.card", "a user or a password", "[tenants.secrets]"]);
    }
    for url in ["file:///etc/passwd", "a.example.com", ""] {
        refused(&upstream(&format!("card = {url:?}\n")), &["agent.card", "is no URL"]);
    }
    refused(&oauth("secret = \"other\"\n"), &["agent.oauth.secret", "[tenants.secrets]"]);
    let token_url = oauth("secret = \"key\"\n").replace("a.example.com/token", "example.com/token");
    refused(&token_url, &["agent.oauth.token_url", "tenants.hosts"]);
    let elsewhere = upstream("card = \"https://a.example.com\"\nallow_hosts = [\"169.254.169.254:80\"]\n");
    refused(&elsewhere, &["agent.allow_hosts", "tenants.hosts"]);
}

#[test]
fn what_is_lent_takes_the_place_of_its_name() {
    let extension = format!(
        "[card.signing]\nkid = \"k\"\nsecret = \"pem\"\n[[extension]]\ncomponent = \"{DIGEST}\"\n[extension.grants]\n\
         clock = true\nsecrets = {{ S = \"key\" }}\n[[extension]]\ncomponent = \"timestamp\"\nactivate = \"always\"\n\
         allow = [\"principal:ada\"]\nreads = \"active\""
    );
    let admitted = admit(&format!("{}\n[quota]\nturns = 3\ncaller = {{ cpu_ms_per_second = 9 }}", text(&extension)))
        .expect("a tenant");
    assert_eq!((admitted.quota.turns, admitted.quota.caller.cpu_ms_per_second), (Some(3), Some(9)));
    let signing = admitted.card.signing.expect("a key");
    assert_eq!(signing.key_file.as_deref(), Some(std::path::Path::new("card.pem")));
    let [first, second] = admitted.extensions.try_into().expect("two");
    assert_eq!((first.digest.as_deref(), second.digest.as_deref()), (Some(DIGEST), None));
    assert_eq!(first.grants.secrets.get("S"), Some(&SecretConfig::Env("KEY".to_owned())));
    assert!(first.grants.clock && second.component == "timestamp");
    assert_eq!((second.activate, second.allow), (ActivateConfig::Always, Some(vec!["principal:ada".to_owned()])));
    assert_eq!((first.reads, second.reads), (ReadsConfig::All, ReadsConfig::Active));

    let upstream = upstream("card = \"https://a.example.com\"\n[agent.credentials]\nsecret = \"key\"\n");
    let AgentConfig::Upstream { upstream: agent, .. } = admit(&upstream).expect("a tenant").agent else {
        unreachable!()
    };
    let UpstreamConfig { credentials, .. } = *agent;
    let credentials = credentials.expect("credentials");
    assert_eq!((credentials.header.as_str(), credentials.env.as_str()), ("authorization", "KEY"));

    for (secret, env, file) in [("key", Some("KEY"), None), ("pem", None, Some("card.pem"))] {
        let admitted = admit(&oauth(&format!("secret = {secret:?}\n"))).expect("a tenant").agent;
        let AgentConfig::Upstream { upstream, .. } = admitted else { unreachable!() };
        let client = upstream.oauth.expect("access tokens");
        assert_eq!(client.client_secret_env.as_deref(), env);
        assert_eq!(client.client_secret_file.as_deref(), file.map(Path::new));
    }

    let AgentConfig::Template(agent) = admit(&generative("secret = \"key\"")).expect("a tenant").agent else {
        unreachable!()
    };
    let ModelConfig::Generative(model) = agent.model else { unreachable!() };
    assert_eq!(model.api_key_env.as_deref(), Some("KEY"));
    let mcp = "[[agent.mcp]]\nname = \"m\"\nurl = \"http://127.0.0.1:1/mcp\"\nsecret = \"key\"\nstate = [\"user\"]\n";
    let AgentConfig::Template(agent) = admit(&template(&format!("{SCRIPTED}{mcp}"))).expect("a tenant").agent else {
        unreachable!()
    };
    assert_eq!(agent.mcp.len(), 1);
}

#[test]
fn a_text_asks_for_no_more_than_the_host_holds_for_strangers() {
    let answers = "card = \"https://a.example.com\"\nmax_answer_bytes = 4194305\n";
    refused(&upstream(answers), &["agent.max_answer_bytes", "at most 4194304"]);
    let extension =
        |grants: &str| text(&format!("[[extension]]\ncomponent = \"{DIGEST}\"\n[extension.grants]\n{grants}"));
    for key in ["max_keys", "max_value_bytes", "max_total_bytes", "max_scoped_keys", "max_scoped_bytes"] {
        let grant = extension(&format!("keyvalue = {{ {key} = 1000000000 }}"));
        refused(&grant, &[&format!("extension.grants.keyvalue.{key}"), "at most"]);
    }
    let http = extension("http = { allow = [], max_response_bytes = 1000000000 }");
    refused(&http, &["extension.grants.http.max_response_bytes", "at most 1048576"]);
    let one = format!("[[extension]]\ncomponent = \"{DIGEST}\"\n");
    assert!(admit(&text(&one.repeat(64))).is_ok());
    refused(&text(&one.repeat(65)), &["extension", "65 is more than a tenant may have: at most 64"]);
    let mcp = |count: usize, more: &str| {
        let server = |number| format!("[[agent.mcp]]\nname = \"m{number}\"\nurl = \"https://a.example.com\"\n{more}");
        template(&format!("{SCRIPTED}{}", (0..count).map(server).collect::<String>()))
    };
    assert!(admit(&mcp(16, "")).is_ok());
    refused(&mcp(17, ""), &["agent.mcp", "at most 16"]);
    refused(&mcp(1, &format!("tools = [{}]\n", "\"t\",".repeat(257))), &["agent.mcp.tools", "at most 256"]);
    refused(&template(&format!("max_tool_rounds = 65\n{SCRIPTED}")), &["agent.max_tool_rounds", "at most 64"]);
    refused(&template(SCRIPTED).replace("\"i\"", &format!("{:?}", "{x}".repeat(1_001))), &["agent", "at most 1000"]);
    let script = |rules: &str| {
        format!("[card]\nname = \"n\"\ndescription = \"d\"\n[agent]\nkind = \"script\"\nname = \"a\"\n{rules}")
    };
    let rules: String = (0..1_001).map(|number| format!("[[agent.rule]]\ntext = \"{number}\"\nsteps = []\n")).collect();
    refused(&script(&rules), &["agent.rule", "at most 1000"]);
    let steps = format!("[[agent.rule]]\nsteps = [{}]\n", "{ wait_ms = 0 },".repeat(1_001));
    refused(&script(&steps), &["agent.rule.steps", "at most 1000"]);
    let state = "card = \"https://a.example.com\"\n[agent.state]\nsend = \"text-part\"\n";
    refused(&upstream(&format!("{state}template = {:?}\n", "{x}".repeat(1_001))), &["state.template", "at most 1000"]);
    let header = |name: &str| {
        upstream(&format!(
            "card = \"https://a.example.com\"\n[agent.credentials]\nsecret = \"key\"\nheader = {name:?}\n"
        ))
    };
    assert!(admit(&header("x-key")).is_ok());
    refused(&header("host"), &["agent", "credentials.header", "set by the protocol itself"]);
    refused(&header("x\r\ny"), &["agent", "credentials.header", "not the name of a header field"]);
}

#[test]
fn the_entries_of_allow_are_bounded_in_all_extensions_of_a_text_together() {
    let extension = |entries: usize| {
        format!("[[extension]]\ncomponent = \"{DIGEST}\"\nallow = {:?}\n", vec!["principal:ada"; entries])
    };
    let full = extension(100).repeat(10);
    assert!(admit(&text(&full)).is_ok());
    refused(&text(&format!("{full}{}", extension(1))), &["extension.allow", "1001 is more", "at most 1000"]);
}

#[test]
fn claims_and_header_fields_of_callers_are_shown_only_where_the_operator_lends_them() {
    let caller = |caller: &str| {
        text(&format!("[[extension]]\ncomponent = \"{DIGEST}\"\n[extension.grants]\ncaller = {caller}\n"))
    };
    assert!(admit(&caller("{ principal = true, claims = [\"org\"], headers = [\"x-scope\"] }")).is_ok());
    let not_lent = "ask the operator to add it to tenants.claims";
    refused(&caller("{ claims = [\"org\", \"salary\"] }"), &["grants.caller.claims", "\"salary\"", not_lent]);
    let not_lent = "ask the operator to add it to tenants.headers";
    refused(&caller("{ headers = [\"x-other\"] }"), &["grants.caller.headers", "\"x-other\"", not_lent]);
}

#[test]
fn an_entry_on_the_card_changes_no_more_often_than_the_operator_says() {
    let declaring = |live_card: &str| {
        text(&format!("[[extension]]\ncomponent = \"{DIGEST}\"\n[extension.grants]\nlive-card = {live_card}\n"))
    };
    let seconds = |seconds: u32| declaring(&format!("{{ at_least_seconds = {seconds} }}"));
    for good in [declaring("{}"), seconds(60), seconds(600)] {
        assert!(admit(&good).is_ok(), "{good}");
    }
    for less in [0, 1, 59] {
        let named = "extension.grants.live-card.at_least_seconds";
        refused(&seconds(less), &[named, "at least 60", "tenants.live_card_at_least_seconds"]);
    }
    let lower = StoredTenantsConfig { live_card_at_least_seconds: 5, ..allowed() };
    let admit_lower = |text: &str| TenantText::parse(text).expect("a text").admit(&lower).is_ok();
    assert!(admit_lower(&seconds(5)) && !admit_lower(&seconds(4)));
}

#[test]
fn credentials_of_callers_are_not_passed_on_to_an_agent_of_a_tenant() {
    let served = |auth: &str, field: &str| {
        let process = format!("[card]\nname = \"n\"\ndescription = \"d\"\n{auth}");
        let process = Arc::new(toml::from_str::<Config>(&process).expect("a config"));
        let forward = format!("card = \"https://a.example.com\"\nheaders_forward = [{field:?}]\n");
        ServedConfig::of_added(admit(&upstream(&forward)).expect("a tenant"), &process).wrong_as_added()
    };
    assert_eq!(served("", "traceparent"), []);
    let key = "[auth.api_key_header]\nname = \"x-key\"\n[[auth.api_key]]\nprincipal = \"ada\"\nkey_env = \"K\"\n";
    assert_eq!(served(key, "x-api-key"), []);
    for (auth, field) in [("", "Authorization"), ("", "cookie"), ("", "X-Api-Key"), (key, "X-Key")] {
        assert_eq!(served(auth, field).first().expect("a refusal").0, "agent.headers_forward");
    }
}

#[test]
fn tokens_of_callers_are_not_exchanged_at_the_authorization_server_of_a_tenant() {
    let tokens = "[auth.introspection]\nurl = \"https://b.example.com\"\nissuer = \"i\"\naudience = [\"a\"]\n\
                  client_id = \"annex\"\nclient_secret_env = \"KEY\"\n";
    let process = format!("[card]\nname = \"n\"\ndescription = \"d\"\n{tokens}");
    let process = Arc::new(toml::from_str::<Config>(&process).expect("a config"));
    let wrong = |grant: &str| {
        let text = oauth(&format!("secret = \"key\"\ngrant = {grant:?}\n"));
        ServedConfig::of_added(admit(&text).expect("a tenant"), &process).wrong_as_added()
    };
    assert_eq!(wrong("client_credentials"), []);
    assert_eq!(wrong("token_exchange").first().expect("a refusal").0, "agent.oauth.grant");
}

#[test]
fn a_text_that_is_none_is_refused_with_its_line() {
    refused("= x", &["line 1"]);
    refused("[card]\nname = \"n\"\nnope", &["line 3"]);
    refused("[card]\nname = n", &["line 2: card.name: is a text without quotes"]);
    refused("[card]\nname = \"n\"\nname = \"m\"", &["line 3: card.name: duplicate key; it stands in line 2 already"]);
    refused("[card]\nname = \"n\"", &["agent"]);
    refused(&text("[quota]\nturns = 0"), &["quota.turns", "at least 1"]);
    refused(&text("[quota]\nturns_per_day = 1"), &["quota.turns_per_day: unknown key"]);
    refused(&text("[quota.caller]\ntokens_per_day = 0"), &["quota.caller.tokens_per_day", "at least 1"]);
    refused(&text("[quota.caller]\nturns = 1"), &["quota.caller.turns: unknown key"]);
    refused(&text(&"#".repeat(MAX_TEXT_BYTES)), &["bytes"]);
}

#[test]
fn all_mistakes_of_a_text_are_told_with_their_lines_as_long_as_they_are_not_too_many() {
    let one = "[card]\nname = \"n\"\ndescripton = \"d\"\n[agent]\nkind = \"script\"\nname = \"a\"\nrule = []\n";
    refused(one, &["line 3, column 1: card.descripton: unknown key; did you mean `description`?"]);
    let several = "[card]\nname = 7\n\nx = 1\n[agent]\nkind = \"script\"\n";
    let lines = [
        "3 errors in the text:\nline 2, column 8: card.name: is the number 7; it must be a text in quotes\n",
        "\nline 4, column 1: card.x: unknown key",
        "\nline 5, column 1: agent.name: is missing",
    ];
    refused(several, &lines);
    let many: String = (0..100).map(|number| format!("k{number} = 1\n")).collect();
    let reason = admit(&many).err().expect("a refusal");
    assert!(reason.starts_with("20 errors in the text, and there may be more:\n"), "{reason}");
    let long = admit(&text(&format!("{} = 1", "k".repeat(10_000)))).err().expect("a refusal");
    assert!(long.len() < 2_000, "{}", long.len());
}

#[test]
fn all_keys_that_a_text_may_not_have_are_named_at_once() {
    let text = upstream(&format!(
        "card = \"https://b.example.org\"\nmax_tool_rounds = 65\n[agent.credentials]\nsecret = \"other\"\n\
         [[extension]]\ncomponent = \"x.wasm\"\n[[extension]]\ncomponent = \"{DIGEST}\"\n\
         grants = {{ secrets = {{ S = \"none\" }} }}\n[quota]\nturns = 0\n"
    ));
    let found = [
        "7 errors in the text:\nquota.turns: must be at least 1\nagent.max_tool_rounds: 65 is more",
        "\nagent.card: b.example.org is not a host",
        "\nagent.credentials.secret: \"other\" is not a lent secret",
        "\nagent.max_tool_rounds: unknown key of an agent of kind `upstream`",
        "\nextension.component: \"x.wasm\" is neither",
        "\nextension.grants.secrets.S: \"none\" is not a lent secret",
    ];
    refused(&text, &found);
}

#[tokio::test]
async fn what_the_agent_of_a_text_calls_passes_a_screen() {
    let screen_of = |allowed: StoredTenantsConfig, text: &str| {
        let text = TenantText::parse(text).expect("a text");
        let agent = text.admit(&allowed).unwrap_or_else(|error| unreachable!("{error}")).agent;
        match agent {
            AgentConfig::Upstream { upstream, .. } => upstream.screen,
            AgentConfig::Template(template) => match template.model {
                ModelConfig::Generative(model) => model.screen,
                ModelConfig::Scripted(_) => None,
            },
            AgentConfig::Script { .. } => None,
        }
        .expect("a screen")
    };
    let lending = |more: &str| -> StoredTenantsConfig {
        toml::from_str(&format!("hosts = [\"localhost\", \"*.localhost\", \"10.0.0.7\"]\n{more}")).expect("a table")
    };
    let at = |host: &str| {
        [upstream(&format!("card = \"http://{host}:8080/\"\n")), generative_at(&format!("http://{host}:8080/v1"))]
    };
    // A name that is lent is no leave to reach into the network: its owner says where it leads.
    for (host, more, is_called) in [
        ("localhost", "", false),
        ("a.localhost", "", false),
        ("10.0.0.7", "", true),
        ("localhost", "allow_private = [\"localhost\"]", true),
        ("a.localhost", "allow_private = [\"localhost\"]", false),
        ("a.localhost", "allow_private = [\"127.0.0.0/8\"]", true),
    ] {
        for text in at(host) {
            let checked = screen_of(lending(more), &text).check(&format!("http://{host}:8080/")).await;
            assert_eq!(checked.is_ok(), is_called, "{host} {more}: {checked:?}");
        }
    }
}
