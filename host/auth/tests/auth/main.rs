//! Tests of authentication and card signatures, through the public interface.
#![cfg(test)]

mod api_keys;
mod cards;
mod certificates;
mod configuration;
mod declared;
mod hostile_tokens;
mod introspection;
mod jwks_url;
mod receipts;
mod support;
mod token_source;
mod tokens;
