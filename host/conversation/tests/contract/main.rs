//! The contract of every store of conversations, through the public interface.

// Lets the lints see helper functions, too, as test code.
#![cfg(test)]

/// Runs each case on a store of every kind. A store that is added gets a module here, and all cases with it.
macro_rules! on_every_store {
    ($($case:ident),+ $(,)?) => {
        mod on_memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::backend::on_memory(super::$case).await;
            })+
        }

        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::backend::on_sqlite(super::$case).await;
            })+
        }

        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::backend::on_postgres(super::$case).await;
            })+
        }
    };
}

/// Runs each case on every store whose conversations outlive the process.
macro_rules! on_every_database {
    ($($case:ident),+ $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::backend::on_sqlite(super::$case).await;
            })+
        }

        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::backend::on_postgres(super::$case).await;
            })+
        }
    };
}

#[path = "../../../leases/tests/leases/cluster.rs"]
mod cluster;
#[path = "../../../leases/tests/leases/table.rs"]
mod table;

mod artifacts;
mod backend;
mod bounds;
mod cases;
mod claims;
mod concurrency;
mod configs;
mod crash;
mod cursors;
mod databases;
mod events;
mod exact;
mod file;
mod full;
mod full_disk;
mod json;
mod keys;
mod limits;
mod lists;
mod lost;
mod lost_answers;
mod odd_names;
mod outage;
mod program;
mod queue;
mod races;
mod removal;
mod retention;
mod scopes;
mod statement_counter;
mod support;
mod tasks;
mod trips;
mod turns;
mod waiting;
