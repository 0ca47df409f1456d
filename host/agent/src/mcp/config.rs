//! `[[agent.mcp]]`: the MCP servers that provide tools for an agent.

use std::time::Duration;

use annex_conversation::Scope;
use annex_egress::Screen;
use serde::Deserialize;

/// The default timeout of a call, in seconds.
const TIMEOUT_SECONDS: u64 = 30;

/// An MCP server.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "McpTable")]
pub struct McpConfig {
    /// The name of the server in log lines and errors.
    pub name: String,
    pub(crate) place: ServerAddress,
    tools: Option<Vec<String>>,
    long_running: Vec<String>,
    pub(crate) timeout: Duration,
    state: Vec<McpScope>,
    pub(crate) screen: Option<Screen>,
}

/// The address of a server: a program or a URL.
#[derive(Clone, Debug)]
pub(crate) enum ServerAddress {
    /// A program that speaks MCP over standard input and output.
    Program {
        command: String,
        args: Vec<String>,
        /// Environment variables of this process that the program gets in addition to the usual ones.
        env: Vec<String>,
    },
    /// A server that speaks streamable HTTP.
    Url {
        url: String,
        /// The environment variable with the bearer token.
        token_env: Option<String>,
    },
}

/// A scope of state that tool results may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum McpScope {
    /// Keys of the session.
    Session,
    /// `user:` keys.
    User,
    /// `app:` keys.
    App,
    /// `temp:` keys.
    Temp,
}

/// The table in the config file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct McpTable {
    name: String,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<String>,
    url: Option<String>,
    token_env: Option<String>,
    tools: Option<Vec<String>>,
    #[serde(default)]
    long_running: Vec<String>,
    timeout_seconds: Option<u64>,
    #[serde(default)]
    state: Vec<McpScope>,
}

/// A fault that concerns several keys of the table.
#[derive(Debug, thiserror::Error)]
enum McpTableError {
    #[error("MCP server `{name}` needs either `command` or `url`")]
    ServerAddress { name: String },
    #[error("MCP server `{name}`: `{key}` does not belong to its `{place}`")]
    Foreign { name: String, key: &'static str, place: &'static str },
    #[error("`long_running` of MCP server `{name}` names `{tool}`, which its `tools` leave out")]
    LeftOut { name: String, tool: String },
    #[error("`timeout_seconds` of MCP server `{name}` is 0")]
    NoTime { name: String },
}

impl TryFrom<McpTable> for McpConfig {
    type Error = McpTableError;

    fn try_from(table: McpTable) -> Result<Self, McpTableError> {
        let place = place(&table)?;
        let McpTable { name, tools, long_running, timeout_seconds, state, .. } = table;
        let left_out = |tool: &&String| tools.as_ref().is_some_and(|tools| !tools.contains(tool));
        if let Some(tool) = long_running.iter().find(left_out) {
            return Err(McpTableError::LeftOut { name, tool: tool.clone() });
        }
        let timeout = Duration::from_secs(timeout_seconds.unwrap_or(TIMEOUT_SECONDS));
        // Every call would fail at once.
        if timeout.is_zero() {
            return Err(McpTableError::NoTime { name });
        }
        Ok(Self { name, place, tools, long_running, timeout, state, screen: None })
    }
}

fn place(table: &McpTable) -> Result<ServerAddress, McpTableError> {
    let foreign = |key, place| Err(McpTableError::Foreign { name: table.name.clone(), key, place });
    match (&table.command, &table.url) {
        // A key that has no effect is refused: a token that is never sent looks like a server that refuses it.
        (Some(_), None) if table.token_env.is_some() => foreign("token_env", "command"),
        (None, Some(_)) if !table.args.is_empty() => foreign("args", "url"),
        (None, Some(_)) if !table.env.is_empty() => foreign("env", "url"),
        (Some(command), None) => {
            Ok(ServerAddress::Program { command: command.clone(), args: table.args.clone(), env: table.env.clone() })
        }
        (None, Some(url)) => Ok(ServerAddress::Url { url: url.clone(), token_env: table.token_env.clone() }),
        (Some(_), Some(_)) | (None, None) => Err(McpTableError::ServerAddress { name: table.name.clone() }),
    }
}

impl McpConfig {
    /// The number of tools that the config names.
    pub fn named(&self) -> usize {
        self.named_tools().count()
    }

    /// Returns this config with a screen that checks each address before a connection is opened. Used for URLs that a
    /// tenant chose.
    #[must_use]
    pub fn behind(self, screen: Screen) -> Self {
        Self { screen: Some(screen), ..self }
    }

    /// The tools that the config names. The server must have all of them.
    pub(crate) fn named_tools(&self) -> impl Iterator<Item = &String> {
        self.tools.iter().flatten().chain(&self.long_running)
    }

    /// Tells whether the model gets this tool.
    pub(crate) fn takes(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.iter().any(|name| name == tool))
    }

    /// Tells whether the client sends the results of this tool later.
    pub(crate) fn is_long_running(&self, tool: &str) -> bool {
        self.long_running.iter().any(|name| name == tool)
    }

    /// The scopes that results may change.
    pub(crate) fn scopes(&self) -> Vec<Scope> {
        self.state.iter().map(|scope| Scope::from(*scope)).collect()
    }
}

impl From<McpScope> for Scope {
    fn from(scope: McpScope) -> Self {
        match scope {
            McpScope::Session => Self::Conversation,
            McpScope::User => Self::User,
            McpScope::App => Self::App,
            McpScope::Temp => Self::Temp,
        }
    }
}
