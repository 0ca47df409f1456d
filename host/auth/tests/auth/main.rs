//! Authentication and card signatures, through the public interface.
#![cfg(test)]
#![expect(clippy::unwrap_used, reason = "the functions that tests share may fail a test")]

mod api_keys;
mod cards;
mod configuration;
mod hostile_tokens;
mod jwks_url;
mod support;
mod tokens;
