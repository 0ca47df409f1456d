//! `annex inspect`

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde_json::Value;

use crate::support::{STATE_URI, run};

/// How the names of harmless WASI imports begin. The test ignores these imports.
const HARMLESS: [&str; 2] = ["wasi:logging/", "wasi:config/"];

fn wasi_imports(component: &str) -> Result<Vec<String>> {
    let report: Value = serde_json::from_str(&run(["inspect", component, "--json"])?.out)?;
    let imports = report.get("imports").and_then(Value::as_array).into_iter().flatten();
    let imports = imports.filter_map(|import| import.get("name").and_then(Value::as_str));
    let remarkable = imports.filter(|name| name.starts_with("wasi:"));
    Ok(remarkable.filter(|name| !HARMLESS.iter().any(|start| name.starts_with(start))).map(str::to_owned).collect())
}

#[test]
fn shipped_components_import_nothing_of_wasi_that_they_do_not_need() -> Result<()> {
    assert_eq!(wasi_imports("state-injection")?, Vec::<String>::new());
    assert_eq!(wasi_imports("timestamp")?, ["wasi:clocks/wall-clock@0.2.12"]);
    Ok(())
}

#[test]
fn a_report_says_what_the_component_is_and_how_to_install_it() -> Result<()> {
    let run = run(["inspect", "state-injection"])?;
    assert_eq!(run.code, Some(0), "{}", run.err);
    let expected = [
        "sha256:",
        "annex:extension@0.1.0",
        "descriptor, card, state, response",
        "kept instances can be",
        "needs session-state = { read = true }",
        STATE_URI,
        "state_schema",
        "[[extension]]\ncomponent = \"state-injection\"\n\n[extension.grants]\nsession-state = { read = true }\n",
    ];
    for expected in expected {
        assert!(run.out.contains(expected), "{expected}: {}", run.out);
    }
    Ok(())
}

#[test]
fn json_output_is_one_object_with_the_schema_as_json() -> Result<()> {
    let report: Value = serde_json::from_str(&run(["inspect", "timestamp", "--json"])?.out)?;
    assert_eq!(report["imports"][3]["grant"], "clock = true");
    assert_eq!(report["descriptor"]["parameter_schema"]["type"], "object");
    assert_eq!(report["problem"], Value::Null);
    assert_eq!(report["unkeepable"], Value::Null);
    Ok(())
}

#[test]
fn a_report_says_why_instances_cannot_be_kept() -> Result<()> {
    let run = run(["inspect", annex_components::TEST_CAPABILITIES])?;
    assert!(run.out.contains("kept instances cannot be: it imports or makes a type of handles"), "{}", run.out);
    Ok(())
}

#[test]
fn each_grant_that_a_component_needs_stands_in_the_block_for_the_config() -> Result<()> {
    let run = run(["inspect", annex_components::TEST_CAPABILITIES])?;
    assert_eq!(run.code, Some(0), "{}", run.err);
    let expected = [
        "wasi:http/outgoing-handler@0.2.12",
        "\n[extension.grants]\nclock = true\nrandom = true\nhttp = { allow = [{ methods = [\"GET\"], host = ",
        " }] } # replace the rule by the requests that it sends\n",
        "\nkeyvalue = {}\ntask = true\ntasks = true\ntask-resumption = true\nagent-steps = true\n",
    ];
    for expected in expected {
        assert!(run.out.contains(expected), "{expected}: {}", run.out);
    }
    Ok(())
}

#[test]
fn a_component_that_speaks_for_the_agent_is_reported_as_such() -> Result<()> {
    let shown = run(["inspect", annex_components::TEST_STEERING])?;
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    let expected = [
        "it speaks for the agent",
        "it decides what the agent's model is asked, and which tools are called with which arguments",
        "\n[extension.grants]\nkeyvalue = {}\nagent-steps = { steer = true }\ncaller = { principal = true }\n\
         task-metadata = true\nrewrite-answer = true\nanswer = true\nreads = true\nlive-card = {}\n",
    ];
    for expected in expected {
        assert!(shown.out.contains(expected), "{expected}: {}", shown.out);
    }
    let report = run(["inspect", annex_components::TEST_STEERING, "--json"])?;
    let report: Value = serde_json::from_str(&report.out)?;
    assert_eq!(report["trust"].as_array().map(Vec::len), Some(2), "{report}");
    Ok(())
}

#[test]
fn a_component_of_ones_own_is_named_by_its_absolute_path() -> Result<()> {
    let component = Path::new(annex_components::HELLO_EXTENSION);
    let folder = tempfile::tempdir()?;
    let copy = folder.path().join("my \"own\".wasm");
    fs::copy(component, &copy)?;
    let report: Value = serde_json::from_str(&run(["inspect".as_ref(), copy.as_os_str(), "--json".as_ref()])?.out)?;
    let config: toml::Value = toml::from_str(report["config"].as_str().unwrap_or_default())?;
    assert_eq!(config["extension"][0]["component"].as_str().map(Path::new), Some(copy.canonicalize()?.as_path()));
    Ok(())
}

#[test]
fn what_is_no_component_is_an_error_that_names_the_file() -> Result<()> {
    for (file, code) in [("nowhere", 1), ("./nowhere.wasm", 1), (concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), 3)]
    {
        let run = run(["inspect", file])?;
        assert_eq!((run.code, run.out.as_str()), (Some(code), ""));
        assert!(run.err.contains(file), "{file}: {}", run.err);
    }
    Ok(())
}

#[test]
fn a_misspelt_name_of_a_component_that_ships_is_told_the_one_that_was_meant() -> Result<()> {
    let run = run(["inspect", "timestmp"])?;
    assert!(run.err.contains("no component `timestmp` ships with Annex; did you mean `timestamp`?"), "{}", run.err);
    Ok(())
}

/// Runs a program that has no folder of components beside it. Returns the exit code and what it prints to standard error.
fn inspect_alone(folder: &Path, cache: &Path, component: &str) -> Result<(Option<i32>, String)> {
    let program = folder.join("annex");
    if !program.exists() {
        fs::hard_link(env!("CARGO_BIN_EXE_annex"), &program)?;
    }
    let output = Command::new(&program).args(["inspect", component]).env("XDG_CACHE_HOME", cache).output()?;
    Ok((output.status.code(), String::from_utf8(output.stderr)?))
}

#[test]
fn a_program_alone_writes_its_components_to_the_cache_once() -> Result<()> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let cache = tempfile::tempdir()?;
    let (code, err) = inspect_alone(folder.path(), cache.path(), "timestamp")?;
    assert!(code == Some(0) && err.contains("wrote the components that ship to "), "{err}");
    let parent = cache.path().join("annex/shipped");
    let written: Vec<_> = fs::read_dir(&parent)?.collect::<Result<_, _>>()?;
    assert_eq!(written.len(), 1, "{written:?}");
    for (name, component) in annex_components::shipped() {
        let copy = written[0].path().join(name).with_extension("wasm");
        assert!(fs::read(copy)? == fs::read(component)?, "{name}");
    }
    let (code, err) = inspect_alone(folder.path(), cache.path(), "strict-parts")?;
    assert!(code == Some(0) && !err.contains("wrote"), "{err}");
    let (_, err) = inspect_alone(folder.path(), cache.path(), "timestmp")?;
    assert!(err.contains("did you mean `timestamp`?"), "{err}");
    Ok(())
}

#[test]
fn a_program_alone_that_cannot_write_its_components_says_where_they_belong() -> Result<()> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let no_folder = folder.path().join("file");
    fs::write(&no_folder, "")?;
    let (_, err) = inspect_alone(folder.path(), &no_folder, "timestamp")?;
    let expected = [
        "the components that ship cannot be written to ",
        "cannot find the component `timestamp`",
        "/components has none",
        "beside the executable",
    ];
    for expected in expected {
        assert!(err.contains(expected), "{expected}: {err}");
    }
    Ok(())
}

#[test]
fn a_program_in_a_prefix_finds_the_components_in_its_share_folder() -> Result<()> {
    let prefix = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let [programs, components] = ["bin", "share/annex/components"].map(|name| prefix.path().join(name));
    fs::create_dir_all(&programs)?;
    fs::create_dir_all(&components)?;
    let program = programs.join("annex");
    fs::hard_link(env!("CARGO_BIN_EXE_annex"), &program)?;
    fs::copy(annex_components::TIMESTAMP, components.join("timestamp.wasm"))?;
    // A package manager may put a link to the program elsewhere.
    let link = prefix.path().join("annex");
    symlink(&program, &link)?;
    let output = Command::new(&link).args(["inspect", "timestamp"]).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// A component with one additional type, nested to this depth.
fn nested(levels: usize) -> Result<Vec<u8>> {
    let types = [[0x41, 1, 1].repeat(levels), vec![0x41, 0]].concat();
    let section = [vec![1], types].concat();
    let length = (0..3).map(|place| (section.len() >> (7 * place) & 0x7f) as u8 | if place < 2 { 0x80 } else { 0 });
    let component = fs::read(annex_components::HELLO_EXTENSION)?;
    Ok([component, vec![7], length.collect(), section].concat())
}

#[test]
fn a_component_that_nests_too_deep_is_refused_and_does_not_end_the_command() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("nested.wasm");
    for levels in [1_500, 20_000, 300_000] {
        fs::write(&file, nested(levels)?)?;
        let run = run(["inspect".as_ref(), file.as_os_str()])?;
        assert_eq!(run.code, Some(3), "{levels}: {}", run.err);
        let reason = "levels of types in types; this host compiles at most 50";
        assert!(run.out.contains(reason) && run.err.contains(reason), "{levels}: {}{}", run.out, run.err);
    }
    Ok(())
}

#[test]
fn the_block_for_a_config_loads_as_it_is() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("settings.toml");
    for component in ["state-injection", "strict-parts", "compliance-badge", "timestamp", "task-history", "x402"] {
        let report: Value = serde_json::from_str(&run(["inspect", component, "--json"])?.out)?;
        let block = report["config"].as_str().unwrap_or_default();
        assert!(!block.contains("It is refused as it is"), "{block}");
        let config: toml::Table = toml::from_str(block)?;
        let mut settings = config["extension"][0].as_table().cloned().unwrap_or_default();
        settings.remove("component");
        fs::write(&file, settings.to_string())?;
        let settings = ["inspect".as_ref(), component.as_ref(), "--settings".as_ref(), file.as_os_str()];
        let again = run(settings)?;
        assert!(again.code == Some(0) && again.out.contains("\nuri "), "{block}{}{}", again.out, again.err);
    }
    Ok(())
}

#[test]
fn imports_that_are_free_are_one_line() -> Result<()> {
    let report = run(["inspect", "timestamp"])?.out;
    let imports = report.lines().skip_while(|line| !line.starts_with("imports"));
    let imports: Vec<&str> = imports.take_while(|line| !line.starts_with("kept")).collect();
    assert!(imports.iter().any(|line| line.ends_with("needs clock = true")), "{report}");
    let free: Vec<_> = imports.iter().filter(|line| line.contains("wasi:") && line.contains("free")).collect();
    assert!(free.len() == 1 && free[0].contains("--json"), "{report}");
    Ok(())
}

#[test]
fn parameters_that_are_missing_are_named_by_the_schema_which_is_shown() -> Result<()> {
    let bare = run(["inspect", "compliance-badge"])?;
    assert_eq!(bare.code, Some(0), "{}", bare.err);
    for expected in ["It needs parameters (--settings FILE", "\"badges\" is a required property", "\nparameters     {"]
    {
        assert!(bare.out.contains(expected), "{expected}: {}", bare.out);
    }
    let report: Value = serde_json::from_str(&run(["inspect", "compliance-badge", "--json"])?.out)?;
    assert_eq!(report["parameter_schema"]["required"][0], "badges");

    let folder = tempfile::tempdir()?;
    let file = folder.path().join("settings.toml");
    fs::write(&file, "[parameters]\nbadges = 5\n")?;
    let settings = ["inspect".as_ref(), "compliance-badge".as_ref(), "--settings".as_ref(), file.as_os_str()];
    let wrong = run(settings)?;
    let expected = ["It was refused with these parameters", "extension.parameters/badges: 5 is not of type"];
    assert!(expected.iter().all(|expected| wrong.out.contains(expected)), "{}", wrong.out);
    fs::write(&file, "[parametrs]\n")?;
    let misspelt = run(settings)?;
    assert_eq!(misspelt.code, Some(1));
    assert!(misspelt.err.contains("parametrs") && misspelt.err.contains("settings.toml"), "{}", misspelt.err);
    Ok(())
}
