//! `annex test`: files of cases, and the messages about each case.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use annex_components::HELLO_EXTENSION;
use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Project, check_refused};

/// The expected result of a turn with the extension `hello`.
const EXPECT: &str = r#"[expect]
active = true

[[expect.events]]
artifact = "Hello, world!"
extensions = ["https://annex.example/hello/v1"]

[expect.events.metadata]
hello = "Hello, world!"

[[expect.events]]
state = "completed"
"#;

/// A project with the hello extension and one case.
fn project(case: &str) -> Result<Project> {
    let project = Project::built(HELLO_EXTENSION, "")?;
    project.write("cases/a.toml", case)?;
    Ok(project)
}

#[test]
fn a_case_passes_when_all_that_came_out_is_expected() -> Result<()> {
    let project = project(&format!("[given]\nmessage = \"Hi\"\n\n{EXPECT}"))?;
    let run = project.run(&["test"])?;
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{}", run.out);
    assert!(run.out.starts_with("ok      ") && run.out.contains("cases/a.toml ("), "{}", run.out);
    assert!(run.out.ends_with("\n1 passed, 0 failed\n"), "{}", run.out);
    Ok(())
}

#[test]
fn a_difference_is_shown_line_by_line_and_fails_the_command() -> Result<()> {
    let project = project(&EXPECT.replace("artifact = \"Hello, world!\"", "artifact = \"Bye\""))?;
    project.write("cases/b.toml", EXPECT)?;
    let run = project.run(&["test"])?;
    check_refused(&run, 5, &["error: a case failed"]);
    for expected in ["FAILED  ", "--- expected", "-artifact = \"Bye\"\n", "+artifact = \"Hello, world!\"\n", "ok      "]
    {
        assert!(run.out.contains(expected), "{expected}: {}", run.out);
    }
    assert_eq!(run.out.lines().last(), Some("1 passed, 1 failed"));

    let coloured = project.run(&["test", "--color", "always"])?;
    for expected in ["\x1b[1;31mFAILED\x1b[0m  ", "\x1b[32mok\x1b[0m      "] {
        assert!(coloured.out.contains(expected), "{expected:?}: {:?}", coloured.out);
    }
    assert!(!run.out.contains('\x1b'), "{:?}", run.out);

    let one = project.run(&["test", "cases/b.toml"])?;
    assert_eq!((one.code, one.out.lines().last()), (Some(0), Some("1 passed, 0 failed")), "only what is named runs");
    Ok(())
}

#[test]
fn update_writes_what_came_out_and_keeps_the_head_with_its_comments() -> Result<()> {
    let head = "# Why this case is here\n[given]\nmessage = \"Hi\" # in the language of the user\n";
    let project = project(&format!("{head}\n[expect]\nactive = false\n"))?;
    let updated = project.run(&["test", "--update"])?;
    assert_eq!(updated.code, Some(0), "{}", updated.err);
    assert!(updated.out.starts_with("updated "), "{}", updated.out);
    assert_eq!(updated.out.lines().last(), Some("1 passed, 0 failed"));
    let written = format!("{head}\n{EXPECT}");
    assert_eq!(project.read("cases/a.toml")?, written);

    let again = project.run(&["test", "--update"])?;
    assert!(again.out.starts_with("ok      "), "{}", again.out);
    assert_eq!(project.read("cases/a.toml")?, written);
    Ok(())
}

#[test]
fn update_never_leaves_a_file_that_cannot_be_read() -> Result<()> {
    for case in [
        "expect = { active = false }\n[given]\nmessage = \"Hi\"\n",
        "[given]\nmessage = \"Hi\"\n\n[expect] # a remark\nactive = false\n",
        "[given]\nmessage = \"Hi\"\n\n[[expect.events]]\nartifact = \"Bye\"\n",
        "[given]\nmessage = '''\n[expect]\n'''\n",
    ] {
        let project = project(case)?;
        let updated = project.run(&["test", "--update"])?;
        if updated.code == Some(0) {
            let again = project.run(&["test"])?;
            assert_eq!(again.code, Some(0), "{case}\nwas made\n{}\n{}", project.read("cases/a.toml")?, again.out);
        } else {
            assert_eq!(project.read("cases/a.toml")?, case);
        }
    }
    Ok(())
}

#[test]
fn a_case_that_expects_nothing_fails_until_it_is_updated() -> Result<()> {
    let project = project("")?;
    let run = project.run(&["test"])?;
    assert_eq!((run.code, run.out.lines().last()), (Some(5), Some("0 passed, 1 failed")));
    assert!(run.out.contains("nothing is expected; `annex test --update`"), "{}", run.out);
    assert_eq!(project.run(&["test", "--update"])?.code, Some(0));
    assert_eq!(project.read("cases/a.toml")?, EXPECT);
    Ok(())
}

#[test]
fn a_case_that_says_what_cannot_be_fails_with_the_key_and_what_there_is() -> Result<()> {
    let check = |case: &str, expected: &[&str]| -> Result<()> {
        let project = project(case)?;
        // An update must not hide the mistake.
        let run = project.run(&["test", "--update"])?;
        assert_eq!((run.code, run.out.lines().last()), (Some(5), Some("0 passed, 1 failed")), "{case}: {}", run.err);
        for expected in expected {
            assert!(run.out.contains(expected), "{expected:?} is not in: {}", run.out);
        }
        assert_eq!(project.read("cases/a.toml")?, case);
        Ok(())
    };
    check("gvien = 1\n", &["line 1", "`gvien`", "`given`"])?;
    check("[given]\nmesage = \"x\"\n", &["line 2", "`mesage`", "`message`"])?;
    check("[given]\nhook = \"descriptor\"\n", &["given.hook", "\"descriptor\"", "card, activation, message"])?;
    check("[given]\nhook = \"card\"\n", &["given.hook", "card is no hook of a turn"])?;
    check("[given]\nanswer = [{ state = \"ready\" }]\n", &["there is no state \"ready\""])?;
    check("[given]\nwaits_in = \"ready\"\n", &["there is no state \"ready\""])?;
    check("[given]\nanswer = [{ artifact = \"x\", state = \"working\" }]\n", &["given.answer", "each has"])?;
    check("[given.keys.global]\na = \"b\"\n", &["given.keys", "\"global\"", "lasting, context, task"])?;
    check("[given]\nmessage = 5\n", &["given.message", "neither a text nor a Message"])?;
    check("[given]\nclock = \"noon\"\n", &["given.clock", "`noon`"])?;
    check("[given]\nclock = 1960-01-01T00:00:00Z\n", &["given.clock", "before 1970"])?;
    check("[given.method]\nname = \"x\"\n[given.client]\n", &["given.method", "cannot have both"])?;
    let object = "is neither a table nor a string with an object of JSON";
    check("[given.method]\nname = \"x\"\nparams = \"[1]\"\n", &["given.method.params", object])?;
    check("[given.method]\nname = \"x\"\nparams = 5\n", &["given.method.params", object])?;
    check("[given.method]\nname = \"x\"\nparams = \"{\"\n", &["given.method.params", "EOF"])?;
    check("[given.client]\nevents = [{ nonsense = 1 }]\n", &["given.client.events", "`statusUpdate`"])?;
    check("[expect]\nactive = true\n\n[given]\nmessage = \"x\"\n", &["[expect] comes last"])?;
    check("[expect]\nactive = true\n\n[[given.http]]\nrequest = \"GET /\"\n", &["[expect] comes last"])
}

#[test]
fn results_are_one_object_of_json() -> Result<()> {
    let project = project(EXPECT)?;
    project.write("cases/b.toml", "[expect]\nactive = true\n")?;
    let run = project.run(&["test", "--json"])?;
    check_refused(&run, 5, &["a case failed"]);
    let results: Value = serde_json::from_str(&run.out)?;
    assert_eq!((&results["passed"], &results["failed"]), (&1.into(), &1.into()));
    let verdicts: Vec<&Value> =
        results["cases"].as_array().context("no cases")?.iter().map(|case| &case["verdict"]).collect();
    assert_eq!(verdicts, ["passed", "failed"]);
    assert_eq!(results["cases"][0]["reason"], Value::Null);
    let reason = results["cases"][1]["reason"].as_str().context("no reason")?;
    assert!(reason.contains("+artifact = \"Hello, world!\""), "{reason}");
    Ok(())
}

#[test]
fn a_case_that_fails_shows_what_the_extension_said_and_where_it_trapped() -> Result<()> {
    let project = Project::built(annex_components::TEST_EXTENSION, "")?;
    project.write(
        "cases/a.toml",
        "[given]\nparameters = { behaviour = { validate = \"panic\" } }\n\n[expect]\nactive = true\n",
    )?;
    for run in [project.run(&["test"])?, project.run(&["test", "--update"])?] {
        assert_eq!(run.code, Some(5), "{}", run.err);
        for expected in [
            "    fault: extension https://annex.example/test/v1 trapped in state",
            "\n    log:   error: panic: validate was told",
        ] {
            assert_eq!(run.out.matches(expected).count(), 1, "{expected:?}: {}", run.out);
        }
        assert!(!run.out.contains("fault ="), "{}", run.out);
    }
    Ok(())
}

#[test]
fn a_report_for_ci_systems_is_xml() -> Result<()> {
    let project =
        project("[given]\nanswer = [{ artifact = \"<b> & \\\"c\\\" \\u0007\" }]\n\n[expect]\nactive = true\n")?;
    project.write("cases/b.toml", EXPECT)?;
    assert_eq!(project.run(&["test", "--junit", "report.xml"])?.code, Some(5));
    let report = project.read("report.xml")?;
    check_xml(&report).with_context(|| report.clone())?;
    for expected in [
        "<testsuite name=\"tried\" tests=\"2\" failures=\"1\">",
        "<testcase classname=\"tried\" name=\"",
        "cases/a.toml\" time=\"0.",
        "&lt;b&gt; &amp; ",
    ] {
        assert!(report.contains(expected), "{expected}: {report}");
    }
    assert_eq!((report.matches("<failure>").count(), report.matches("<testcase ").count()), (1, 2), "{report}");
    Ok(())
}

/// Checks that each element is closed, and that text has neither unescaped markup nor control characters.
fn check_xml(text: &str) -> Result<()> {
    let body = text.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n").context("it has no head")?;
    let mut open = Vec::new();
    for piece in body.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').context("a tag has no end")?;
        if let Some(name) = tag.strip_prefix('/') {
            ensure!(open.pop() == Some(name), "{name} is closed where another element is open");
        } else {
            open.push(tag.split_whitespace().next().context("a tag has no name")?);
            ensure!(tag.matches('"').count() % 2 == 0, "a value has no end in <{tag}>");
        }
        ensure!(!text.contains('>'), "a bare > stands in {text:?}");
        for entity in piece.split('&').skip(1) {
            ensure!(
                ["amp;", "lt;", "gt;", "quot;"].iter().any(|known| entity.starts_with(known)),
                "a bare & in {piece:?}"
            );
        }
    }
    ensure!(open.is_empty(), "{open:?} stay open");
    ensure!(!body.chars().any(|character| character.is_control() && character != '\n'), "a control character is in it");
    Ok(())
}

#[test]
fn a_component_that_does_not_load_fails_each_case_with_the_reason() -> Result<()> {
    let project = project(EXPECT)?;
    project.write("tried.wasm", "text")?;
    let run = project.run(&["test"])?;
    assert_eq!((run.code, run.out.lines().last()), (Some(5), Some("0 passed, 1 failed")));
    assert!(run.out.contains("the component does not load: not a WebAssembly component"), "{}", run.out);
    fs::copy(annex_components::TIMESTAMP, project.path("tried.wasm"))?;
    let run = project.run(&["test"])?;
    assert!(run.out.contains("the component does not load") && run.out.contains("`clock = true`"), "{}", run.out);
    Ok(())
}

#[test]
fn settings_that_cannot_be_are_named() -> Result<()> {
    let project = Project::built(HELLO_EXTENSION, "[settings]\nparametrs = {}\n")?;
    project.write("cases/a.toml", EXPECT)?;
    let run = project.run(&["test"])?;
    assert_eq!(run.code, Some(5));
    assert!(run.out.contains("the settings: parametrs: unknown key"), "{}", run.out);
    Ok(())
}

#[test]
fn what_is_missing_is_named_before_anything_runs() -> Result<()> {
    let project = Project::of(HELLO_EXTENSION, "")?;
    check_refused(&project.run(&["test"])?, 1, &["tried.wasm", "`annex build` makes it"]);
    fs::copy(HELLO_EXTENSION, project.path("tried.wasm"))?;
    check_refused(&project.run(&["test"])?, 1, &["cannot read ", "cases"]);
    fs::create_dir(project.path("cases"))?;
    check_refused(&project.run(&["test"])?, 1, &["has no case", "NAME.toml"]);
    let missing = project.run(&["test", "cases/missing.toml"])?;
    check_refused(&missing, 2, &["cases/missing.toml"]);
    Ok(())
}

/// `examples/payment-cards` is a project in Python. This test runs its cases with the same extension written in Rust.
/// `.ci/run` builds and tests the project in Python.
#[test]
fn the_cases_of_a_project_in_python_hold_for_the_same_extension_in_rust() -> Result<()> {
    let project = Project::built(annex_components::PAYMENT_CARDS, "[settings]\nactivate = \"always\"\n")?;
    fs::create_dir(project.path("cases"))?;
    let mut cases = 0;
    for case in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/payment-cards/cases"))? {
        let case = case?;
        fs::copy(case.path(), project.path("cases").join(case.file_name()))?;
        cases += 1;
    }
    let run = project.run(&["test"])?;
    assert!(run.out.ends_with(&format!("{cases} passed, 0 failed\n")), "{}{}", run.out, run.err);
    assert!(cases > 0);
    Ok(())
}

/// The files in `cases` of a project, with their names.
fn cases_of(project: &Path) -> Result<BTreeMap<OsString, String>> {
    let cases = fs::read_dir(project.join("cases"))?.map(|case| {
        let case = case?;
        Ok((case.file_name(), fs::read_to_string(case.path())?))
    });
    cases.collect()
}

/// Runs the cases of a project with its settings and a component that is built already.
fn check_cases(component: &str, folder: &Path) -> Result<()> {
    let manifest = fs::read_to_string(folder.join("annex-extension.toml"))?;
    let settings = manifest.find("[settings.grants]").context("no settings")?;
    let project = Project::built(component, manifest.get(settings..).unwrap_or_default())?;
    let cases = cases_of(folder)?;
    for (case, text) in &cases {
        project.write(&format!("cases/{}", case.display()), text)?;
    }
    let run = project.run(&["test"])?;
    let passed = format!("{} passed, 0 failed\n", cases.len());
    ensure!(run.out.ends_with(&passed) && !cases.is_empty(), "{}: {}{}", folder.display(), run.out, run.err);
    Ok(())
}

#[test]
fn the_cases_of_agent_payments_hold() -> Result<()> {
    check_cases(annex_components::AP2, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/ap2"))
}

#[test]
fn the_cases_of_payments_by_x402_hold() -> Result<()> {
    check_cases(annex_components::X402, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/x402"))
}

#[test]
fn the_cases_of_user_interfaces_by_a2ui_hold() -> Result<()> {
    check_cases(annex_components::A2UI, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/a2ui"))
}

#[test]
fn the_cases_of_approvals_hold() -> Result<()> {
    check_cases(annex_components::APPROVAL, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/approval"))
}

#[test]
fn the_cases_of_agentstack_hold() -> Result<()> {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest");
    check_cases(annex_components::AGENTSTACK, &guests.join("agentstack"))?;
    check_cases(annex_components::AGENTSTACK_OAUTH, &guests.join("agentstack-oauth"))?;
    check_cases(annex_components::AGENTSTACK_TRAJECTORY, &guests.join("agentstack-trajectory"))
}

#[test]
fn the_cases_of_adks_integration_hold() -> Result<()> {
    check_cases(
        annex_components::ADK_INTEGRATION,
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/adk-integration"),
    )
}

/// `.ci/run` builds the projects in Python, whose cases are the same.
#[test]
fn the_examples_for_authors_pass_their_cases_and_have_less_than_40_lines() -> Result<()> {
    for (name, component) in annex_components::AUTHORS_EXAMPLES {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/authors").join(name);
        for source in ["rust/src/lib.rs", "python/extension.py"] {
            let lines = fs::read_to_string(folder.join(source))?.lines().count();
            assert!(lines < 40, "{name}/{source} has {lines} lines");
        }
        let rust = folder.join("rust");
        assert_eq!(cases_of(&rust)?, cases_of(&folder.join("python"))?, "{name}");
        check_cases(component, &rust)?;
    }
    Ok(())
}
