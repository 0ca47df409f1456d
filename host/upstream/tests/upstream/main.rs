//! Tests of the upstream agent without a server in front: turns run as in a server, and each test scripts its upstream.

#![cfg(test)]

mod answers;
mod authorization;
mod bench;
mod cards;
mod configs;
mod connections;
mod failures;
mod odd_answers;
mod requests;
mod upstream;
