//! The client: the state that all calls of a program share.

use std::sync::Arc;

use crate::card::{AgentCardDocument, Cards};
use crate::config::ClientConfig;
use crate::http::Http;
use crate::{Agent, ClientError};

/// Finds agents by their cards. A client caches cards and reuses connections, so a program needs only one client.
pub struct Client {
    config: ClientConfig,
    http: Http,
    cards: Cards,
}

impl Client {
    /// Creates a client with an empty cache.
    ///
    /// # Errors
    /// [`ClientError::Setup`] when the HTTP client does not start.
    pub fn new(config: ClientConfig) -> Result<Self, ClientError> {
        let http = Http::new(&config)?;
        let cards = Cards::new(config.max_cards);
        Ok(Self { config, http, cards })
    }

    /// Reads the card of an agent. A cached card is used during its `max-age`, and is afterwards revalidated by a
    /// conditional request. `address` is the agent's base URL, or the URL of the card if it ends in `.json`.
    ///
    /// # Errors
    /// When the address is no URL, cannot be reached, or gives no card. When the client has trusted keys and none of these
    /// keys has signed the card.
    pub async fn card(&self, address: &str) -> Result<Arc<AgentCardDocument>, ClientError> {
        self.cards.get(&self.http, &self.config, address).await
    }

    /// Connects to the agent at `address`, over the best interface of its card.
    ///
    /// # Errors
    /// When the card cannot be read (see [`Client::card`]), or has no interface that may be used.
    pub async fn agent(&self, address: &str) -> Result<Agent, ClientError> {
        let document = self.card(address).await?;
        Agent::new(document, &self.http, &self.config)
    }
}
