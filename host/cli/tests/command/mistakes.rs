//! Mistakes of several files, which `annex check` shows at once.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result};

use crate::check::{run_on, tenant_text};
use crate::support::{ConfigFile, Run, annex, run, specialist};

#[test]
fn the_paths_of_a_file_start_at_its_own_folder_wherever_the_command_runs() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let tenants = folder.path().join("conf/tenants");
    fs::create_dir_all(&tenants)?;
    let agent = "[card]\nname = \"n\"\ndescription = \"d\"\n[agent]\nkind = \"script\"\nname = \"a\"\nrule = []\n";
    let named = "[[tenant]]\nname = \"acme\"\nconfig = \"tenants/acme.toml\"\n";
    fs::write(folder.path().join("conf/annex.toml"), format!("{agent}{named}"))?;
    let grants = "grants = { clock = true, secrets = { S = { file = \"key\" } } }";
    let acme = format!("{agent}[[extension]]\ncomponent = \"timestamp\"\n{grants}\n");
    fs::write(tenants.join("acme.toml"), acme)?;
    let key = tenants.join("key");
    fs::write(&key, "a secret")?;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
    // `--load` finds the files as a start does.
    let check = || annex(["check", "conf/annex.toml", "--load"]).current_dir(folder.path()).output();
    let sound = check()?;
    assert_eq!(sound.status.code(), Some(0), "{}", String::from_utf8_lossy(&sound.stderr));
    fs::rename(&key, key.with_extension("away"))?;
    let without_key = String::from_utf8(check()?.stderr)?;
    let expected = "conf/tenants/acme.toml:10:44: extension.grants.secrets.S.file: cannot read conf/tenants/key: ";
    assert!(without_key.contains(expected), "{without_key}");
    fs::rename(tenants.join("acme.toml"), folder.path().join("conf/acme.toml"))?;
    let without_file = String::from_utf8(check()?.stderr)?;
    let expected = "conf/annex.toml:10:1: tenant.config: cannot read \"tenants/acme.toml\", which is /";
    assert!(
        without_file.contains(expected) && without_file.contains("/conf/tenants/acme.toml: No such"),
        "{without_file}"
    );
    Ok(())
}

/// A tenant's text with a mistake of each kind, and the errors that need no config of a server.
fn wrong_tenant_text() -> (String, [&'static str; 7]) {
    let text = tenant_text(
        "[agent.x]\n[[extension]]\ncomponent = \"./mine.wasm\"\n[[extension]]\ncomponent = \"timestamp\"\n\
         on_failure = \"skip\"\nrequired = true\n[extension.limits]\ncpu_ms = 5000000\n\
         [extension.grants]\nkeyvalue = { max_keys = 9999999 }\nsecrets = { S = \"key\" }\n",
    );
    let errors = [
        "acme.toml:6:1: agent.on_lost_tun: unknown key; did you mean `on_lost_turn`?",
        "acme.toml:11:1: agent.x: unknown key",
        "acme.toml:13:1: extension.component: \"./mine.wasm\" is neither",
        "acme.toml:16:1: extension.on_failure: is \"skip\"",
        "acme.toml:19:1: extension.limits.cpu_ms: is 5000000; it must be at most 60000",
        "acme.toml:21:14: extension.grants.keyvalue.max_keys: 9999999 is more than a tenant may have",
        "warning: ",
    ];
    (text.replace("instruction = \"i\"", "on_lost_tun = \"fail\"\ninstruction = \"of {user_info\""), errors)
}

#[test]
fn all_mistakes_of_a_tenants_file_and_of_the_config_are_shown_at_once() -> Result<()> {
    let config = ConfigFile::new(&specialist())?;
    let file = config.path.with_file_name("acme.toml");
    let (text, errors) = wrong_tenant_text();
    fs::write(&file, text)?;
    let check = || run(["check".as_ref(), config.path.as_os_str(), "--tenant".as_ref(), file.as_os_str()]);
    let without_table = check()?;
    assert_eq!(without_table.code, Some(1), "{}", without_table.out);
    for part in errors.into_iter().chain(["annex.toml: tenants: is missing; without this table"]) {
        assert!(without_table.err.contains(part), "{part}: {}", without_table.err);
    }
    fs::write(&config.path, specialist().replacen("[agent]", "[tenants]\n\n[agent]", 1))?;
    let lent = check()?;
    for part in errors.into_iter().chain(["acme.toml:22:13: extension.grants.secrets.S: \"key\" is not a lent secret"])
    {
        assert!(lent.err.contains(part), "{part}: {}", lent.err);
    }
    assert!(!lent.err.contains("annex.toml"), "{}", lent.err);
    fs::write(&config.path, specialist().replacen("[agent]", "[tenant]\n\n[agent]", 1))?;
    let both = check()?;
    for part in errors.into_iter().chain(["annex.toml:21:1: tenant: is one table"]) {
        assert!(both.err.contains(part), "{part}: {}", both.err);
    }
    Ok(())
}

#[test]
fn a_tenants_file_is_checked_alone_as_far_as_no_config_is_needed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("acme.toml");
    let check = |text: &str| -> Result<Run> {
        fs::write(&file, text)?;
        run(["check".as_ref(), "--tenant".as_ref(), file.as_os_str()])
    };
    let (text, errors) = wrong_tenant_text();
    let refused = check(&text)?;
    assert_eq!(refused.code, Some(1), "{}", refused.out);
    for part in errors {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    assert!(!refused.err.contains("lent"), "{}", refused.err);
    // What only the server's config can tell is taken on trust.
    let lent = "[card.signing]\nkid = \"k\"\nsecret = \"pem\"\n[card.extended]\ndescription = \"d\"\n[[extension]]\n\
                component = \"timestamp\"\nallow = [\"principal:ada\"]\ngrants = { clock = true, secrets = { S = \"key\" } }\n\
                [[agent.mcp]]\nname = \"m\"\nurl = \"https://mcp.example.com\"\nsecret = \"token\"\n";
    let rerun = tenant_text(lent).replace("name = \"a\"", "name = \"a\"\non_lost_turn = \"rerun\"");
    let sound = check(&rerun)?;
    assert!(sound.code == Some(0) && sound.err.is_empty(), "{}", sound.err);
    assert!(sound.out.contains("Name the server's config too, to check the secrets"), "{}", sound.out);
    Ok(())
}

#[test]
fn all_extensions_that_are_refused_are_shown_at_once() -> Result<()> {
    let extension = |parameter: &str| {
        format!(
            "[[extension]]\ncomponent = \"state-injection\"\ngrants = {{ session-state = {{ read = true }} }}\n\
             [extension.parameters]\n{parameter}\n"
        )
    };
    let agent = crate::support::template_agent("i", "").replace("        ", "");
    let two = format!("{agent}{}{}", extension("state_shema = \"{}\""), extension("state_schema = \"{\""));
    let config = ConfigFile::new(&two)?;
    let refused = run(["check".as_ref(), config.path.as_os_str(), "--load".as_ref()])?;
    assert_eq!(refused.code, Some(1), "{}", refused.out);
    assert!(refused.err.starts_with("error: 2 errors\n"), "{}", refused.err);
    for (parameter, reason) in
        [("state_shema", "did you mean `state_schema`?"), ("state_schema = \"{\"", "cannot be used")]
    {
        let line = two.lines().position(|line| line.starts_with(parameter)).context("the parameter")? + 1;
        let begins = format!("annex.toml:{line}:1: ");
        let is_told = refused.err.lines().any(|told| told.contains(&begins) && told.contains(reason));
        assert!(is_told, "{parameter}: {}", refused.err);
    }
    let served = run_on("serve", &config)?;
    assert_eq!(served.code, Some(1));
    assert!(served.err.ends_with(&refused.err), "{}\n{}", served.err, refused.err);
    Ok(())
}
