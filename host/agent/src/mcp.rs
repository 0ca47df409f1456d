//! Tools from MCP servers: programs that the agent starts, or servers that it calls over HTTP.
//!
//! Tools are listed once, when the agent starts. If a server ends, it is restarted. While it is down, calls of its
//! tools fail.

use std::path::Path;
use std::sync::Arc;

use futures::future::{BoxFuture, join_all, try_join_all};

use crate::tool::Tool;

mod bounded;
mod config;
mod connection;
mod content;
mod http;
mod offered_tool;
mod program;
mod stderr_log;

pub use config::{McpConfig, McpScope};
use connection::Connection;
pub use connection::McpError;
use offered_tool::OfferedTool;
pub use program::{end_programs, kill_programs};

/// Running MCP servers. Clones share the servers.
#[derive(Clone, Default)]
pub struct McpServers {
    connections: Arc<[Connection]>,
}

/// Servers that were started, and the tools that they offer.
pub type ServersAndTools = (McpServers, Vec<Arc<dyn Tool>>);

impl McpServers {
    /// Starts the servers in parallel and lists their tools. Relative paths start at `folder`.
    ///
    /// # Errors
    /// Names the server that cannot be started or lacks a tool that the config of the server names.
    pub fn start<'a>(configs: &'a [McpConfig], folder: &'a Path) -> BoxFuture<'a, Result<ServersAndTools, McpError>> {
        Box::pin(async move {
            // At the first failure the other starts are dropped, which stops their servers.
            let started = try_join_all(configs.iter().map(|config| start(config, folder))).await?;
            let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
            let mut connections = Vec::new();
            for (connection, offered) in started {
                connections.push(connection);
                tools.extend(offered.into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>));
            }
            Ok((Self { connections: connections.into() }, tools))
        })
    }

    /// Stops the servers. Programs get three seconds to end by themselves.
    pub async fn close(&self) {
        join_all(self.connections.iter().map(Connection::close)).await;
    }
}

async fn start(config: &McpConfig, folder: &Path) -> Result<(Connection, Vec<OfferedTool>), McpError> {
    let (connection, tools) = Connection::start(config, folder).await?;
    // A misspelt name would otherwise leave the model without the tool, and without an error.
    let unknown = config.named_tools().find(|name| tools.iter().all(|tool| tool.name != **name));
    if let Some(name) = unknown {
        let offered = tools.iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>().join(", ");
        return Err(McpError::NoSuchTool { server: config.name.clone(), tool: name.clone(), offered });
    }
    let chosen = tools.into_iter().filter(|tool| config.takes(&tool.name));
    let offered = chosen.map(|tool| OfferedTool::new(config, &tool, connection.peer())).collect();
    Ok((connection, offered))
}
