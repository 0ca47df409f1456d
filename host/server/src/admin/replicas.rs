//! The admin API's path for the processes that share one database.

use std::sync::Arc;

use annex_leases::ListedReplica;
use annex_protocol::Timestamp;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};

use super::error::AdminError;
use super::shared::Admin;
use crate::admin_api::replicas::{List, Replica};

/// What the list says about this process if there is no shared database.
pub(crate) struct ThisProcess {
    pub(crate) since: Timestamp,
    /// The address at which clients reach the process.
    pub(crate) address: String,
}

pub(super) fn routes() -> Router<Arc<Admin>> {
    Router::new().route("/v1/replicas", get(list))
}

async fn list(State(admin): State<Arc<Admin>>) -> Result<Json<List>, AdminError> {
    let Some(peers) = &admin.peers else {
        return Ok(Json(List { replicas: vec![alone(&admin)] }));
    };
    let lease = peers.editions.lease();
    let own = lease.replica();
    let listed = lease.replicas().await.map_err(|error| {
        tracing::warn!(%error, "the replicas cannot be listed");
        AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "database", "the database does not answer")
    })?;
    Ok(Json(List { replicas: listed.into_iter().map(|replica| shown(replica, own.id())).collect() }))
}

fn alone(admin: &Admin) -> Replica {
    let ThisProcess { since, address } = &admin.this_process;
    let phase = if admin.process.running.is_closed() { "draining" } else { "ready" };
    Replica {
        id: None,
        name: None,
        answers: true,
        since: Some(since.to_string()),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        address: Some(address.clone()),
        phase: Some(phase.to_owned()),
        lease_left_ms: None,
    }
}

fn shown(replica: ListedReplica, own: &str) -> Replica {
    let ListedReplica { id, name, since, description, lease_left } = replica;
    let (version, address, phase) = match description {
        Some(description) => (Some(description.version), Some(description.address), Some(description.phase)),
        None => (None, None, None),
    };
    Replica {
        answers: id == own,
        id: Some(id),
        name,
        since: Some(Timestamp::from_millis(since).to_string()),
        version,
        address,
        phase,
        lease_left_ms: Some(lease_left),
    }
}
