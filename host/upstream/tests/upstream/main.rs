//! The agent that lives elsewhere, without a server of ours in front of it: turns as a server runs them, and an upstream
//! that is made by hand.

#![cfg(test)]

mod answers;
mod bench;
mod cards;
mod configs;
mod connections;
mod failures;
mod odd_answers;
mod requests;
mod upstream;
