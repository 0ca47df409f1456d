//! The commands for OCI registries, with a registry in the process of the test.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use annex_registry::{Cache, Reference};
use annex_test_support::TestRegistry;
use anyhow::{Context, Result};
use serde_json::Value;

use crate::support::{ConfigFile, Run, annex, free_address, run, template_agent};

/// Pushes a component that ships. Returns the reference with its digest.
pub(crate) fn push(component: &str, reference: &str) -> Result<String> {
    let Run { code, out, err } = run(["push", component, reference])?;
    assert_eq!(code, Some(0), "{err}");
    Ok(out.trim_end().to_owned())
}

/// Makes a key in the folder. Returns the file of the private key.
pub(crate) fn new_key(folder: &Path, name: &str) -> Result<PathBuf> {
    let made = run(["sign".as_ref(), "--generate".as_ref(), folder.join(name).as_os_str()])?;
    check(&made, 0, &[]);
    Ok(folder.join(format!("{name}.key")))
}

#[track_caller]
pub(crate) fn check(run: &Run, code: i32, expected: &[&str]) {
    assert_eq!(run.code, Some(code), "{}{}", run.out, run.err);
    for expected in expected {
        assert!(run.out.contains(expected) || run.err.contains(expected), "{expected}: {}{}", run.out, run.err);
    }
}

#[test]
fn a_push_prints_the_reference_with_the_digest() -> Result<()> {
    let registry = TestRegistry::start();
    let reference = registry.reference("acme/clock:1.2");
    let pinned = push("timestamp", &reference)?;
    assert!(pinned.starts_with(&format!("{reference}@sha256:")), "{pinned}");
    assert_eq!(push("timestamp", &reference)?, pinned, "the same component has the same digest");
    Ok(())
}

#[test]
fn a_push_that_cannot_be_done_says_why_and_pushes_nothing() -> Result<()> {
    let registry = TestRegistry::start();
    let reference = registry.reference("acme/clock:1.2");
    let toml = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    check(&run(["push", toml, &reference])?, 3, &["Cargo.toml is refused"]);
    let digest = format!("{reference}@sha256:{}", "0".repeat(64));
    check(&run(["push", "timestamp", &digest])?, 2, &["name a tag alone"]);
    check(&run(["push", "timestamp", "oci://registry.example/A"])?, 2, &["its path"]);
    let nobody = free_address()?;
    let unreachable = run(["push", "timestamp", &format!("{nobody}/acme/clock")])?;
    check(&unreachable, 4, &[&format!("{nobody} does not answer")]);
    let protected = TestRegistry::with_login("ada", "secret");
    let refused = run(["push", "timestamp", &protected.reference("acme/clock")])?;
    check(&refused, 3, &["there are no credentials", "annex login 127.0.0.1:"]);
    Ok(())
}

#[test]
fn a_component_whose_manifest_says_less_than_it_needs_is_not_pushed() -> Result<()> {
    let registry = TestRegistry::start();
    let reference = registry.reference("acme/clock:1.2");
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("clock.wasm");
    let section = br#"annex:manifest{"name":"clock","version":"1","grants":{}}"#;
    // It needs several grants, and has no manifest of its own.
    let mut component = fs::read(annex_components::TEST_CAPABILITIES)?;
    component.extend([0, u8::try_from(section.len() + 1)?, 14]);
    component.extend(section);
    fs::write(&file, component)?;
    let pushed = run(["push".as_ref(), file.as_os_str(), OsStr::new(&reference)])?;
    check(&pushed, 3, &["clock.wasm is refused", "it does not name agent-steps, "]);
    check(&run(["pull", &reference])?, 3, &["does not exist"]);
    Ok(())
}

#[test]
fn a_pull_writes_the_bytes_that_were_pushed_or_no_file() -> Result<()> {
    let registry = TestRegistry::start();
    let reference = registry.reference("acme/clock:1.2");
    let pinned = push("timestamp", &reference)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("clock.wasm");
    let pull = |reference: &str| run(["pull".as_ref(), reference.as_ref(), "-o".as_ref(), file.as_os_str()]);
    check(&pull(&reference)?, 0, &[&pinned, "clock.wasm"]);
    let again = folder.path().join("again.wasm");
    let named: [&OsStr; 3] = ["push".as_ref(), file.as_os_str(), reference.as_ref()];
    assert_eq!(run(named)?.out.trim_end(), pinned, "the file has the bytes that were pushed");
    check(&pull(&reference)?, 1, &["is there already"]);
    check(&run(["pull".as_ref(), pinned.as_ref(), "-o".as_ref(), again.as_os_str()])?, 0, &[&pinned]);
    assert_eq!(fs::read(&again)?, fs::read(&file)?);

    fs::remove_file(&file)?;
    registry.corrupt_blobs();
    check(&pull(&reference)?, 3, &["has sent other content than sha256:"]);
    assert!(!file.exists());
    check(&pull(&registry.reference("acme/other"))?, 3, &["acme/other:latest does not exist"]);
    Ok(())
}

#[test]
fn a_digest_stays_the_same_component_when_its_tag_is_moved() -> Result<()> {
    let registry = TestRegistry::start();
    let pinned = push("timestamp", &registry.reference("acme/clock:1"))?;
    let other = push("strict-parts", &registry.reference("acme/clock:2"))?;
    registry.move_tag("acme/clock", "1", "2");
    let folder = tempfile::tempdir()?;
    let file = |name: &str| folder.path().join(name);
    let moved =
        run(["pull".as_ref(), OsStr::new(&registry.reference("acme/clock:1")), "-o".as_ref(), file("a").as_os_str()])?;
    let digest = other.split_once('@').map(|(_, digest)| digest).unwrap_or_default();
    check(&moved, 0, &[digest]);
    check(&run(["pull".as_ref(), OsStr::new(&pinned), "-o".as_ref(), file("b").as_os_str()])?, 0, &[&pinned]);
    assert_ne!(fs::read(file("a"))?, fs::read(file("b"))?);
    Ok(())
}

#[test]
fn a_new_key_is_secret_and_replaces_no_file() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (name, key) = (folder.path().join("acme"), folder.path().join("acme.key"));
    let generate = || run(["sign".as_ref(), "--generate".as_ref(), name.as_os_str()]);
    check(&generate()?, 0, &["acme.key", "annex verify REF --key"]);
    assert_eq!(fs::metadata(&key)?.permissions().mode() & 0o777, 0o600);
    let before = fs::read_to_string(&key)?;
    assert!(before.starts_with("-----BEGIN PRIVATE KEY-----\n"));
    check(&generate()?, 1, &["acme.pub is there already"]);
    fs::remove_file(folder.path().join("acme.pub"))?;
    check(&generate()?, 1, &["acme.key is there already"]);
    assert_eq!(fs::read_to_string(&key)?, before);
    Ok(())
}

#[test]
fn a_signature_needs_a_component_and_a_private_key() -> Result<()> {
    let registry = TestRegistry::start();
    let folder = tempfile::tempdir()?;
    let key = new_key(folder.path(), "acme")?;
    let reference = registry.reference("acme/clock:1.2");
    let sign = |key: &Path| run(["sign".as_ref(), reference.as_ref(), "--key".as_ref(), key.as_os_str()]);
    check(&sign(&key)?, 3, &["acme/clock:1.2 does not exist"]);
    let pinned = push("timestamp", &reference)?;
    check(&sign(&key)?, 0, &[&pinned, "signed by the key "]);
    check(&sign(&key.with_extension("pub"))?, 1, &["acme.pub has no key in PEM", "PRIVATE KEY"]);
    check(&sign(&folder.path().join("nobody.key"))?, 1, &["cannot read", "nobody.key"]);
    check(&run(["sign", &reference])?, 2, &["--key"]);
    check(&run(["sign", "--key", "acme.key"])?, 2, &["REF_OR_FILE"]);
    Ok(())
}

#[test]
fn a_signature_holds_for_its_component_alone() -> Result<()> {
    let registry = TestRegistry::start();
    let folder = tempfile::tempdir()?;
    let (key, other) = (new_key(folder.path(), "acme")?, new_key(folder.path(), "other")?);
    let verify = |reference: &str, keys: &[&Path]| {
        let mut arguments = vec!["verify".to_owned(), reference.to_owned()];
        for key in keys {
            arguments.extend(["--key".to_owned(), key.with_extension("pub").display().to_string()]);
        }
        run(arguments)
    };
    let (one, two) = (registry.reference("acme/clock:1"), registry.reference("acme/clock:2"));
    let pinned = push("timestamp", &one)?;
    push("strict-parts", &two)?;
    check(&verify(&one, &[&key])?, 3, &["is not trusted: --key[0]", "has not signed it; it has no signature"]);
    let signed = run(["sign".as_ref(), OsStr::new(&pinned), "--key".as_ref(), key.as_os_str()])?;
    check(&signed, 0, &[&pinned]);
    check(&verify(&one, &[&key])?, 0, &[&pinned, "signed by ", "acme.pub"]);
    check(&verify(&pinned, &[&key])?, 0, &[&pinned]);
    check(&verify(&one, &[&key, &other])?, 3, &["--key[1]", "other.pub", "has not signed it"]);
    check(&verify(&two, &[&key])?, 3, &["it has no signature"]);
    check(&verify(&one, &[&folder.path().join("nobody.key")])?, 1, &["--key", "nobody.pub", "cannot be read"]);
    check(&run(["verify", &one])?, 2, &["--key"]);

    registry.move_tag("acme/clock", "1", "2");
    check(&verify(&one, &[&key])?, 3, &["it has no signature"]);
    check(&verify(&pinned, &[&key])?, 0, &[&pinned]);
    registry.corrupt_blobs();
    check(&verify(&pinned, &[&key])?, 3, &["has sent other content than"]);
    Ok(())
}

/// Runs the command with this file of credentials and this input.
fn run_with_input(arguments: &[&str], credentials: &Path, path: Option<&Path>, input: &str) -> Result<Run> {
    let mut command = annex(arguments);
    command.env("REGISTRY_AUTH_FILE", credentials);
    if let Some(path) = path {
        command.env("PATH", format!("{}:{}", path.display(), env::var("PATH").unwrap_or_default()));
    }
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // A command that refuses its arguments reads no input.
    let _ = process.stdin.take().context("no standard input")?.write_all(input.as_bytes());
    let output = process.wait_with_output()?;
    let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    Ok(Run { code: output.status.code(), out, err })
}

#[test]
fn a_login_is_checked_stored_and_used() -> Result<()> {
    let registry = TestRegistry::with_login("ada", "secret");
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("auth.json");
    let before = r#"{"HttpHeaders": {"X-Meta": "kept"}, "auths": {"other.example": {"auth": "YTpi"}}}"#;
    fs::write(&file, before)?;
    let run = |arguments: &[&str], input: &str| run_with_input(arguments, &file, None, input);
    let login = ["login", registry.host(), "--user", "ada"];
    check(&run(&login, "wrong\n")?, 3, &["refuses the log-in, and nothing was stored"]);
    check(&run(&login, "\n")?, 2, &["standard input has no password"]);
    check(&run(&login[..2], "secret\n")?, 2, &["--user NAME"]);
    check(&run(&["login", "oci://registry.example/acme", "--user", "ada"], "x")?, 2, &["write the host alone"]);
    assert_eq!(fs::read_to_string(&file)?, before);

    check(&run(&login, "secret\n")?, 0, &["Stored the credentials", "auth.json"]);
    assert_eq!(fs::metadata(&file)?.permissions().mode() & 0o777, 0o600);
    let stored: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
    assert_eq!(stored["HttpHeaders"]["X-Meta"], "kept");
    assert_eq!(stored["auths"]["other.example"]["auth"], "YTpi");
    let reference = registry.reference("acme/clock");
    let push = ["push", "timestamp", &reference];
    check(&run(&push, "")?, 0, &["@sha256:"]);
    fs::write(&file, "{}")?;
    check(&run(&push, "")?, 3, &["there are no credentials"]);
    Ok(())
}

#[test]
fn a_helper_keeps_the_credentials_that_a_login_stores() -> Result<()> {
    let registry = TestRegistry::with_login("ada", "secret");
    let folder = tempfile::tempdir()?;
    let (file, kept) = (folder.path().join("auth.json"), folder.path().join("kept"));
    let kept_at = kept.display();
    let script = format!(
        "if [ \"$1\" = store ]; then cat > '{kept_at}'; exit; fi\nread -r host\n\
         if [ -e '{kept_at}' ]; then cat '{kept_at}'; else echo credentials not found in native keychain; exit 1; fi\n"
    );
    let helper = folder.path().join("docker-credential-annextest");
    // The helper reads its script, so that the test never writes a file that runs.
    let behaviour = folder.path().join("behaviour");
    fs::write(&helper, format!("#!/bin/sh\n. '{}'\n", behaviour.display()))?;
    fs::write(&behaviour, script)?;
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755))?;
    let config = r#"{"credsStore": "annextest"}"#;
    fs::write(&file, config)?;
    let run = |arguments: &[&str], input: &str| run_with_input(arguments, &file, Some(folder.path()), input);
    let reference = registry.reference("acme/clock");
    let push = ["push", "timestamp", &reference];
    check(&run(&push, "")?, 3, &["there are no credentials"]);
    let login = run(&["login", registry.host(), "--user", "ada"], "secret")?;
    check(&login, 0, &["docker-credential-annextest"]);
    assert_eq!(fs::read_to_string(&file)?, config, "the file has no password");
    check(&run(&push, "")?, 0, &["@sha256:"]);

    fs::write(&behaviour, "echo the keychain is locked\nexit 1\n")?;
    check(&run(&push, "")?, 1, &["docker-credential-annextest reports: the keychain is locked"]);
    fs::write(&behaviour, "head -c 100000 /dev/zero\n")?;
    check(&run(&push, "")?, 1, &["more than 65536 bytes"]);
    fs::write(&file, r#"{"credsStore": "../evil"}"#)?;
    check(&run(&push, "")?, 1, &["is not the name of a helper"]);
    Ok(())
}

#[test]
fn an_inspection_of_a_registry_says_who_has_signed() -> Result<()> {
    let registry = TestRegistry::start();
    let folder = tempfile::tempdir()?;
    let key = new_key(folder.path(), "acme")?;
    let public = key.with_extension("pub").display().to_string();
    let reference = registry.reference("acme/clock:1.2");
    let pinned = push("timestamp", &reference)?;
    let bare = run(["inspect", &reference])?;
    check(&bare, 0, &[&format!("reference      {pinned}\n"), "signatures     none", "needs clock = true"]);
    let in_config = format!("[[extension]]\ncomponent = \"{pinned}\"\n");
    assert!(bare.out.contains(&in_config), "{}", bare.out);
    let unsigned = run(["inspect", &reference, "--key", &public])?;
    check(&unsigned, 3, &["has not signed it; it has no signature"]);
    assert_eq!(unsigned.out, "", "it was not run");

    check(&run(["sign".as_ref(), OsStr::new(&pinned), "--key".as_ref(), key.as_os_str()])?, 0, &[]);
    check(&run(["inspect", &reference])?, 0, &["signatures     1, which nobody has verified"]);
    check(&run(["inspect", &reference, "--key", &public])?, 0, &["signatures     by ", "acme.pub"]);
    let report: Value = serde_json::from_str(&run(["inspect", &reference, "--key", &public, "--json"])?.out)?;
    let origin = &report["origin"];
    assert_eq!((origin["reference"].as_str(), &origin["signatures"]), (Some(pinned.as_str()), &Value::from(1)));
    assert_eq!(origin["signers"][0], public.as_str());
    check(&run(["inspect", "timestamp", "--key", &public])?, 2, &["--key is for components of registries"]);
    check(&run(["inspect", "oci://registry.example"])?, 2, &["is no reference"]);
    Ok(())
}

#[test]
fn an_sbom_is_pushed_listed_and_pulled() -> Result<()> {
    const SBOM: &str = r#"{"bomFormat":"CycloneDX","specVersion":"1.5","components":[]}"#;
    let registry = TestRegistry::start();
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (bare, described) = (registry.reference("acme/parts:1"), registry.reference("acme/clock:1.2"));
    fs::write(path("clock.cdx.json"), SBOM)?;
    push("strict-parts", &bare)?;
    check(&run(["push", "timestamp", &described, "--sbom", &path("clock.cdx.json")])?, 0, &["SBOM of 61 bytes"]);

    check(&run(["inspect", &bare])?, 0, &["SBOMs          none"]);
    check(&run(["inspect", &described])?, 0, &["SBOMs          sha256:", ", 61 bytes"]);
    let report: Value = serde_json::from_str(&run(["inspect", &described, "--json"])?.out)?;
    assert_eq!(report["origin"]["sboms"][0]["size"], 61);

    let pull = |reference: &str, name: &str| {
        run(["pull", reference, "-o", &path(&format!("{name}.wasm")), "--sbom", &path(&format!("{name}.json"))])
    };
    check(&pull(&described, "clock")?, 0, &["SBOM of 61 bytes to "]);
    assert_eq!(fs::read_to_string(path("clock.json"))?, SBOM);
    fs::remove_file(path("clock.wasm"))?;
    check(&pull(&described, "clock")?, 1, &["clock.json is there already"]);
    check(&pull(&bare, "parts")?, 0, &["the registry has no SBOM of it", "parts.json is not written"]);
    assert!(Path::new(&path("parts.wasm")).exists() && !Path::new(&path("parts.json")).exists());

    fs::write(path("other.cdx.json"), format!("{SBOM}\n"))?;
    check(&run(["push", "timestamp", &described, "--sbom", &path("other.cdx.json")])?, 0, &[]);
    check(&pull(&described, "two")?, 3, &["has 2 SBOMs (sha256:", "pull without --sbom"]);
    assert!(!Path::new(&path("two.wasm")).exists());
    Ok(())
}

#[test]
fn a_file_that_is_no_sbom_is_not_pushed() -> Result<()> {
    let registry = TestRegistry::start();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("a.json").display().to_string();
    for (content, reason) in [
        ("", "is no SBOM as CycloneDX in JSON: EOF"),
        ("{\"spdxVersion\":\"SPDX-2.3\"}", "missing field `bomFormat`"),
        ("{\"bomFormat\":\"CycloneDX\"}", "missing field `specVersion`"),
        ("{\"bomFormat\":\"SPDX\",\"specVersion\":\"1\"}", "its bomFormat is \"SPDX\""),
    ] {
        fs::write(&file, content)?;
        let reference = registry.reference("acme/clock:1");
        check(&run(["push", "timestamp", &reference, "--sbom", &file])?, 3, &[reason]);
        check(&run(["pull", &reference])?, 3, &["does not exist"]);
    }
    Ok(())
}

#[test]
fn saved_components_are_loaded_without_a_registry() -> Result<()> {
    let registry = TestRegistry::start();
    let folder = tempfile::tempdir()?;
    let (key, other) = (new_key(folder.path(), "acme")?, new_key(folder.path(), "other")?);
    let (public, other) = (key.with_extension("pub"), other.with_extension("pub"));
    let (one, two) = (registry.reference("acme/clock:1"), registry.reference("acme/parts:2"));
    let pinned = [push("timestamp", &one)?, push("strict-parts", &two)?];
    for reference in &pinned {
        check(&run(["sign".as_ref(), OsStr::new(reference), "--key".as_ref(), key.as_os_str()])?, 0, &[]);
    }
    let file = folder.path().join("components.tar");
    let save = || run(["save".as_ref(), OsStr::new(&one), OsStr::new(&two), "-o".as_ref(), file.as_os_str()]);
    let saved = save()?;
    check(&saved, 0, &[]);
    assert_eq!(saved.out, format!("{}\n{}\n", pinned[0], pinned[1]));
    check(&save()?, 1, &["is there already"]);
    let missing = folder.path().join("missing.tar");
    let nowhere = registry.reference("acme/nowhere");
    check(&run(["save".as_ref(), OsStr::new(&nowhere), "-o".as_ref(), missing.as_os_str()])?, 3, &["does not exist"]);
    assert!(!missing.exists());

    let load = |key: &Path| -> Result<Run> {
        let mut command = annex(["load".as_ref(), file.as_os_str(), "--key".as_ref(), key.as_os_str()]);
        let output = command.env("XDG_CACHE_HOME", folder.path()).output()?;
        let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
        Ok(Run { code: output.status.code(), out, err })
    };
    check(&load(&other)?, 3, &["other.pub", "has not signed it"]);
    assert!(!folder.path().join("annex").exists(), "nothing was stored");
    let loaded = load(&public)?;
    check(&loaded, 0, &[]);
    assert_eq!(loaded.out, saved.out);
    let cache = Cache::at(folder.path().join("annex/registry"));
    for reference in &pinned {
        let reference: Reference = reference.parse()?;
        let cached = cache.get(reference.digest().context("a digest")?)?.context("it is in the cache")?;
        assert_eq!(cached.signatures.len(), 1);
    }

    let mut archive = fs::read(&file)?;
    let component = archive.windows(4).position(|window| window == b"\0asm").context("a component")?;
    archive[component + 100] ^= 1;
    fs::write(&file, archive)?;
    check(&load(&public)?, 3, &["components.tar", "in the archive has been changed"]);
    Ok(())
}

#[test]
fn the_options_for_a_registry_are_refused_for_several() -> Result<()> {
    let registry = TestRegistry::start();
    let (one, two) = (registry.reference("acme/clock:1"), registry.reference("acme/parts:2"));
    push("timestamp", &one)?;
    push("strict-parts", &two)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("components.tar").display().to_string();
    for option in [&["--plain-http"][..], &["--ca-file", "ca.pem"]] {
        let save = ["save", &one, "oci://registry.example/acme/redact:1", "-o", &file];
        let refused = run(save.iter().chain(option))?;
        check(&refused, 2, &["are for one registry", "registry.example", "run a command for each registry"]);
    }
    assert!(!Path::new(&file).exists());
    check(
        &run(["save", &one, &two, "-o", &file, "--plain-http"])?,
        0,
        &["acme/clock:1@sha256:", "acme/parts:2@sha256:"],
    );
    Ok(())
}

#[test]
fn outdated_calls_a_registry_as_the_config_says() -> Result<()> {
    let registry = TestRegistry::start();
    let reference = registry.reference("acme/clock:1");
    push("timestamp", &reference)?;
    let parsed: Reference = reference.parse()?;
    let host = parsed.registry();
    let more = format!("[[extension]]\ncomponent = \"{reference}\"\n[registries.\"{host}\"]\nca_file = \"none.pem\"\n");
    let config = ConfigFile::new(&template_agent("Answer.", &more))?;
    check(&run(["outdated".as_ref(), config.path.as_os_str()])?, 2, &["none.pem cannot be read"]);
    let unknown = run(["outdated".as_ref(), config.path.as_os_str(), "--plain-http".as_ref()])?;
    check(&unknown, 2, &["unexpected argument '--plain-http'"]);
    Ok(())
}

#[test]
fn newer_versions_of_a_configs_components_are_listed() -> Result<()> {
    let registry = TestRegistry::start();
    for tag in ["1.2", "1.3", "1.10", "1.4-rc", "2"] {
        push("timestamp", &registry.reference(&format!("acme/clock:{tag}")))?;
    }
    let extensions: String = ["acme/clock:1.2", "acme/clock:1.10", "acme/clock:latest"]
        .iter()
        .map(|name| format!("[[extension]]\ncomponent = \"{}\"\n", registry.reference(name)))
        .collect();
    let config = ConfigFile::new(&template_agent("Answer.", &extensions))?;
    let listed = run(["outdated".as_ref(), config.path.as_os_str()])?;
    let expected = [
        "clock:1.2  newest 1.10, newer versions: 2",
        "clock:1.10  is the newest",
        "clock:latest  its tag is no version",
    ];
    check(&listed, 0, &expected);
    let json = run(["outdated".as_ref(), config.path.as_os_str(), "--json".as_ref()])?;
    let listed: Value = serde_json::from_str(&json.out)?;
    assert_eq!(listed.as_array().map(Vec::len), Some(3), "{listed}");
    let bare = ConfigFile::new(&template_agent("Answer.", ""))?;
    check(&run(["outdated".as_ref(), bare.path.as_os_str()])?, 0, &["names no component by reference"]);
    Ok(())
}
