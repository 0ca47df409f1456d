//! `annex build`

use std::fs;
use std::os::unix::fs::symlink;

use annex_components::{COMPLIANCE_BADGE, HELLO_EXTENSION, TIMESTAMP};
use anyhow::Result;
use serde_json::Value;

use super::{Project, check_refused, files_below};
use crate::support::annex;

#[test]
fn a_build_puts_the_component_in_its_place_and_reports_on_it() -> Result<()> {
    let project = Project::of(HELLO_EXTENSION, "")?;
    let built = project.run(&["build"])?;
    assert_eq!(built.code, Some(0), "{}", built.err);
    for expected in ["sha256:", "descriptor, response", "https://annex.example/hello/v1", "[[extension]]\ncomponent = "]
    {
        assert!(built.out.contains(expected), "{expected}: {}", built.out);
    }
    assert!(built.err.contains("$ cp ") && built.err.contains("built in "), "{}", built.err);

    // The component is what the command made, and what the project says of itself behind it.
    let made = fs::read(project.path("out.wasm"))?;
    let component = fs::read(project.path("tried.wasm"))?;
    assert!(component.starts_with(&made) && component.len() > made.len());
    let own = String::from_utf8_lossy(&component[made.len()..]).into_owned();
    assert!(
        own.contains("annex:manifest") && own.contains(r#"{"name":"tried","version":"0.1.0","grants":[]}"#),
        "{own}"
    );
    assert!(built.out.contains("project        tried 0.1.0\n"), "{}", built.out);
    assert_eq!(files_below(project.folder.path(), &[])?, ["annex-extension.toml", "out.wasm", "tried.wasm"]);

    let again = project.run(&["build", "--json"])?;
    assert_eq!(fs::read(project.path("tried.wasm"))?, component, "a build is not what it was before");
    let report: Value = serde_json::from_str(&again.out)?;
    assert_eq!(report["descriptor"]["name"], "hello-extension");
    assert_eq!(report["hooks"], serde_json::json!(["descriptor", "response"]));
    Ok(())
}

#[test]
fn a_project_elsewhere_is_named_by_its_folder() -> Result<()> {
    let project = Project::of(HELLO_EXTENSION, "")?;
    let elsewhere = tempfile::tempdir()?;
    let folder = project.folder.path().to_string_lossy();
    let built = super::run_in(elsewhere.path(), &["build", "--project", &folder])?;
    assert_eq!(built.code, Some(0), "{}", built.err);
    assert!(project.path("tried.wasm").exists());
    assert_eq!(files_below(elsewhere.path(), &[])?, Vec::<String>::new());
    Ok(())
}

#[test]
fn a_component_says_what_its_project_is_before_any_of_its_code_runs() -> Result<()> {
    let grants = "[settings.grants]\nclock = true\n[settings.grants.keyvalue]\n";
    let project = Project::of(HELLO_EXTENSION, grants)?;
    assert_eq!(project.run(&["build"])?.code, Some(0));
    let inspected = project.run(&["inspect", "./tried.wasm"])?;
    assert!(inspected.out.contains("tried 0.1.0, tried with grants: clock, keyvalue\n"), "{}", inspected.out);
    // A section of that name that somebody else wrote harms nothing.
    let mut component = fs::read(HELLO_EXTENSION)?;
    component.extend([0, 20, 14]);
    component.extend(b"annex:manifest{\"a\":");
    fs::write(project.path("foreign.wasm"), component)?;
    let inspected = project.run(&["inspect", "./foreign.wasm"])?;
    assert!(inspected.code == Some(0) && !inspected.out.contains("project  "), "{}{}", inspected.out, inspected.err);
    Ok(())
}

/// A project whose component needs the clock, with these keys before its `[build]` and these tables after it.
fn stamping(keys: &str, tables: &str) -> Result<Project> {
    let project = Project::of(TIMESTAMP, &format!("{tables}\n[settings.grants]\nclock = true\n"))?;
    let manifest = project.read("annex-extension.toml")?;
    project.write("annex-extension.toml", &format!("{keys}\n{manifest}"))?;
    Ok(project)
}

#[test]
fn a_component_says_where_it_is_from_and_why_it_needs_its_grants() -> Result<()> {
    let keys = "licence = \"Apache-2.0\"\nsource = \"https://acme.example/stamp\"";
    let tables = "[grants]\nclock = \"It stamps answers.\\u001b[31m\\nfile  forged\"\n[parameters]\n\
                  schema = \"schema.json\"\nexample = { zone = \"utc\" }";
    let project = stamping(keys, tables)?;
    project.write("schema.json", "{\n  \"type\": \"object\"\n}\n")?;
    let built = project.run(&["build"])?;
    assert_eq!(built.code, Some(0), "{}", built.err);
    let inspected = project.run(&["inspect", "./tried.wasm"])?;
    for expected in [
        "\nproject        tried 0.1.0\n",
        "\nlicence        Apache-2.0\n",
        "\nsource         https://acme.example/stamp\n",
        "\ngrants         clock  It stamps answers.\\u{1b}[31m\\nfile  forged\n",
        "\nexample        {\n",
        "\"zone\": \"utc\"",
    ] {
        assert!(inspected.out.contains(expected), "{expected}: {}", inspected.out);
    }
    let report: Value = serde_json::from_str(&project.run(&["inspect", "./tried.wasm", "--json"])?.out)?;
    let manifest = &report["manifest"];
    assert_eq!(manifest["licence"], "Apache-2.0");
    assert_eq!(manifest["grants"]["clock"], "It stamps answers.\u{1b}[31m\nfile  forged");
    assert_eq!(manifest["parameters"], serde_json::json!({"schema": {"type": "object"}, "example": {"zone": "utc"}}));
    Ok(())
}

#[test]
fn a_manifest_that_says_less_or_more_than_the_component_needs_fails_the_build() -> Result<()> {
    let check = |keys: &str, tables: &str, expected: &[&str]| -> Result<()> {
        let project = stamping(keys, tables)?;
        project.write("tried.wasm", "earlier")?;
        check_refused(&project.run(&["build"])?, 3, expected);
        assert_eq!(project.read("tried.wasm")?, "earlier", "{tables}");
        Ok(())
    };
    check("", "[grants]", &["it does not name clock", "[grants] in annex-extension.toml"])?;
    check("", "[grants]\nclock = \"a\"\nhttp = \"b\"", &["it names http, which no import and no hook"])?;
    check("uri = \"urn:other\"", "[grants]\nclock = \"a\"", &["it has the URI `urn:other`", "change uri"])
}

#[test]
fn the_report_is_of_the_component_with_the_settings_of_the_project() -> Result<()> {
    let badge =
        "[settings.parameters]\nbadges = [{ standard = \"ISO 27001\", level = \"certified\", issuer = \"TUEV\" }]\n";
    let built = Project::of(COMPLIANCE_BADGE, badge)?.run(&["build", "--json"])?;
    let report: Value = serde_json::from_str(&built.out)?;
    assert_eq!((built.code, &report["problem"]), (Some(0), &Value::Null), "{}", built.err);
    Ok(())
}

#[test]
fn a_missing_tool_is_named_with_the_way_to_get_it() -> Result<()> {
    let nothing = tempfile::tempdir()?;
    for (tool, way) in [
        ("npm", "https://nodejs.org"),
        ("go", "https://go.dev/dl"),
        ("clang-19", "apt install clang-19 lld-19"),
        ("cargo", "https://rustup.rs"),
        ("python3", "python3-venv"),
        ("strange-tool", "build.command and build.setup in annex-extension.toml"),
    ] {
        let project = Project::with(&format!("command = [{tool:?}, \"build\"]\noutput = \"out.wasm\"\n"))?;
        let output = annex(["build"]).current_dir(project.folder.path()).env("PATH", nothing.path()).output()?;
        let said = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("error: {tool} is not installed: ")) && said.contains(way), "{said}");
    }
    Ok(())
}

#[test]
fn a_command_that_fails_is_told_with_its_status_and_the_earlier_component_stays() -> Result<()> {
    let project = Project::of_script("echo words; echo errors >&2; cp nothing out.wasm; exit 7")?;
    project.write("tried.wasm", "earlier")?;
    let failed = project.run(&["build"])?;
    check_refused(&failed, 1, &["$ sh -c echo words", "\nwords\n", "\nerrors\n", "failed (exit status: 7)"]);
    assert_eq!(failed.out, "", "standard output is for the report");
    assert_eq!(project.read("tried.wasm")?, "earlier");

    let killed = Project::of_script("kill -9 $$")?.run(&["build"])?;
    check_refused(&killed, 1, &["failed (signal: 9"]);
    Ok(())
}

#[test]
fn what_is_no_component_is_refused_and_the_earlier_one_stays() -> Result<()> {
    let check = |script: &str, expected: &[&str]| -> Result<()> {
        let project = Project::of_script(script)?;
        project.write("tried.wasm", "earlier")?;
        check_refused(&project.run(&["build"])?, 1, expected);
        assert_eq!(project.read("tried.wasm")?, "earlier", "{script}");
        Ok(())
    };
    check("true", &["`sh -c true` succeeded and made no out.wasm", "build.output in annex-extension.toml"])?;
    check("echo text > out.wasm", &["no component can be made of out.wasm", "no WebAssembly"])?;
    check(": > out.wasm", &["no component can be made of out.wasm", "no WebAssembly"])?;
    check("printf '\\0asm\\1\\0\\0\\0' > out.wasm", &["no component can be made of out.wasm", "wit"])
}

#[test]
fn a_core_module_is_checked_against_the_world_of_the_project() -> Result<()> {
    let project = Project::of_script("printf '\\0asm\\1\\0\\0\\0' > out.wasm")?;
    assert_eq!(project.run(&["wit", "wit/deps/annex-extension"])?.code, Some(0));
    // Packages are looked for beside each other.
    for file in fs::read_dir(project.path("wit/deps/annex-extension/deps"))? {
        let file = file?;
        fs::rename(file.path(), project.path("wit/deps").join(file.file_name()))?;
    }
    fs::remove_dir(project.path("wit/deps/annex-extension/deps"))?;
    project
        .write("wit/world.wit", "package my:tried;\nworld extension { export annex:extension/descriptor@0.1.0; }\n")?;
    check_refused(&project.run(&["build"])?, 1, &["annex:extension/descriptor@0.1.0", "`describe`"]);
    Ok(())
}

#[test]
fn an_extension_is_refused_that_a_server_would_refuse() -> Result<()> {
    let project = Project::of_script("printf '\\0asm\\015\\0\\1\\0' > out.wasm")?;
    check_refused(&project.run(&["build"])?, 3, &["is refused", "not an Annex extension"]);
    Ok(())
}

#[test]
fn the_set_up_runs_until_it_has_made_what_it_makes() -> Result<()> {
    let set_up = "setup = [[\"sh\", \"-c\", \"echo one step\"], [\"touch\", \"ready\"]]\nsetup_makes = \"ready\"\n";
    let project = Project::of(HELLO_EXTENSION, set_up)?;
    assert!(project.run(&["build"])?.err.contains("\none step\n"));
    assert!(!project.run(&["build"])?.err.contains("one step"));
    Ok(())
}

#[test]
fn commands_run_in_the_project_with_its_variables_and_without_input() -> Result<()> {
    let script = "cat; echo \"$(pwd -P) has $NUMBER\"; exit 1";
    let build =
        format!("command = [\"sh\", \"-c\", {script:?}]\noutput = \"out.wasm\"\n[build.env]\nNUMBER = \"seven\"\n");
    let project = Project::with(&build)?;
    let expected = format!("{} has seven", project.folder.path().canonicalize()?.display());
    check_refused(&project.run(&["build"])?, 1, &[&expected]);
    Ok(())
}

#[test]
fn a_manifest_that_cannot_be_is_refused_with_its_key() -> Result<()> {
    let check = |build: &str, expected: &[&str]| -> Result<()> {
        let project = Project::with(build)?;
        let refused = project.run(&["build"])?;
        check_refused(&refused, 1, expected);
        assert!(refused.err.contains("annex-extension.toml") || refused.err.contains("settings"), "{}", refused.err);
        assert_eq!(files_below(project.folder.path(), &[])?, ["annex-extension.toml"], "{build}");
        Ok(())
    };
    let command = "command = [\"true\"]\n";
    check(
        "command = [\"true\"]\noutput = \"o\"\nouput = \"o\"\n",
        &["line 7", "`ouput`", "`output`", "`setup_makes`"],
    )?;
    check(command, &["line 4", "missing field `output`"])?;
    check("command = []\noutput = \"o\"\n", &["build: a command names no program"])?;
    for outside in ["../out.wasm", "/out.wasm", "in/../../out.wasm", ""] {
        check(&format!("{command}output = {outside:?}\n"), &[&format!("build: {outside} is not a path inside")])?;
    }
    check(&format!("{command}output = \"o\"\nwatch = [\"src\", \"..\"]\n"), &["build: .. is not a path inside"])?;
    check(
        &format!("{command}output = \"o\"\n[settings]\ngrnts = {{}}\n"),
        &["settings: grnts: unknown key", "`grants`"],
    )
}

#[test]
fn a_folder_without_a_project_is_told_how_to_get_one() -> Result<()> {
    let nothing = tempfile::tempdir()?;
    for command in ["build", "test", "bench", "dev"] {
        let refused = super::run_in(nothing.path(), &[command])?;
        check_refused(&refused, 1, &["there is no project here", "annex-extension.toml", "`annex new`", "--project"]);
    }
    Ok(())
}

#[test]
fn what_a_build_writes_goes_through_no_link() -> Result<()> {
    let world = "package my:tried;\nworld extension { export annex:extension/descriptor@0.1.0; }\n";
    let check = |link: &str, run: &[&str], project: &Project| -> Result<()> {
        let outside = tempfile::tempdir()?;
        fs::write(outside.path().join("world.wit"), world)?;
        symlink(outside.path(), project.path(link))?;
        check_refused(&project.run(run)?, 1, &[link, "is a link, and nothing is written through links"]);
        assert_eq!(files_below(outside.path(), &[])?, ["world.wit"], "{link}");
        assert_eq!(fs::read_dir(outside.path())?.count(), 1, "{link}: no folder either");
        Ok(())
    };
    check("wit", &["build"], &Project::of_script("true")?)?;
    let output = "command = [\"true\"]\noutput = \"o/inner/out.wasm\"\n";
    check("o", &["build"], &Project::with(output)?)?;
    check("w", &["wit", "w/contract"], &Project::of_script("true")?)?;
    let project = Project::of_script("true")?;
    project.write("wit/world.wit", world)?;
    check("wit/deps", &["wit", "wit/deps"], &project)?;
    // A link that stands in the place of what is written anew goes, and what it leads to stays.
    let project = Project::with("bindings = \"c\"\ncommand = [\"true\"]\noutput = \"out.wasm\"\n")?;
    project.write("wit/world.wit", world)?;
    let outside = tempfile::tempdir()?;
    fs::write(outside.path().join("precious"), "")?;
    symlink(outside.path(), project.path("generated"))?;
    check_refused(&project.run(&["build"])?, 1, &["made no out.wasm"]);
    assert_eq!(files_below(outside.path(), &[])?, ["precious"]);
    assert!(project.path("generated/extension.c").exists() && !project.path("generated").is_symlink());
    Ok(())
}

#[test]
fn flags_of_the_machine_do_not_take_the_place_of_those_of_the_project() -> Result<()> {
    let script = "echo \"has ($RUSTFLAGS) ($CFLAGS) ($CARGO_TARGET_X_RUSTFLAGS) ($GOFLAGS)\"; exit 1";
    let build = format!("command = [\"sh\", \"-c\", {script:?}]\noutput = \"o\"\n[build.env]\nGOFLAGS = \"own\"\n");
    let project = Project::with(&build)?;
    let mut command = annex(["build"]);
    for name in ["RUSTFLAGS", "CFLAGS", "CARGO_TARGET_X_RUSTFLAGS", "GOFLAGS"] {
        command.env(name, "of-the-machine");
    }
    let output = command.current_dir(project.folder.path()).output()?;
    let said = String::from_utf8(output.stderr)?;
    assert!(said.contains("\nhas () () () (own)\n"), "{said}");
    assert!(said.contains("-u CARGO_TARGET_X_RUSTFLAGS -u CFLAGS") && said.contains("-u RUSTFLAGS"), "{said}");
    Ok(())
}
