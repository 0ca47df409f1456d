//! The contract of every session store, through the public interface.

// Lets the lints see helper functions, too, as test code.
#![cfg(test)]

/// Runs each case on a store of every kind.
macro_rules! on_every_store {
    ($($case:ident),+ $(,)?) => {
        mod on_memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::support::on_memory(super::$case).await;
            })+
        }

        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::support::on_sqlite(super::$case).await;
            })+
        }

        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::support::on_postgres(super::$case).await;
            })+
        }
    };
}

/// Runs each case about turns on every store, and in a process that shares its database with others.
macro_rules! in_every_turn {
    ($($case:ident),+ $(,)?) => {
        on_every_store!($($case),+);

        mod among_others {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::support::among_others(super::$case).await;
            })+
        }
    };
}

/// Runs each case on every store whose sessions outlive the service.
macro_rules! on_every_database {
    ($($case:ident),+ $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::support::on_sqlite(super::$case).await;
            })+
        }

        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::support::on_postgres(super::$case).await;
            })+
        }
    };
}

#[path = "../../../leases/tests/leases/cluster.rs"]
mod cluster;
#[path = "../../../leases/tests/leases/table.rs"]
mod table;

mod artifacts;
mod beginnings;
mod bounds;
mod cases;
mod concurrency;
mod databases;
mod events;
mod limits;
mod queues;
mod races;
mod removal;
mod scopes;
mod support;
mod turns;
