//! The first steps of a reader of a page: serve the page's first config, and run the command that `annex serve` prints.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toml::{Table, Value};

use crate::in_front::tried;
use crate::support::{Server, specialist, template_agent};

/// The pages whose first config this test cannot try, with the reasons.
const UNTRIED: [&str; 9] = [
    "receipts.md",              // needs the file of a key
    "audit.md",                 // needs the file of an admin token
    "console.md",               // needs the file of an admin token
    "deployment.md",            // asks an authorization server about tokens
    "replicas.md",              // needs PostgreSQL
    "tenants.md",               // needs the files of tenants
    "agentstack-oauth/spec.md", // refuses a message without a redirect URI, and says so
    "strict-parts/spec.md",     // refuses text, and says so
    "x402/spec.md",             // asks for a payment before it answers
];

/// The pages for operators, and the specifications of the extensions that ship.
fn pages() -> Result<Vec<PathBuf>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(root.join("host/docs"))? {
        pages.push(entry?.path());
    }
    for entry in fs::read_dir(root.join("guest"))? {
        pages.push(entry?.path().join("spec.md"));
    }
    pages.retain(|page| page.is_file() && page.extension().is_some_and(|ending| ending == "md"));
    pages.retain(|page| !UNTRIED.iter().any(|other| page.ends_with(other)));
    pages.sort();
    Ok(pages)
}

/// The first TOML block of the page; `None` if the page has none.
fn first_config(page: &str) -> Option<&str> {
    let (_, block) = page.split_once("\n```toml\n")?;
    block.split_once("\n```").map(|(block, _)| block)
}

/// The config of a page, changed for serving it here. It listens on a free port. A config without an agent gets one. An
/// upstream agent is replaced by the agent at `upstream`.
fn completed(block: &str, upstream: &str) -> Result<String> {
    let mut config: Table = block.parse()?;
    if let Some(agent) = config.get_mut("agent").and_then(Value::as_table_mut) {
        if agent.contains_key("card") {
            agent.insert("card".to_owned(), upstream.into());
        }
    } else {
        let rest: Table = template_agent("Be short.", "").parse()?;
        for (name, table) in rest {
            config.entry(name).or_insert(table);
        }
    }
    let server = config.entry("server").or_insert_with(|| Table::new().into());
    server.as_table_mut().context("[server]")?.insert("listen".to_owned(), "127.0.0.1:0".into());
    Ok(config.to_string())
}

/// The variables of the environment that a config names.
fn variables(block: &str) -> Vec<&str> {
    let named = block.split("env = \"").skip(1);
    named.filter_map(|rest| rest.split_once('"')).map(|(name, _)| name).collect()
}

/// Serves the config, and runs the command that the server suggests under "Try it".
fn check(what: &str, config: &str, variables: &[&str]) -> Result<()> {
    let environment: Vec<_> = variables.iter().map(|name| (*name, "0123456789abcdef0123456789abcdef")).collect();
    let mut server = Server::start_with(config, &environment).with_context(|| what.to_owned())?;
    let mut lines = BufReader::new(&mut server.stdout).lines();
    let begin = lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("Try it")));
    begin.context("nothing to try")??;
    let mut command = String::new();
    while let Some(line) = lines.next().transpose()? {
        command.push_str(&line);
        command.push('\n');
        if !line.ends_with('\\') {
            break;
        }
    }
    let tried = tried(&command, &environment)?;
    assert_eq!(tried.code, Some(0), "{what}: {command}{}", tried.err);
    Ok(())
}

#[test]
fn the_first_config_of_each_page_answers_the_command_that_serve_prints() -> Result<()> {
    let upstream = Server::start(&template_agent("Be short.", ""))?;
    let mut checked = 0;
    for page in pages()? {
        let text = fs::read_to_string(&page)?;
        let Some(block) = first_config(&text) else { continue };
        check(&page.display().to_string(), &completed(block, &upstream.url)?, &variables(block))?;
        checked += 1;
    }
    assert!(checked > 15, "{checked} configs were found");
    check("the specialist", &specialist(), &[])
}
