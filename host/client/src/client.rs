//! The client: the parts that all calls of a program share.

use std::sync::Arc;

use crate::card::{AgentCardDocument, Cards};
use crate::config::ClientConfig;
use crate::http::Http;
use crate::{Agent, ClientError};

/// Finds agents. It keeps their cards and the connections to them, so a program needs one only.
pub struct Client {
    config: ClientConfig,
    http: Http,
    cards: Cards,
}

impl Client {
    /// A client without any cards yet.
    ///
    /// # Errors
    /// [`ClientError::Setup`] when the HTTP client does not start.
    pub fn new(config: ClientConfig) -> Result<Self, ClientError> {
        let http = Http::new(&config)?;
        let cards = Cards::new(config.max_cards);
        Ok(Self { config, http, cards })
    }

    /// The card of an agent: a kept one while its `max-age` lasts, else the agent is asked whether it is still the same.
    /// `address` is the agent's base URL, or the URL of the card when it ends in `.json`.
    ///
    /// # Errors
    /// When the address is no URL, cannot be reached, or gives no card; with trusted keys, when none of them has signed
    /// the card.
    pub async fn card(&self, address: &str) -> Result<Arc<AgentCardDocument>, ClientError> {
        self.cards.get(&self.http, &self.config, address).await
    }

    /// The agent at `address`, by the interface of its card that suits best.
    ///
    /// # Errors
    /// As [`Client::card`], and when the card has no interface that may be used.
    pub async fn agent(&self, address: &str) -> Result<Agent, ClientError> {
        let document = self.card(address).await?;
        Agent::new(document, &self.http, &self.config)
    }
}
