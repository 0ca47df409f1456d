//! One contract for all stores, and the particular behaviour of each store.

// Lets the lints see helper functions, too, as test code.
#![cfg(test)]

/// Runs each case on a store of every kind.
macro_rules! on_every_store {
    ($($case:ident),+ $(,)?) => {
        mod on_memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::fixture::on_memory(super::$case).await;
            })+
        }

        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::fixture::on_sqlite(super::$case).await;
            })+
        }

        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::fixture::on_postgres(super::$case).await;
            })+
        }
    };
}

/// Runs each case on each database, which the next process opens again.
macro_rules! across_a_restart {
    ($($case:ident),+ $(,)?) => {
        mod in_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(&crate::fixture::Restart::in_sqlite()).await;
            })+
        }

        mod in_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let Some(restart) = crate::fixture::Restart::in_postgres().await else { return };
                super::$case(&restart).await;
                restart.remove().await;
            })+
        }
    };
}

#[path = "../../../leases/tests/leases/clock.rs"]
#[expect(dead_code, reason = "these tests wait for renewals only")]
mod clock;
#[path = "../../../leases/tests/leases/cluster.rs"]
mod cluster;
#[path = "../../../leases/tests/leases/table.rs"]
#[expect(dead_code, reason = "these tests only end leases")]
mod table;
#[path = "../../../leases/tests/leases/wires.rs"]
#[expect(dead_code, reason = "these tests lose single answers only")]
mod wires;

mod configs;
mod crash;
mod cursors;
mod events;
mod fencing;
mod fixture;
mod growth;
mod json;
mod keys;
mod killed;
mod lists;
mod lost;
mod memory;
mod messages;
mod outage;
mod pins;
mod postgres;
mod recovery;
mod replicas;
mod retention;
mod sqlite;
mod waiting;
