//! `annex lock` and `annex add`.

use std::fs;

use annex_test_support::TestRegistry;
use anyhow::Result;
use tempfile::TempDir;

use crate::registry::{check, new_key, push};
use crate::support::{Run, annex, template_agent};

const ALLOW: &str = "[trust]\ndefault = \"allow\"\n";

/// A folder with the config `annex.toml`, and a cache of its own.
struct Workplace(TempDir);

impl Workplace {
    fn new(config: &str) -> Result<Self> {
        let workplace = Self(tempfile::tempdir()?);
        workplace.write("annex.toml", config)?;
        Ok(workplace)
    }

    /// Runs a command in the folder.
    fn run(&self, arguments: &[&str]) -> Result<Run> {
        let mut command = annex(arguments);
        command.current_dir(self.0.path()).env("XDG_CACHE_HOME", self.0.path().join("cache"));
        let output = command.output()?;
        let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
        Ok(Run { code: output.status.code(), out, err })
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.0.path().join(file), text)?)
    }

    /// The text of a file. `None` if there is no such file.
    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.0.path().join(file)).ok()
    }

    #[track_caller]
    fn check_lock(&self, expected: &[&str]) {
        let lock = self.read("annex.lock").unwrap_or_default();
        for expected in expected {
            assert!(lock.contains(expected), "{expected}: {lock}");
        }
    }
}

/// A config with this component, after the tables in `more`.
fn with_component(reference: &str, grants: &str, more: &str) -> String {
    let extension = format!("[[extension]]\ncomponent = \"{reference}\"\n[extension.grants]\n{grants}\n");
    template_agent("Answer.", &format!("{more}{extension}"))
}

fn digest(pinned: &str) -> &str {
    pinned.split_once('@').map_or("", |(_, digest)| digest)
}

#[test]
fn a_lock_has_the_components_of_a_config_and_checks_accept_it() -> Result<()> {
    let registry = TestRegistry::start();
    let reference = registry.reference("acme/clock:1.2");
    let pinned = push("timestamp", &reference)?;
    let workplace = Workplace::new(&with_component(&reference, "clock = true", ALLOW))?;
    let locked = workplace.run(&["lock", "annex.toml"])?;
    check(&locked, 0, &[&format!("{reference}  locked at {}", digest(&pinned))]);
    workplace.check_lock(&[&format!("\"{reference}\""), digest(&pinned), "\"clock\""]);
    check(&workplace.run(&["check", "annex.toml", "--load"])?, 0, &["no errors (1 extension)"]);

    // A locked component comes from the cache.
    registry.corrupt_blobs();
    check(&workplace.run(&["lock", "annex.toml"])?, 0, &[&format!("{reference}  stays at {}", digest(&pinned))]);
    fs::remove_dir_all(workplace.0.path().join("cache"))?;
    check(&workplace.run(&["lock", "annex.toml"])?, 3, &["has sent other content than sha256:"]);
    registry.corrupt_blobs();
    check(&workplace.run(&["lock", "annex.toml"])?, 0, &["stays at"]);

    workplace.write("annex.toml", &template_agent("Answer.", ALLOW))?;
    check(&workplace.run(&["lock", "annex.toml"])?, 0, &[&format!("{reference}  left annex.lock")]);
    assert!(!workplace.read("annex.lock").unwrap_or_default().contains("clock"));
    Ok(())
}

#[test]
fn components_that_added_tenants_may_have_are_locked_with_grants_that_a_person_gives() -> Result<()> {
    let registry = TestRegistry::start();
    let reference = registry.reference("acme/clock:1.2");
    push("timestamp", &reference)?;
    let tenants = format!("{ALLOW}[tenants]\ncomponents = [\"{reference}\"]\n");
    let workplace = Workplace::new(&template_agent("Answer.", &tenants))?;
    check(&workplace.run(&["check", "annex.toml"])?, 1, &["tenants.components", "annex lock"]);
    check(&workplace.run(&["lock", "annex.toml"])?, 3, &["annex lock annex.toml --accept clock"]);
    check(&workplace.run(&["lock", "annex.toml", "--accept", "clock"])?, 0, &["locked at"]);
    workplace.check_lock(&[&format!("\"{reference}\""), "\"clock\""]);
    check(&workplace.run(&["check", "annex.toml"])?, 0, &["no errors"]);
    Ok(())
}

#[test]
fn a_moved_tag_is_followed_only_by_an_update_whose_grants_are_accepted() -> Result<()> {
    let registry = TestRegistry::start();
    let reference = registry.reference("acme/clock:1");
    let one = push("timestamp", &reference)?;
    let two = push("state-injection", &registry.reference("acme/clock:2"))?;
    let workplace = Workplace::new(&with_component(&reference, "clock = true", ALLOW))?;
    check(&workplace.run(&["lock", "annex.toml"])?, 0, &[]);
    let before = workplace.read("annex.lock");
    registry.move_tag("acme/clock", "1", "2");
    check(&workplace.run(&["lock", "annex.toml"])?, 0, &[&format!("stays at {}", digest(&one))]);
    check(&workplace.run(&["outdated", "annex.toml"])?, 0, &["newest 2", "its tag has moved since annex.lock"]);
    let inspect = |reference: &str| workplace.run(&["inspect", reference, "--config", "annex.toml"]);
    check(&inspect(&one)?, 0, &["annex.lock     has this component"]);
    let has = format!("annex.lock     has {reference} at {}", digest(&one));
    check(&inspect(&reference)?, 0, &[&has, "needs further grants: session-state"]);
    check(&inspect("timestamp")?, 2, &["--config is for components of registries"]);
    check(
        &workplace.run(&["lock", "annex.toml", "--update", "--accept", "clock"])?,
        3,
        &[
            "moved from",
            digest(&one),
            digest(&two),
            "needs further grants: session-state",
            "session-state = { read = true }",
            "annex lock annex.toml --update --accept clock,session-state",
        ],
    );
    assert_eq!(workplace.read("annex.lock"), before, "nothing was written");
    let updated = workplace.run(&["lock", "annex.toml", "--update", "--accept", "session-state"])?;
    check(
        &updated,
        0,
        &[
            "moved from",
            digest(&two),
            "grants: clock -> session-state",
            "annex.toml does not give",
            "session-state = { read = true }",
        ],
    );
    workplace.check_lock(&[digest(&two), "\"session-state\""]);
    check(&workplace.run(&["lock", "annex.toml", "--update"])?, 0, &["stays at"]);
    let outdated = workplace.run(&["outdated", "annex.toml"])?;
    assert!(outdated.code == Some(0) && !outdated.out.contains("has moved"), "{}", outdated.out);
    Ok(())
}

#[test]
fn a_new_component_is_locked_only_with_grants_that_the_config_or_a_person_gives() -> Result<()> {
    let registry = TestRegistry::start();
    let reference = registry.reference("acme/clock:1");
    push("timestamp", &reference)?;
    let workplace = Workplace::new(&with_component(&reference, "random = true", ALLOW))?;
    let refused = workplace.run(&["lock", "annex.toml"])?;
    check(&refused, 3, &["needs grants that the config does not give: clock", "clock = true", "--accept clock"]);
    assert_eq!(workplace.read("annex.lock"), None);
    check(&workplace.run(&["lock", "annex.toml", "--accept", "clocks"])?, 2, &["\"clocks\" is no grant", "keyvalue"]);
    let accepted = workplace.run(&["lock", "annex.toml", "--accept", "clock"])?;
    check(&accepted, 0, &["locked at", "annex.toml does not give"]);
    workplace.check_lock(&["\"clock\""]);
    workplace.write("annex.lock", "version = 2\n")?;
    check(&workplace.run(&["lock", "annex.toml"])?, 1, &["annex.lock:1: version 2 is unknown", "delete it"]);
    Ok(())
}

#[test]
fn a_component_that_the_config_does_not_trust_is_not_locked() -> Result<()> {
    let registry = TestRegistry::start();
    let reference = registry.reference("acme/clock:1");
    let pinned = push("timestamp", &reference)?;
    let workplace = Workplace::new(&with_component(&reference, "clock = true", ""))?;
    check(&workplace.run(&["lock", "annex.toml"])?, 3, &["is not trusted", "trust.all_of"]);
    let key = new_key(workplace.0.path(), "acme")?.display().to_string();
    let trust = "[trust]\nall_of = [{ key = \"acme.pub\" }]\n";
    workplace.write("annex.toml", &with_component(&reference, "clock = true", trust))?;
    check(&workplace.run(&["lock", "annex.toml"])?, 3, &["acme.pub, has not signed it; it has no signature"]);
    check(&workplace.run(&["add", &registry.reference("acme/other:1")])?, 3, &["does not exist"]);
    assert_eq!(workplace.read("annex.lock"), None);
    check(&workplace.run(&["sign", &pinned, "--key", &key])?, 0, &[]);
    check(&workplace.run(&["lock", "annex.toml"])?, 0, &["locked at"]);
    workplace.check_lock(&["\"acme.pub\""]);
    Ok(())
}

#[test]
fn the_file_of_a_tenant_has_a_lock_in_its_own_folder() -> Result<()> {
    let registry = TestRegistry::start();
    let reference = registry.reference("acme/clock:1");
    let pinned = push("timestamp", &reference)?;
    let tenant = format!("{ALLOW}[[tenant]]\nname = \"acme\"\nconfig = \"acme/agent.toml\"\n");
    let workplace = Workplace::new(&template_agent("Answer.", &tenant))?;
    fs::create_dir(workplace.0.path().join("acme"))?;
    let agent = "[card]\nname = \"n\"\ndescription = \"d\"\n[agent]\nkind = \"script\"\nname = \"a\"\nrule = []\n";
    let extension = format!("[[extension]]\ncomponent = \"{reference}\"\ngrants = {{ clock = true }}\n");
    workplace.write("acme/agent.toml", &format!("{agent}{extension}"))?;
    check(&workplace.run(&["lock", "annex.toml"])?, 0, &["locked at"]);
    assert!(workplace.read("acme/annex.lock").is_some_and(|lock| lock.contains(digest(&pinned))));
    assert_eq!(workplace.read("annex.lock"), None);

    new_key(workplace.0.path(), "own")?;
    let trust = "[trust]\nall_of = [{ key = \"../own.pub\" }]\n";
    workplace.write("acme/agent.toml", &format!("{agent}{extension}{trust}"))?;
    check(&workplace.run(&["lock", "annex.toml"])?, 3, &["the tenant's trust.all_of", "../own.pub, has not signed it"]);
    Ok(())
}

#[test]
fn an_added_component_is_appended_to_a_config_that_keeps_its_text() -> Result<()> {
    let registry = TestRegistry::start();
    let reference = registry.reference("acme/clock:1.2");
    let pinned = push("timestamp", &reference)?;
    let before = format!("# Mine.\n{} # and why\n\n", template_agent("Answer.", ALLOW).trim_end());
    let workplace = Workplace::new(&before)?;
    let added = workplace.run(&["add", &reference, "--accept", "clock"])?;
    check(&added, 0, &[&pinned, "grants      clock", "by nobody", "Added oci://"]);
    let table = format!("[[extension]]\ncomponent = \"{reference}\"\n\n[extension.grants]\nclock = true\n");
    assert_eq!(workplace.read("annex.toml"), Some(format!("{}\n\n{table}", before.trim_end())));
    workplace.check_lock(&[&format!("\"{reference}\""), digest(&pinned), "\"clock\""]);
    check(&workplace.run(&["check", "annex.toml", "--load"])?, 0, &["no errors (1 extension)"]);
    check(&workplace.run(&["lock", "annex.toml"])?, 0, &["stays at"]);
    let other = registry.reference("acme/clock:2");
    let again = workplace.run(&["add", &other, "--accept", "clock"])?;
    check(&again, 2, &[&format!("names {reference} already"), "annex lock annex.toml"]);
    Ok(())
}

#[test]
fn a_component_is_added_without_a_terminal_only_if_its_grants_are_accepted() -> Result<()> {
    let registry = TestRegistry::start();
    let (clock, parts) = (registry.reference("acme/clock:1"), registry.reference("acme/parts:1"));
    push("timestamp", &clock)?;
    push("strict-parts", &parts)?;
    let before = template_agent("Answer.", ALLOW);
    let workplace = Workplace::new(&before)?;
    let add = |more: &[&str]| workplace.run(&[&["add", clock.as_str()][..], more].concat());
    check(&add(&[])?, 2, &["standard input is no terminal", "--accept clock"]);
    check(&add(&["--accept", "none"])?, 3, &["needs other grants than --accept names", "--accept clock"]);
    check(&add(&["--accept", "clock,random"])?, 3, &["needs other grants than --accept names"]);
    check(&add(&["--accept", "clocks"])?, 2, &["\"clocks\" is no grant"]);
    check(&add(&["--config", "other.toml", "--accept", "clock"])?, 1, &["--config", "other.toml"]);
    assert_eq!((workplace.read("annex.toml"), workplace.read("annex.lock")), (Some(before.clone()), None));
    check(
        &workplace.run(&["add", &parts, "--accept", "none", "--required"])?,
        0,
        &["grants      none", "Added oci://"],
    );
    assert!(workplace.read("annex.toml").is_some_and(|config| config.ends_with("required = true\n")));

    // TOML appends no table to such a list.
    let list = format!("extension = []\n{before}");
    workplace.write("annex.toml", &list)?;
    check(&add(&["--accept", "clock"])?, 1, &["stays as it is", "write it in yourself", "[[extension]]"]);
    assert_eq!(workplace.read("annex.toml"), Some(list));
    Ok(())
}
