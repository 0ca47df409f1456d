//! The peers that a server needs: databases and upstream agents. Their clocks are compared with the clock of this
//! machine.

use std::collections::BTreeMap;
use std::env;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use annex_auth::{Fallback, Grant};
use annex_client::{Client, ClientConfig};
use annex_database::{Migrations, PostgresState};
use annex_telemetry::fault;
use annex_upstream::{UpstreamAgent, UpstreamConfig};
use futures::{StreamExt, stream};

use super::finding::Finding;
use crate::config::served::ServedConfig;
use crate::config::{AgentConfig, Config};
use crate::locations::Locations;
use crate::stores::postgres::PostgresDatabases;

/// The maximum number of upstream agents that are checked at the same time.
const AT_ONCE: usize = 8;
/// Time limit for an upstream agent to answer with its card.
const PATIENCE: Duration = Duration::from_secs(3);
/// The largest difference between two clocks without a warning. Dates in HTTP have whole seconds.
const DIFFERENCE: Duration = Duration::from_secs(5);
/// 1 January 2026. A machine that has never set its clock starts long before this date.
const EARLIEST: Duration = Duration::from_secs(1_767_225_600);

pub(super) async fn examine(config: &Config, locations: &Locations) -> Vec<Finding> {
    let mut findings = vec![own_clock()];
    findings.extend(databases(config).await);
    findings.extend(agents(config, locations).await);
    findings
}

fn own_clock() -> Finding {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    if now < EARLIEST {
        return Finding::error(
            "clock",
            "the clock of this machine is years behind; tokens and certificates are refused; set it",
        );
    }
    let now = jiff::Timestamp::try_from(SystemTime::now()).map(|now| now.strftime("%Y-%m-%d %H:%M:%S UTC").to_string());
    Finding::fine("clock", format!("{} on this machine", now.unwrap_or_default()))
}

/// Compares the clock of `whose` with this machine's clock. Returns a warning if they differ by more than
/// [`DIFFERENCE`]. `theirs` is the time of the other clock. `between` is the longest time that may have passed since
/// that clock was read.
fn difference(whose: &str, theirs: SystemTime, between: Duration) -> Option<Finding> {
    let ours = SystemTime::now();
    let apart = ours.duration_since(theirs).unwrap_or_else(|behind| behind.duration()).saturating_sub(between);
    let text = format!("the clock of {whose} and that of this machine are {} s apart", apart.as_secs());
    (apart > DIFFERENCE).then(|| Finding::warning("clock", format!("{text}; let both follow a time server")))
}

async fn databases(config: &Config) -> Vec<Finding> {
    let kept = [
        ("tasks.postgres_env", &config.tasks.postgres_env, annex_conversation::POSTGRES_MIGRATIONS),
        ("tasks.postgres_env", &config.tasks.postgres_env, annex_leases::MIGRATIONS),
        ("tasks.postgres_env", &config.tasks.postgres_env, annex_tenants::POSTGRES_MIGRATIONS),
        // Keys without a store of their own are stored with the tasks.
        (
            "keyvalue.postgres_env",
            beside(&config.keyvalue.postgres_env, &config.keyvalue.data_dir, config),
            annex_keyvalue::POSTGRES_MIGRATIONS,
        ),
        ("postgres.listen_env", &config.postgres.listen_env, Migrations { table: "", files: &[] }),
    ];
    let mut by_url: BTreeMap<String, (&'static str, Vec<Migrations>)> = BTreeMap::new();
    for (key, variable, migrations) in kept {
        // `app::check` reports a variable that is not set.
        let Some(url) = variable.as_ref().and_then(|name| env::var(name).ok()) else { continue };
        let (_, all) = by_url.entry(url).or_insert_with(|| (key, Vec::new()));
        if !migrations.table.is_empty() {
            all.push(migrations);
        }
    }
    let databases = PostgresDatabases::new(&config.postgres);
    let mut findings = Vec::new();
    for (url, (key, migrations)) in by_url {
        let Ok(connections) = databases.at(&url) else { continue };
        match connections.state(&migrations).await {
            Err(error) => {
                let text = format!(
                    "{key}: {}; check the URL in the environment variable and that the database runs",
                    fault::text(&error)
                );
                findings.push(Finding::error("database", text));
            }
            Ok(state) => findings.extend(database(key, &state, &migrations, config)),
        }
    }
    findings
}

fn beside<'a>(own: &'a Option<String>, folder: &Option<std::path::PathBuf>, config: &'a Config) -> &'a Option<String> {
    if own.is_some() || folder.is_some() { own } else { &config.tasks.postgres_env }
}

fn database(key: &str, state: &PostgresState, migrations: &[Migrations], config: &Config) -> Vec<Finding> {
    let PostgresState { version, now, max_connections, connections, applied } = state;
    let mut findings = vec![Finding::fine("database", format!("{key}: PostgreSQL {version} answers"))];
    findings.extend(difference("the database", *now, Duration::ZERO));
    let wanted = i64::from(config.postgres.max_connections);
    let free = max_connections.saturating_sub(*connections);
    if free < wanted {
        let text = format!(
            "{key}: the database takes {max_connections} connections and has {connections}, and this process may open \
             {wanted} (postgres.max_connections); lower one or raise the other"
        );
        findings.push(Finding::warning("database", text));
    }
    for (migrations, applied) in migrations.iter().zip(applied) {
        let (table, known) = (migrations.table, migrations.latest());
        findings.push(match applied {
            None => Finding::fine("database", format!("{key}: the tables of {table} will be made at the start")),
            Some(found) if *found > known.saturating_add(1) => Finding::error(
                "database",
                format!("{key}: {table} is at {found}, and this program knows {known}; start a later release"),
            ),
            Some(found) if *found > known => Finding::warning(
                "database",
                format!(
                    "{key}: {table} is at {found}, one after this program's {known}: a later release works on it too"
                ),
            ),
            Some(found) if *found < known => Finding::fine(
                "database",
                format!("{key}: {table} is at {found} and will be brought to {known} at the start"),
            ),
            Some(found) => Finding::fine("database", format!("{key}: {table} is at {found}, as this program has it")),
        });
    }
    findings
}

/// Checks the upstream agents of the config and of its tenants.
async fn agents(config: &Config, locations: &Locations) -> Vec<Finding> {
    let process = Arc::new(config.clone());
    let own = config.agent.iter().cloned();
    let own = own.map(|agent| ("[agent]".to_owned(), agent, locations.config.clone()));
    let of_tenants = config.tenants.iter().filter_map(|tenant| {
        let served = ServedConfig::of_tenant(tenant, &process, &locations.config).ok()?;
        let path = locations.config.join(&tenant.config);
        let folder = path.parent().unwrap_or(&locations.config).to_owned();
        Some((format!("tenant {}", tenant.name), served.agent().ok()?.clone(), folder))
    });
    let elsewhere = own.chain(of_tenants).filter_map(|(whose, agent, folder)| match agent {
        AgentConfig::Upstream { upstream, .. } => Some((whose, upstream.located(&folder))),
        AgentConfig::Template(_) | AgentConfig::Script { .. } => None,
    });
    let asked: Vec<_> = elsewhere.collect();
    stream::iter(asked)
        .map(|(whose, upstream)| agent(whose, upstream))
        .buffered(AT_ONCE)
        .collect::<Vec<_>>()
        .await
        .concat()
}

async fn agent(whose: String, upstream: UpstreamConfig) -> Vec<Finding> {
    let card = upstream.card.clone();
    let mut findings = token_endpoint(&whose, &upstream).await;
    let config = UpstreamConfig { start: upstream.start.min(PATIENCE), ..upstream };
    if let Err(error) = UpstreamAgent::connect(config).await {
        findings.push(Finding::error("agent", format!("{whose}: {}", fault::text(&error))));
        return findings;
    }
    findings.push(Finding::fine("agent", format!("{whose}: the card at {card} can be used")));
    let config = ClientConfig { card_timeout: PATIENCE, ..ClientConfig::default() };
    if let Ok(client) = Client::new(config)
        && let Ok(document) = client.card(&card).await
        && let Some(date) = document.date
    {
        // A date in HTTP has whole seconds, so it may be up to one second old.
        findings.extend(difference(&format!("the agent at {card}"), date, Duration::from_secs(1)));
    }
    findings
}

/// Tries each grant that the agent needs at its token endpoint. No findings without `[agent.oauth]`.
async fn token_endpoint(whose: &str, upstream: &UpstreamConfig) -> Vec<Finding> {
    // The connection to the agent reports settings that cannot be used.
    let Ok(Some(tokens)) = upstream.token_source() else { return Vec::new() };
    let oauth = tokens.config();
    let fallback = oauth.fallback.map(|Fallback::ClientCredentials| Grant::ClientCredentials);
    let mut findings = Vec::new();
    for grant in [oauth.grant].into_iter().chain(fallback) {
        let found = match (tokens.probe(grant).await, grant) {
            (Err(error), _) => Finding::error(
                "agent",
                format!(
                    "{whose}: {}; check [agent.oauth] and the client at the authorization server",
                    fault::text(&error)
                ),
            ),
            (Ok(()), Grant::ClientCredentials) => {
                Finding::fine("agent", format!("{whose}: the token endpoint gives a token for client credentials"))
            }
            (Ok(()), Grant::TokenExchange) => Finding::fine(
                "agent",
                format!(
                    "{whose}: the token endpoint accepts this client; a token of a caller is needed to try an exchange"
                ),
            ),
        };
        findings.push(found);
    }
    findings
}
