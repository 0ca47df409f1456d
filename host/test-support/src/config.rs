//! Configs of test servers.

use std::sync::Arc;

use annex_agent::AgentExecutor;
use serde::Serialize;
use toml::{Table, Value};

use crate::TestServer;

const RULES: &str = r#"
    [[agent.model.scripted.rules]]
    when = "^prompt$"
    answer = "{all}"
    extract = { all = "(?s)^(.*)$" }

    [[agent.model.scripted.rules]]
    when = "^slow$"
    answer = "one two three four"
    chunks = 4
    delay_ms = 300
"#;

/// The config of a test server: a card, usually an agent, and whatever the test adds.
#[derive(Clone, Debug)]
pub struct TestConfig(Table);

impl TestConfig {
    /// A config with a card and without an agent. Use [`TestConfig::start_with`] to pass an agent in Rust.
    #[must_use]
    pub fn without_agent() -> Self {
        Self(Table::new()).set("card.name", "Test agent").set("card.description", "For tests")
    }

    /// A config of a template agent named `test_agent`. Its scripted model answers `prompt` with the instruction,
    /// `slow` with four words within a second, and other messages with `nothing matched`. Tests can add rules.
    #[must_use]
    pub fn template(instruction: &str) -> Self {
        let agent = Self::without_agent().set("agent.kind", "template").set("agent.name", "test_agent");
        agent.set("agent.instruction", instruction).set("agent.model.scripted.fallback", "nothing matched").with(RULES)
    }

    /// A config of a scripted agent. `rules` is the TOML of its `[[agent.rule]]` tables.
    ///
    /// # Panics
    /// `rules` is not TOML.
    #[must_use]
    pub fn script(rules: &str) -> Self {
        Self::without_agent().set("agent.kind", "script").set("agent.name", "mock").with(rules)
    }

    /// A config of a server in front of another agent, whose card is at the URL `card`. The config has no card of its
    /// own.
    #[must_use]
    pub fn upstream(card: &str) -> Self {
        Self(Table::new()).set("agent.kind", "upstream").set("agent.name", "front").set("agent.card", card)
    }

    /// Sets a key, for example `tasks.max_tasks`.
    ///
    /// # Panics
    /// The path names no table, or TOML cannot express the value.
    #[must_use]
    pub fn set(mut self, path: &str, value: impl Serialize) -> Self {
        let (tables, key) = path.rsplit_once('.').expect("a table and a key");
        let table = tables.split('.').fold(&mut self.0, |table, name| {
            let inner = table.entry(name).or_insert_with(|| Table::new().into());
            inner.as_table_mut().expect("a table")
        });
        table.insert(key.to_owned(), Value::try_from(value).expect("a value that TOML has"));
        self
    }

    /// Merges TOML into the config. Keys are added to existing tables, and arrays are appended to existing arrays.
    ///
    /// # Panics
    /// `more` is not TOML.
    #[must_use]
    pub fn with(mut self, more: &str) -> Self {
        merge(&mut self.0, more.parse().unwrap_or_else(|error| unreachable!("{error}{more}")));
        self
    }

    /// Installs a component. `keys` is the TOML of further keys in its `[[extension]]` table.
    ///
    /// # Panics
    /// `keys` is not TOML.
    #[must_use]
    pub fn extension(self, component: &str, keys: &str) -> Self {
        self.with(&format!("[[extension]]\ncomponent = {component:?}\n{keys}"))
    }

    /// The config as TOML text.
    #[must_use]
    pub fn toml(&self) -> String {
        self.0.to_string()
    }

    /// Starts a server with this config.
    ///
    /// # Errors
    /// When the server does not become ready.
    pub async fn start(&self) -> anyhow::Result<TestServer> {
        TestServer::start(&self.toml()).await
    }

    /// Starts a server with this config and the test's own agent.
    ///
    /// # Errors
    /// When the server does not become ready.
    pub async fn start_with(&self, agent: Arc<dyn AgentExecutor>) -> anyhow::Result<TestServer> {
        TestServer::with_agent(&self.toml(), agent).await
    }
}

fn merge(table: &mut Table, more: Table) {
    for (key, value) in more {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(there)), Value::Table(value)) => merge(there, value),
            (Some(Value::Array(there)), Value::Array(value)) => there.extend(value),
            // A later value replaces an earlier one, so that a test can change one key of a complete config.
            (_, value) => drop(table.insert(key, value)),
        }
    }
}
