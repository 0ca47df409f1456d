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

/// The config of a test server: a card, mostly an agent, and whatever a test adds to them.
#[derive(Clone, Debug)]
pub struct TestConfig(Table);

impl TestConfig {
    /// A card and no agent: that of the test is compiled in, see [`TestConfig::start_with`].
    #[must_use]
    pub fn without_agent() -> Self {
        Self(Table::new()).set("card.name", "Test agent").set("card.description", "For tests")
    }

    /// A template agent named `test_agent`. Its model answers `prompt` with its instruction, `slow` with four words within
    /// a second, and other messages with `nothing matched`, until it is given more rules.
    #[must_use]
    pub fn template(instruction: &str) -> Self {
        let agent = Self::without_agent().set("agent.kind", "template").set("agent.name", "test_agent");
        agent.set("agent.instruction", instruction).set("agent.model.scripted.fallback", "nothing matched").with(RULES)
    }

    /// An agent that plays a script; `rules` is TOML with its `[[agent.rule]]`.
    ///
    /// # Panics
    /// When it is no TOML.
    #[must_use]
    pub fn script(rules: &str) -> Self {
        Self::without_agent().set("agent.kind", "script").set("agent.name", "mock").with(rules)
    }

    /// A server in front of the agent whose card is at `card`. It has no card of its own.
    #[must_use]
    pub fn upstream(card: &str) -> Self {
        Self(Table::new()).set("agent.kind", "upstream").set("agent.name", "front").set("agent.card", card)
    }

    /// Sets a key of a table, such as `tasks.max_tasks`.
    ///
    /// # Panics
    /// When the path names no table, or TOML has no such value.
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

    /// Adds TOML. Its keys go into the tables that are there, its arrays behind those that are there.
    ///
    /// # Panics
    /// When it is no TOML.
    #[must_use]
    pub fn with(mut self, more: &str) -> Self {
        merge(&mut self.0, more.parse().unwrap_or_else(|error| unreachable!("{error}{more}")));
        self
    }

    /// Installs a component with these keys of its `[[extension]]`.
    ///
    /// # Panics
    /// When they are no TOML.
    #[must_use]
    pub fn extension(self, component: &str, keys: &str) -> Self {
        self.with(&format!("[[extension]]\ncomponent = {component:?}\n{keys}"))
    }

    /// The config as text.
    #[must_use]
    pub fn toml(&self) -> String {
        self.0.to_string()
    }

    /// Starts a server with it.
    ///
    /// # Errors
    /// As [`TestServer::start`].
    pub async fn start(&self) -> anyhow::Result<TestServer> {
        TestServer::start(&self.toml()).await
    }

    /// Starts a server with it and an agent of the test's own.
    ///
    /// # Errors
    /// As [`TestServer::start`].
    pub async fn start_with(&self, agent: Arc<dyn AgentExecutor>) -> anyhow::Result<TestServer> {
        TestServer::with_agent(&self.toml(), agent).await
    }
}

fn merge(table: &mut Table, more: Table) {
    for (key, value) in more {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(there)), Value::Table(value)) => merge(there, value),
            (Some(Value::Array(there)), Value::Array(value)) => there.extend(value),
            // A later value replaces an earlier one, so that a test can change one key of a whole config.
            (_, value) => drop(table.insert(key, value)),
        }
    }
}
