//! Push notifications over real sockets on loopback, through the public interface.

#![cfg(test)]

mod addresses;
mod bounds;
mod close;
mod headers;
mod order;
mod retries;
mod support;
