//! `annex proxy`

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use annex_client::ClientError;
use annex_server::{Config, ServeError};
use anyhow::{Context, bail};
use clap::Args;
use reqwest::Url;
use toml::{Table, Value};

use crate::{exit, log, output, serve};

mod installed;

/// The ports to listen on by default. The proxy uses the second port if the agent itself has the first, as many example
/// agents of A2A do.
const PORTS: [u16; 2] = [9999, 9990];

/// The text that errors show in place of the config's path, if the config is not written to a file.
const UNNAMED: &str = "annex proxy";

/// Put extensions in front of an agent that you have
///
/// Serves the A2A agent at URL with the extension of each --with, as `annex serve` would, and prints the config for
/// `annex serve`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  annex proxy http://127.0.0.1:8000 --with timestamp\n  annex proxy http://127.0.0.1:8000 --with \
                  ./mine.wasm=@mine.toml\n\nSettings are the \
                  keys of [[extension]] in a config without `component`: required, grants, limits, parameters and others. A \
                  component that ships with Annex gets the grants that it needs; any other component gets only the grants \
                  in its settings.\nANNEX_LOG sets the log filter, e.g. ANNEX_LOG=debug."
)]
pub(crate) struct Proxy {
    /// The agent's base URL, or the URL of its card, which ends in .json
    url: String,
    /// Install an extension: a component file, or the name of a component that ships with Annex. SETTINGS is a JSON
    /// object, or @FILE with TOML. May be repeated; extensions run in this order
    #[arg(long = "with", value_name = "COMPONENT[=SETTINGS]")]
    extensions: Vec<String>,
    /// Listen on this address and port; port 0 takes a free port [default: 127.0.0.1:9999, or port 9990 if the agent
    /// itself has port 9999]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Accept an agent whose card names interfaces at this other host (`name` or `name:port`); may be repeated
    #[arg(long = "allow-host", value_name = "HOST")]
    allow_hosts: Vec<String>,
    /// Write the config to this file, for `annex serve FILE`
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

impl Proxy {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let file = self.write.as_deref().unwrap_or(Path::new(UNNAMED));
        let text = self.config(file.parent().unwrap_or(Path::new(""))).await?;
        let mut config = Config::parse(file, &text)?;
        // The log starts only here: components were loaded on trial before, and the log should begin with the served
        // ones.
        log::start()?;
        if self.write.is_some() {
            keep(file, &text)?;
            // Read as `annex serve` reads it, so that SIGHUP finds the file.
            config = Config::read(file)?;
        }
        // A closed standard output is no reason to stop, as in `annex serve`.
        let _ = output::write(&format!("{text}\n"));
        let served = Box::pin(serve::serve(config, serve::locations(file))).await;
        served.map_err(|error| match hint(&error) {
            Some(hint) => exit::with_hint(&error, &hint),
            None => exit::by_cause(error),
        })
    }

    /// Writes the config that the options describe as TOML. The paths in this config are for a config file in `folder`.
    async fn config(&self, folder: &Path) -> anyhow::Result<String> {
        let card = Url::parse(&self.url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let card = card.ok_or_else(|| ClientError::Address { address: self.url.clone() })?;
        let mut agent = Table::new();
        for (key, value) in [("kind", "upstream"), ("name", "upstream"), ("card", self.url.as_str())] {
            agent.insert(key.to_owned(), value.into());
        }
        if !self.allow_hosts.is_empty() {
            agent.insert("allow_hosts".to_owned(), self.allow_hosts.clone().into());
        }
        let listen = self.listen.unwrap_or_else(|| free_of(&card)).to_string();
        let server = Table::from_iter([("listen".to_owned(), listen.into())]);
        let mut text =
            "# What `annex proxy` serves. `annex init FILE` writes a config with every key and what it means.\n"
                .to_owned();
        let mut add = |name: &str, table: Value| text.push_str(&format!("{}\n", section(name, table)));
        add("server", server.into());
        add("agent", agent.into());
        let installed = installed::tables(&self.extensions, folder).await?;
        if !installed.is_empty() {
            add("extension", installed.into());
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        Ok(text)
    }
}

/// Writes a table, or an array of tables, as TOML under the name `name`.
fn section(name: &str, table: Value) -> String {
    Table::from_iter([(name.to_owned(), table)]).to_string()
}

/// The default address to listen on. Its port is not the port of the agent, whose card is at `card`.
fn free_of(card: &Url) -> SocketAddr {
    let [first, second] = PORTS;
    let port = if card.port_or_known_default() == Some(first) { second } else { first };
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Writes the config to a new file. An existing file is never overwritten: if it has another text than `text`, this is
/// an error.
fn keep(file: &Path, text: &str) -> anyhow::Result<()> {
    let shown = file.display();
    match OpenOptions::new().write(true).create_new(true).open(file) {
        Ok(mut new) => {
            new.write_all(text.as_bytes()).with_context(|| format!("cannot write {shown}"))?;
            output::note(&format!("the config is in {shown}; annex serve {shown} serves the same"));
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let there = fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
            if there == text {
                return Ok(());
            }
            bail!(
                "--write: {shown} is there and says something else than these options; name another file, or serve that \
                 one with annex serve {shown}"
            )
        }
        Err(error) => Err(error).with_context(|| format!("--write: cannot write {shown}")),
    }
}

/// Advice that names an option to solve the problem; `None` if no option helps.
fn hint(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        if let Some(ServeError::Listen { .. }) = cause.downcast_ref::<ServeError>() {
            let other = "take another port, as with --listen 127.0.0.1:0, which finds a free one";
            return Some(format!("{other}; or end the program that listens there"));
        }
        match cause.downcast_ref::<ClientError>() {
            Some(ClientError::NotAllowed { host, .. }) => {
                Some(format!("if the agent is really at {host}: --allow-host {host}"))
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use reqwest::Url;

    use super::free_of;

    #[test]
    fn the_default_address_is_on_loopback_and_not_that_of_the_agent() {
        let cases = [
            ("http://127.0.0.1:8000", "127.0.0.1:9999"),
            ("https://agent.example.com/card.json", "127.0.0.1:9999"),
            ("http://localhost:9999/", "127.0.0.1:9990"),
        ];
        for (url, expected) in cases {
            assert_eq!(free_of(&Url::parse(url).expect("a URL")).to_string(), expected, "{url}");
        }
    }
}
