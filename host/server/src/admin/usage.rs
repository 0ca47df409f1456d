//! The admin API's path for what a tenant has used of its quota.

use std::sync::Arc;

use annex_operations::quota::{Amounts, TenantQuota};
use annex_operations::request_handler::RequestHandler;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};

use super::error::AdminError;
use super::shared::Admin;
use crate::admin_api::usage::{CountedIn, Figure, TenantUsage};

pub(super) fn routes() -> Router<Arc<Admin>> {
    Router::new().route("/v1/tenants/{name}/usage", get(show))
}

async fn show(State(admin): State<Arc<Admin>>, Path(name): Path<String>) -> Result<Json<TenantUsage>, AdminError> {
    let handler = admin.handler(&name).await?;
    let no_tenant = || AdminError::new(StatusCode::NOT_FOUND, "no_tenant", "only tenants have quotas");
    let used = handler.used.as_ref().ok_or_else(no_tenant)?;
    let amounts = used.amounts().await.map_err(|error| AdminError::internal(&error))?;
    Ok(Json(usage(name, &handler, used.quota(), amounts)))
}

fn usage(tenant: String, handler: &RequestHandler, quota: &TenantQuota, amounts: Amounts) -> TenantUsage {
    let here = |used, limit| Figure { used, limit, counted_in: CountedIn::Process };
    let everywhere = |used, limit| Figure { used, limit, counted_in: CountedIn::All };
    let turns = quota.turns.map(|turns| turns as u64);
    TenantUsage {
        tenant,
        processes: amounts.processes,
        requests_per_second: here(amounts.requests_per_second, quota.requests_per_second),
        cpu_ms_per_second: here(amounts.cpu_ms_per_second, quota.cpu_ms_per_second),
        turns: match amounts.turns_of_all {
            Some(running) => everywhere(running, turns),
            None => everywhere(handler.turn_limiter.running() as u64, turns),
        },
        sessions: everywhere(amounts.sessions, quota.sessions),
        state_bytes: everywhere(amounts.state_bytes, quota.state_bytes),
        tasks: everywhere(amounts.tasks, Some(amounts.keep_tasks)),
        keys: everywhere(amounts.keys, quota.keys),
        tokens_per_day: match quota.tokens_per_day {
            Some(limit) => everywhere(amounts.tokens_per_day, Some(limit)),
            None => here(amounts.tokens_per_day, None),
        },
        refused: here(amounts.refused, None),
    }
}
