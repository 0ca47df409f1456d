//! One contract for all stores of tenants, of their components and of their usage.

// Lets the lints see helper functions, too, as test code.
#![cfg(test)]

/// Runs each case on stores of every kind.
macro_rules! on_every_store {
    ($($case:ident),+ $(,)?) => {
        mod on_memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(annex_tenants::TenantStores::in_memory()).await;
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

#[path = "../../../leases/tests/leases/cluster.rs"]
mod cluster;

mod components;
mod fixture;
mod tenants;
mod usage;
