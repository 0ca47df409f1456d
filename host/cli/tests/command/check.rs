//! `annex init` and `annex check`.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::support::{ConfigFile, Run, Server, run, specialist};

pub(crate) fn run_on(command: &str, config: &ConfigFile) -> Result<Run> {
    run([command.as_ref(), config.path.as_os_str()])
}

#[test]
fn a_config_that_init_has_written_is_sound_and_serves() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("annex.toml");
    let written = run(["init".as_ref(), file.as_os_str()])?;
    assert_eq!(written.code, Some(0), "{}", written.err);
    assert!(written.out.contains("annex check ") && written.out.contains("annex serve "), "{}", written.out);
    let checked = run(["check".as_ref(), file.as_os_str()])?;
    assert_eq!(checked.code, Some(0), "{}", checked.err);
    assert!(checked.out.contains("no errors (0 extensions)"), "{}", checked.out);
    let text = fs::read_to_string(&file)?;
    let again = run(["init".as_ref(), file.as_os_str()])?;
    assert_eq!(again.code, Some(1));
    assert!(again.err.contains("is there already and stays as it is"), "{}", again.err);
    assert_eq!(fs::read_to_string(&file)?, text);
    let server = text.replace("# listen = \"127.0.0.1:9999\"", "listen = \"127.0.0.1:0\"");
    assert_ne!(server, text);
    let server = Server::start(&server)?;
    let sent = run(["send", &server.url, "hello"])?;
    assert!(sent.out.contains("I have no model yet"), "{}{}", sent.out, sent.err);
    Ok(())
}

/// One header of each kind of table in a config.
const TABLES: [&str; 53] = [
    "[server]",
    "[server.tls]",
    "[auth]",
    "[auth.api_key_header]",
    "[[auth.api_key]]",
    "[auth.jwt]",
    "[auth.client_certificate]",
    "[auth.introspection]",
    "[auth.declare]",
    "[auth.declare.authorization_code]",
    "[auth.declare.client_credentials]",
    "[auth.declare.device_code]",
    "[card]",
    "[receipts]",
    "[card.provider]",
    "[[card.skill]]",
    "[card.extended]",
    "[card.signing]",
    "[push]",
    "[agent]",
    "[agent.model.scripted]",
    "[[agent.model.scripted.rules]]",
    "[[agent.mcp]]",
    "[agent.state]",
    "[agent.credentials]",
    "[agent.oauth]",
    "[[agent.rule]]",
    "[sessions]",
    "[tasks]",
    "[postgres]",
    "[replica]",
    "[keyvalue]",
    "[runtime]",
    "[runtime.ceiling]",
    "[traces]",
    "[trust]",
    "[[trust.rule]]",
    "[registries.\"registry.example\"]",
    "[admin]",
    "[admin.tls]",
    "[[tenant]]",
    "[tenant.quota]",
    "[tenant.quota.caller]",
    "[tenants]",
    "[[extension]]",
    "[extension.grants]",
    "[extension.grants.http]",
    "[extension.grants.keyvalue]",
    "[extension.grants.session-state]",
    "[extension.grants.agent-steps]",
    "[extension.grants.caller]",
    "[extension.grants.live-card]",
    "[extension.limits]",
];

#[test]
fn init_writes_every_key_that_a_config_takes() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("annex.toml");
    run(["init".as_ref(), file.as_os_str()])?;
    let text = fs::read_to_string(&file)?;
    let words: Vec<&str> = text.split(|letter: char| !(letter.is_alphanumeric() || "_-".contains(letter))).collect();
    // The error about a key that nobody knows lists the keys that are known.
    let config = format!("unknown = 1\n{}\nunknown = 1\n", TABLES.join("\nunknown = 1\n"));
    let listed = run_on("check", &ConfigFile::new(&config)?)?;
    let lines: Vec<&str> = listed.err.lines().filter(|line| line.contains("unknown: unknown key")).collect();
    assert_eq!(lines.len(), TABLES.len() + 1, "{}", listed.err);
    for line in lines {
        let (_, keys) = line.split_once(" takes ").with_context(|| line.to_owned())?;
        for key in keys.split('`').skip(1).step_by(2) {
            assert!(words.contains(&key), "{key} of {line}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_check_shows_all_errors_and_serve_and_a_reload_say_the_same() -> Result<()> {
    let sound = specialist();
    let wrong = sound.replace("[server]\n", "[server]\nmax_streams = 0\nbody_secnds = 1\n");
    let config = ConfigFile::new(&wrong)?;
    let checked = run_on("check", &config)?;
    assert_eq!(checked.code, Some(1), "{}", checked.out);
    let expected = [
        "annex.toml:6:1: server.max_streams: must be",
        "annex.toml:7:1: server.body_secnds: unknown key; did you mean",
    ];
    for part in expected {
        assert!(checked.err.contains(part), "{}", checked.err);
    }
    assert!(checked.err.starts_with("error: 2 errors in the config\n"), "{}", checked.err);
    let served = run_on("serve", &config)?;
    assert_eq!((served.code, served.err), (Some(1), checked.err));

    let mut server = Server::start(&sound)?;
    fs::write(&server.config.path, &wrong)?;
    server.signal(rustix::process::Signal::HUP)?;
    let begin = Instant::now();
    // The config is the source of a failure from then on.
    // Fails only when a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    while !reqwest::get(format!("{}/readyz", server.url)).await?.text().await?.contains("\"config\"") {
        ensure!(begin.elapsed() < Duration::from_secs(30), "the config is not read again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let log = server.kill_for_log()?;
    for part in expected {
        assert!(log.contains(part), "{log}");
    }
    Ok(())
}

#[test]
fn a_check_that_loads_names_the_parameter_that_is_wrong_and_those_that_there_are() -> Result<()> {
    let sound = specialist();
    let loaded = run(["check".as_ref(), ConfigFile::new(&sound)?.path.as_os_str(), "--load".as_ref()])?;
    assert_eq!(loaded.code, Some(0), "{}", loaded.err);
    assert!(loaded.out.contains("All extensions were loaded."), "{}", loaded.out);
    let extension = "[[extension]]\ncomponent = \"state-injection\"\ngrants = { session-state = { read = true } }\n";
    let config = |parameter: &str| {
        format!(
            "{}{extension}[extension.parameters]\n{parameter}\n",
            crate::support::template_agent("i", "").replace("        ", "")
        )
    };
    for (parameter, expected) in [
        ("state_shema = \"{}\"", ["state_shema", "did you mean `state_schema`? it takes `uri`"]),
        ("state_schema = \"{\"", ["`state_schema` cannot be used", ""]),
    ] {
        let text = config(parameter);
        let line = text.lines().position(|line| line == parameter).context("the parameter")? + 1;
        let config = ConfigFile::new(&text)?;
        let refused = run(["check".as_ref(), config.path.as_os_str(), "--load".as_ref()])?;
        assert_eq!(refused.code, Some(1), "{}", refused.out);
        assert!(refused.err.contains(&format!("annex.toml:{line}:1: ")), "{}", refused.err);
        for part in expected {
            assert!(refused.err.contains(part), "{}", refused.err);
        }
        assert_eq!(run_on("check", &config)?.code, Some(0), "without loading nobody can tell");
        let served = run_on("serve", &config)?;
        assert!(served.err.ends_with(&refused.err), "{}\n{}", served.err, refused.err);
    }
    Ok(())
}

#[test]
fn a_check_of_two_hundred_tenants_finds_the_one_that_is_wrong() -> Result<()> {
    let agent = "[card]\nname = \"n\"\ndescription = \"d\"\n[agent]\nkind = \"script\"\nname = \"a\"\nrule = []\n\
                 [[extension]]\ncomponent = \"timestamp\"\ngrants = { clock = true }\n";
    let tenants: String =
        (0..200).map(|number| format!("[[tenant]]\nname = \"t{number}\"\nconfig = \"t{number}.toml\"\n")).collect();
    let config = ConfigFile::new(&format!("{agent}{tenants}"))?;
    let folder = config.path.parent().unwrap_or(Path::new(""));
    for number in 0..200 {
        fs::write(folder.join(format!("t{number}.toml")), agent)?;
    }
    let checked = run_on("check", &config)?;
    assert!(
        checked.out.contains("no errors (201 extensions, 200 tenants). No extension was loaded"),
        "{}",
        checked.err
    );
    fs::write(folder.join("t77.toml"), agent.replace("clock", "clok"))?;
    let refused = run_on("check", &config)?;
    assert!(
        refused.err.contains("t77.toml:10:12: extension.grants.clok: unknown key; did you mean `clock`?"),
        "{}",
        refused.err
    );
    Ok(())
}

#[test]
fn a_brace_that_is_not_closed_is_a_warning_with_its_place() -> Result<()> {
    let text = crate::support::template_agent("You answer {user_info about {topic?}", "").replace("        ", "");
    let line = text.lines().position(|line| line.starts_with("instruction")).context("the instruction")? + 1;
    let config = ConfigFile::new(&text)?;
    let expected = format!("annex.toml:{line}:1: agent.instruction: the brace before user_info is not closed");
    let checked = run_on("check", &config)?;
    assert_eq!(checked.code, Some(0), "{}", checked.err);
    assert!(checked.err.starts_with("warning: ") && checked.err.contains(&expected), "{}", checked.err);
    assert!(checked.out.contains("no errors"), "{}", checked.out);
    let seen = run_on("doctor", &config)?;
    let is_told = seen.out.lines().any(|line| line.starts_with("warning  config ") && line.contains(&expected));
    assert!(seen.code == Some(0) && is_told, "{}", seen.out);
    fs::write(&config.path, text.replace("{user_info ", "{user_info} "))?;
    assert_eq!(run_on("check", &config)?.err, "");
    // Mistakes hide no warning, not even those of the table with the instruction.
    for (mistake, error) in [
        ("[runtime]\nkeep_version = 1\n\n[agent]", "runtime.keep_version: unknown key"),
        ("[agent]\nmodl = 1", "agent.modl: unknown key"),
        ("[agent]\non_lost_turn = \"follow\"", "agent.on_lost_turn: "),
    ] {
        fs::write(&config.path, text.replacen("[agent]", mistake, 1))?;
        let refused = run_on("check", &config)?;
        let brace = "agent.instruction: the brace before user_info is not closed";
        assert_eq!(refused.code, Some(1), "{}", refused.err);
        assert!(refused.err.starts_with("warning: ") && refused.err.contains(brace), "{}", refused.err);
        assert!(refused.err.contains("\nerror: ") && refused.err.contains(error), "{error}: {}", refused.err);
        let seen = run_on("doctor", &config)?;
        assert!(seen.code == Some(1) && seen.out.contains(brace), "{}", seen.out);
    }
    Ok(())
}

#[test]
fn extensions_that_revise_answers_are_warned_about_where_answers_can_pass_them() -> Result<()> {
    let extension = |keys: &str| {
        let component = annex_components::TEST_STEERING;
        format!("\n[[extension]]\ncomponent = {component:?}\n{keys}\n[extension.grants]\nrewrite-answer = true\n")
    };
    let skipped = "extension.on_failure: lets answers through unchanged";
    let second = "extension.grants.rewrite-answer: is granted to several extensions";
    let left_out = "extension.grants.rewrite-answer: is for requests that activate this extension alone";
    for (extensions, expected) in [
        (extension(""), [false, true, false]),
        (extension("required = true"), [false, false, false]),
        (extension("activate = \"always\""), [false, false, false]),
        (extension("activate = \"always\"\non_failure = \"skip\""), [true, false, false]),
        (extension("on_failure = \"skip\"") + &extension("on_failure = \"reject\""), [true, true, true]),
    ] {
        let config =
            ConfigFile::new(&crate::support::template_agent("Be short.", &extensions).replace("        ", ""))?;
        let checked = run_on("check", &config)?;
        assert_eq!(checked.code, Some(0), "{}", checked.err);
        assert_eq!(
            [skipped, left_out, second].map(|warning| checked.err.contains(warning)),
            expected,
            "{}",
            checked.err
        );
    }
    Ok(())
}

#[test]
fn an_extension_that_steers_is_warned_about_where_it_may_be_skipped() -> Result<()> {
    let warning = "extension.on_failure: lets calls of tools pass unchecked";
    for (keys, grant, expected) in [
        ("on_failure = \"skip\"", "{ steer = true }", true),
        ("on_failure = \"reject\"", "{ steer = true }", false),
        ("on_failure = \"skip\"", "true", false),
    ] {
        let component = annex_components::TEST_STEERING;
        let extension =
            format!("\n[[extension]]\ncomponent = {component:?}\n{keys}\n[extension.grants]\nagent-steps = {grant}\n");
        let config = ConfigFile::new(&crate::support::template_agent("Be short.", &extension).replace("        ", ""))?;
        let checked = run_on("check", &config)?;
        assert_eq!(checked.code, Some(0), "{}", checked.err);
        assert_eq!(checked.err.contains(warning), expected, "{keys} {grant}: {}", checked.err);
    }
    Ok(())
}

#[test]
fn claims_that_no_caller_can_have_are_a_warning_with_its_place() -> Result<()> {
    let warning = "extension.grants.caller.claims: no caller has claims";
    let jwt = "[auth.jwt]\nissuer = \"https://id.example.com\"\naudience = [\"annex\"]\n\
               jwks_url = \"https://id.example.com/keys\"\n";
    for (caller, more, expected) in [
        ("{ principal = true, claims = [\"org\"] }", "", true),
        ("{ principal = true, claims = [\"org\"] }", jwt, false),
        ("{ principal = true }", "", false),
    ] {
        let component = annex_components::TEST_STEERING;
        let extension =
            format!("\n[[extension]]\ncomponent = {component:?}\n[extension.grants]\ncaller = {caller}\n{more}");
        let config = ConfigFile::new(&crate::support::template_agent("Be short.", &extension).replace("        ", ""))?;
        let checked = run_on("check", &config)?;
        assert_eq!(checked.code, Some(0), "{}", checked.err);
        assert_eq!(checked.err.contains(warning), expected, "{caller} {more}: {}", checked.err);
    }
    Ok(())
}

#[test]
fn a_principal_in_allow_without_an_api_key_is_a_warning_with_the_name_that_was_meant() -> Result<()> {
    let key = format!("[[auth.api_key]]\nprincipal = \"ada\"\nkey_sha256 = \"{}\"\n", "0".repeat(64));
    let warning = "extension.allow: \"adda\" is the principal of no [[auth.api_key]]; did you mean \"ada\"?";
    for (principal, expected) in [("adda", true), ("ada", false)] {
        let extension =
            format!("\n[[extension]]\ncomponent = \"payment-cards\"\nallow = [\"principal:{principal}\"]\n{key}");
        let config = ConfigFile::new(&crate::support::template_agent("Be short.", &extension).replace("        ", ""))?;
        let checked = run_on("check", &config)?;
        assert_eq!(checked.code, Some(0), "{}", checked.err);
        assert_eq!(checked.err.contains(warning), expected, "{}", checked.err);
    }
    Ok(())
}

/// The text of a tenant. Its `instruction` is in line 6, to which errors refer.
pub(crate) fn tenant_text(more: &str) -> String {
    format!(
        "[card]\nname = \"n\"\ndescription = \"d\"\n[agent]\nkind = \"template\"\ninstruction = \"i\"\nname = \"a\"\n\
         [agent.model.scripted]\nfallback = \"f\"\n{more}"
    )
}

#[test]
fn the_file_of_a_tenant_is_checked_before_it_is_added() -> Result<()> {
    let config = ConfigFile::new(&specialist().replacen("[agent]", "[tenants]\n\n[agent]", 1))?;
    let file = config.path.with_file_name("acme.toml");
    let check = |text: &str, with_config: bool| -> Result<Run> {
        fs::write(&file, text)?;
        let with = with_config.then_some(config.path.as_os_str());
        run(["check".as_ref(), "--tenant".as_ref(), file.as_os_str()].into_iter().chain(with))
    };
    let shipped = "[[extension]]\ncomponent = \"timestamp\"\ngrants = { clock = true }\n";
    for with_config in [true, false] {
        let sound = check(&tenant_text(shipped), with_config)?;
        assert_eq!(sound.code, Some(0), "{}", sound.err);
        assert!(sound.out.contains("acme.toml: no errors (1 extension)."), "{}", sound.out);
        let wrong = tenant_text("[card.signng]\n").replace("\"n\"", "5");
        let refused = check(&wrong, with_config)?;
        assert_eq!(refused.code, Some(1), "{}", refused.out);
        for part in
            ["acme.toml:2:8: card.name: is the number 5", "acme.toml:10:1: card.signng: unknown key; did you mean"]
        {
            assert!(refused.err.contains(part), "{}", refused.err);
        }
    }
    let lent = "[card.signing]\nkid = \"k\"\nsecret = \"pem\"\n";
    for (more, part) in [
        (lent, "acme.toml:12:1: card.signing.secret: \"pem\" is not a lent secret"),
        ("[[extension]]\ncomponent = \"timestmp\"\n", "acme.toml:11:1: extension.component: "),
        (
            "[[extension]]\ncomponent = \"timestamp\"\nlimits = { cpu_ms = 5000000 }\n",
            "extension.limits.cpu_ms: is 5000000; it must be at most 60000",
        ),
    ] {
        let refused = check(&tenant_text(more), true)?;
        assert!(refused.code == Some(1) && refused.err.contains(part), "{part}: {}", refused.err);
    }
    let uploaded = format!("[[extension]]\ncomponent = \"sha256:{}\"\n", "0".repeat(64));
    let warned = check(&tenant_text(&uploaded), true)?;
    assert_eq!(warned.code, Some(0), "{}", warned.err);
    assert!(
        warned.err.contains("extension.component: sha256:000") && warned.err.contains("uploaded"),
        "{}",
        warned.err
    );
    fs::write(&config.path, specialist())?;
    let none = check(&tenant_text(""), true)?;
    assert!(none.code == Some(1) && none.err.contains("annex.toml: tenants: is missing"), "{}", none.err);
    assert_eq!(run(["check"])?.code, Some(2));
    Ok(())
}
