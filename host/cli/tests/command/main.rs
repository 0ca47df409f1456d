//! The `annex` command as a user meets it: arguments in; standard output, standard error and the exit code out.
#![cfg(test)]

mod approvals;
mod audit;
mod authoring;
mod chat;
mod check;
mod clocks;
#[path = "../../../leases/tests/leases/cluster.rs"]
mod cluster;
mod distance;
mod doctor;
mod durable;
mod editions;
mod extension;
mod fencing;
mod files;
mod first_configs;
mod foreign;
mod health;
mod help;
mod in_front;
mod inspect;
mod keyless;
mod left;
mod links;
mod locks;
mod lost;
mod lost_traces;
mod mistakes;
mod outage;
mod permits;
mod program;
mod programs;
mod proxy;
mod push;
mod quotas;
#[cfg(target_os = "linux")]
mod read_only;
mod receipts;
mod record;
mod registry;
mod replicas;
mod send;
mod serve;
mod sessions;
mod shared_stores;
mod signed_files;
#[path = "../../../trust/tests/trust/sigstore.rs"]
mod sigstore;
#[path = "../../../conversation/tests/contract/statement_counter.rs"]
mod statement_counter;
mod steering;
mod stopped;
mod stopping;
mod strangers;
mod support;
#[path = "../../../leases/tests/leases/table.rs"]
#[expect(dead_code, reason = "these tests only begin leases")]
mod table;
mod tenants;
mod terminal;
mod tls;
mod trace;
mod trips;
mod turns;
mod wake;
