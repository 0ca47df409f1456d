//! The trait, the migrations and the writer, on real SQLite and PostgreSQL databases.

#![cfg(test)]

/// Runs each case on an empty SQLite file and on an empty PostgreSQL schema, if a server is available.
macro_rules! on_both {
    ($($case:ident,)+) => {
        mod on_sqlite {
            $(#[tokio::test]
            async fn $case() {
                super::$case(&crate::places::Folder::create()).await;
            })+
        }

        mod on_postgres {
            $(#[tokio::test]
            async fn $case() {
                let Some(scratch) = crate::cluster::Scratch::create().await else { return };
                let case = std::panic::AssertUnwindSafe(super::$case(&scratch));
                let outcome = futures::FutureExt::catch_unwind(case).await;
                scratch.remove().await;
                if let Err(panic) = outcome {
                    std::panic::resume_unwind(panic);
                }
            })+
        }
    };
}

#[path = "../../../leases/tests/leases/cluster.rs"]
mod cluster;

mod in_turn;
mod migrations;
mod places;
mod silent;
mod sqlite;
mod transactions;
mod writer;
