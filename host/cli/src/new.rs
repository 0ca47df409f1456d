//! `annex new`

use std::io::{self, IsTerminal};
use std::path::Path;

use annex_authoring::{Capability, Choice, EXAMPLE_URI, HOOKS, Language, ProjectName, parse_hook};
use annex_runtime::Hook;
use anyhow::{bail, ensure};
use clap::Args;

use crate::exit::Failure;
use crate::{notes, output};

/// Create a project for a new extension
///
/// The project contains everything it needs from Annex. On a terminal the command asks for missing options.
#[derive(Args)]
#[command(after_help = "Examples:\n  annex new word-count --lang rust\n  annex new word-count --lang python --hooks \
                        message,response --with keyvalue\n  annex new word-count --lang js --uri https://acme.example/word-count/v1\n\nHooks: card, live-card, activation, message, state, transition, \
                        reply, steering, output, response,\nreads, extended-card, method, client.\nCapabilities: parameters, keyvalue, clock, random, http, json-schema, \
                        session-state, task, tasks,\ntask-resumption, agent-steps, caller, task-metadata, logging.")]
pub(crate) struct New {
    /// The name of the extension and of its new folder: `word-count`
    #[arg(value_parser = ProjectName::parse)]
    name: Option<ProjectName>,
    /// The language: rust, js, ts, python, c or go
    #[arg(long, value_parser = Language::parse)]
    lang: Option<Language>,
    /// The hooks of the extension, with commas between them; default: response
    #[arg(long, value_delimiter = ',', value_parser = parse_hook)]
    hooks: Option<Vec<Hook>>,
    /// The capabilities of the host that the extension calls, with commas between them
    #[arg(long, value_delimiter = ',', value_parser = Capability::parse)]
    with: Option<Vec<Capability>>,
    /// The URI by which clients name the extension; default: a URI of example.com, to be changed before others use it
    #[arg(long, value_name = "URI", value_parser = uri)]
    uri: Option<String>,
}

impl New {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let choice = self.choice()?;
        choice.check().map_err(|reason| Failure::Usage.error(reason))?;
        let folder = annex_authoring::create(Path::new("."), &choice)?;
        let name = folder.strip_prefix(".").unwrap_or(&folder).display();
        if choice.uri.is_none() {
            output::note(&notes::example_uri(&format!("{EXAMPLE_URI}extensions/{}/v1", choice.name)));
        }
        output::note(&format!("{name} is there; its README.md says what is in it. Go on with:"));
        output::write(&format!("cd {name} && annex build\nannex test\nannex dev\n"))
    }

    fn choice(self) -> anyhow::Result<Choice> {
        // A script that forgets something is told so. It must not wait for an answer that nobody gives.
        let asks = io::stdin().is_terminal() && io::stderr().is_terminal();
        let missing = |what: &str| {
            Failure::Usage.error(format!("{what} is missing; for example: annex new word-count --lang rust"))
        };
        let name = match self.name {
            Some(name) => name,
            None if asks => ask("Name, such as word-count", ProjectName::parse)?,
            None => return Err(missing("NAME")),
        };
        let language = match self.lang {
            Some(language) => language,
            None if asks => {
                ask(&format!("Language ({})", Language::ALL.map(Language::name).join(", ")), Language::parse)?
            }
            None => return Err(missing("--lang")),
        };
        let hooks = match self.hooks {
            Some(hooks) => hooks,
            None if asks => ask(&format!("Hooks ({}) [response]", HOOKS.map(Hook::name).join(", ")), hooks_of)?,
            None => vec![Hook::Response],
        };
        let with = match self.with {
            Some(with) => with,
            None if asks => {
                ask(&format!("Capabilities ({}) []", Capability::ALL.map(Capability::name).join(", ")), with_of)?
            }
            None => Vec::new(),
        };
        ensure!(!hooks.is_empty(), "an extension without a hook does nothing; name one with --hooks");
        // Each hook once, in the order of the contract, regardless of how the hooks were named.
        let hooks = HOOKS.into_iter().filter(|hook| hooks.contains(hook)).collect();
        // Every author wants to see what the extension does, and the log needs no grant.
        let is_chosen = |capability: &Capability| *capability == Capability::Logging || with.contains(capability);
        let capabilities = Capability::ALL.into_iter().filter(is_chosen).collect();
        Ok(Choice { name, language, hooks, capabilities, uri: self.uri })
    }
}

/// The maximum size of a URI, in bytes.
const MAX_URI: usize = 2 << 10;

/// Parses a URI, and refuses characters that need escapes. The URI is written into source text of every language, and
/// into a header field that separates URIs by commas.
fn uri(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !br#",;"'\<>{}|^`$"#.contains(&byte);
    let is_absolute = text.split_once(':').is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty());
    if is_absolute && text.len() <= MAX_URI && text.bytes().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err("not an absolute URI; write one such as https://acme.example/extensions/word-count/v1".to_owned())
}

fn hooks_of(answer: &str) -> Result<Vec<Hook>, String> {
    let hooks = listed(answer, parse_hook)?;
    Ok(if hooks.is_empty() { vec![Hook::Response] } else { hooks })
}

fn with_of(answer: &str) -> Result<Vec<Capability>, String> {
    listed(answer, Capability::parse)
}

fn listed<T>(answer: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    let words = answer.split(|between: char| between == ',' || between.is_whitespace());
    words.filter(|word| !word.is_empty()).map(parse).collect()
}

/// Repeats the question until `parse` accepts the answer.
fn ask<T>(question: &str, parse: impl Fn(&str) -> Result<T, String>) -> anyhow::Result<T> {
    loop {
        output::prompt(&format!("{question}: "));
        let mut answer = String::new();
        if io::stdin().read_line(&mut answer)? == 0 {
            bail!("there was no answer");
        }
        match parse(answer.trim()) {
            Ok(value) => return Ok(value),
            Err(reason) => output::note(&reason),
        }
    }
}
