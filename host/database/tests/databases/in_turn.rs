//! Fairness of the connection pool between tenants.

use std::sync::{Arc, Mutex};

use annex_database::{Database, PostgresConnections, PostgresDatabase};
use annex_fairness::of_tenant;
use futures::FutureExt;

use crate::cluster::Scratch;
use crate::places::ENTRIES;

const READ: &str = "SELECT number FROM entry";

#[tokio::test]
async fn a_tenant_waits_for_one_statement_of_another_tenant_that_has_many() {
    let Some(scratch) = Scratch::create().await else { return };
    let connections = PostgresConnections::new(scratch.url(), 1).unwrap();
    let database = PostgresDatabase::open(&connections, ENTRIES).await.unwrap();
    let [loud, quiet] = ["loud", "quiet"].map(Arc::<str>::from);
    // The test holds the only connection until here.
    let held = database.begin().await.unwrap();
    let order = Mutex::new(Vec::new());
    let mut reads: Vec<_> = std::iter::repeat_n(&loud, 20)
        .chain([&quiet])
        .map(|tenant| {
            Box::pin(of_tenant(Arc::clone(tenant), async {
                database.read(READ, &[]).await.unwrap();
                order.lock().unwrap().push(Arc::clone(tenant));
            }))
        })
        .collect();
    for read in &mut reads {
        assert!(read.as_mut().now_or_never().is_none(), "there is one connection");
    }
    PostgresDatabase::commit(held).await.unwrap();
    futures::future::join_all(reads).await;
    let order = order.into_inner().unwrap();
    assert_eq!((order.iter().position(|tenant| *tenant == quiet), order.len()), (Some(1), 21));
    database.close().await;
    scratch.remove().await;
}
