//! The admin API's paths for the usage of tenants: one tenant against its quota, and all tenants by cost.

use std::sync::Arc;

use annex_operations::quota::{Amounts, LATELY, MOST_HOURS, TenantQuota};
use annex_operations::request_handler::RequestHandler;
use annex_tenants::Consumption;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;

use super::error::AdminError;
use super::shared::Admin;
use crate::admin_api::usage::{Costliest, CountedIn, Figure, PeriodUsage, TenantUsage, UsedBy};

/// The default and the maximum number of tenants in a list.
const SHOWN: usize = 20;
const MAX_SHOWN: usize = 1_000;

pub(super) fn routes() -> Router<Arc<Admin>> {
    Router::new().route("/v1/tenants/{name}/usage", get(show)).route("/v1/usage", get(costliest))
}

/// The query for the list of tenants by cost.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CostQuery {
    hours: Option<u64>,
    limit: Option<usize>,
}

async fn costliest(
    State(admin): State<Arc<Admin>>,
    Query(listing): Query<CostQuery>,
) -> Result<Json<Costliest>, AdminError> {
    let hours = listing.hours.unwrap_or(LATELY);
    if !(1..=MOST_HOURS).contains(&hours) {
        return Err(AdminError::invalid(format!("`hours` is {hours}; write 1 to {MOST_HOURS}")));
    }
    let limit = listing.limit.unwrap_or(SHOWN).clamp(1, MAX_SHOWN);
    let used = admin.process.quotas.costliest(hours, limit).await.map_err(|error| AdminError::internal(&error))?;
    let tenants = used.into_iter().map(|(tenant, used)| UsedBy { tenant, used: used.into() }).collect();
    Ok(Json(Costliest { hours, tenants }))
}

async fn show(State(admin): State<Arc<Admin>>, Path(name): Path<String>) -> Result<Json<TenantUsage>, AdminError> {
    Ok(Json(admin.tenant_usage(name).await?))
}

impl Admin {
    /// The usage of a tenant, and its quota.
    pub(crate) async fn tenant_usage(&self, name: String) -> Result<TenantUsage, AdminError> {
        let handler = self.handler(&name).await?;
        let no_tenant = || AdminError::new(StatusCode::NOT_FOUND, "no_tenant", "only tenants have quotas");
        let used = handler.used.as_ref().ok_or_else(no_tenant)?;
        let amounts = used.amounts().await.map_err(|error| AdminError::internal(&error))?;
        Ok(usage(name, &handler, used.quota(), amounts))
    }
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
        tasks: everywhere(amounts.tasks, quota.tasks),
        keys: everywhere(amounts.keys, quota.keys),
        tokens_per_day: match quota.tokens_per_day {
            Some(limit) => everywhere(amounts.tokens_per_day, Some(limit)),
            None => here(amounts.tokens_per_day, None),
        },
        last_day: amounts.lately.into(),
    }
}

impl From<Consumption> for PeriodUsage {
    fn from(used: Consumption) -> Self {
        let Consumption { requests, refused, cpu_micros, tokens } = used;
        Self { requests, refused, cpu_ms: cpu_micros.div_ceil(1_000), tokens }
    }
}
