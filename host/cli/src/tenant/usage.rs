//! Text output of the usage of tenants.

use annex_server::admin_api::usage::{self, CountedIn, Figure, PeriodUsage};

use crate::line::Line;

type OfOne = usage::TenantUsage<Line>;
type OfAll = usage::Costliest<Line>;

pub(super) fn of_one(usage: &OfOne) -> String {
    let several = usage.processes > 1;
    let lines: String = usage.figures().into_iter().map(|(name, figure)| line(name, figure, several)).collect();
    let PeriodUsage { requests, refused, cpu_ms, tokens } = usage.last_day;
    let processes = if several { format!(", of {} processes", usage.processes) } else { String::new() };
    format!(
        "{}\n{lines}In the last 24 hours{processes}\n  requests           {requests}, {refused} of them refused\n  CPU ms             \
         {cpu_ms}\n  tokens             {tokens}\n",
        usage.tenant
    )
}

fn line(name: &str, figure: &Figure, several: bool) -> String {
    let limit = figure.limit.map_or_else(|| "no quota".to_owned(), |limit| format!("quota {limit}"));
    let here = if several && figure.counted_in == CountedIn::Process { ", in this process" } else { "" };
    format!("  {name:<18} {}, {limit}{here}\n", figure.used)
}

pub(super) fn of_all(usage: &OfAll) -> String {
    if usage.tenants.is_empty() {
        return format!("no tenant was asked for anything in the last {} hours\n", usage.hours);
    }
    let width = usage.tenants.iter().map(|by| by.tenant.chars().count()).max().unwrap_or(0).max("TENANT".len());
    let head =
        format!("{:<width$}  {:>10}  {:>10}  {:>8}  {:>10}\n", "TENANT", "CPU MS", "REQUESTS", "REFUSED", "TOKENS");
    let lines = usage.tenants.iter().map(|by| {
        let PeriodUsage { requests, refused, cpu_ms, tokens } = by.used;
        format!("{:<width$}  {cpu_ms:>10}  {requests:>10}  {refused:>8}  {tokens:>10}\n", &*by.tenant)
    });
    format!("{head}{}", lines.collect::<String>())
}
