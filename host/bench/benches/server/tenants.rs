//! Measures the latencies of a quiet tenant next to a loud one. The loud tenant sends requests in a loop up to its
//! quota.
//!
//! The loop has many connections. After a refusal a connection waits for a moment, which is shorter than the server's
//! `Retry-After`. The latencies are measured with and without the loop, alternately, on the same server. Only the ratio
//! of both matters.

use std::time::Duration;
use std::{env, fs};

use tokio_util::sync::CancellationToken;
use toml::{Table, Value};

use crate::http1;
use crate::kind::{Kind, SPECIALIST};
use crate::neighbours::{Percentiles, latencies};
use crate::process::{ServerProcess, Setup};
use crate::request::Request;

type Part = fn() -> anyhow::Result<()>;

pub(crate) const PARTS: [(&str, Part); 2] = [
    ("a quiet tenant beside one that loops at its quota of CPU time, state of 1 KiB injected", cpu),
    ("a quiet tenant beside one that loops at its quota of turns, four connections to PostgreSQL", turns),
];

const ROUNDS: usize = 5;
const REQUESTS: usize = 4_000;
/// The number of connections that the loop uses.
const LOOP: usize = 50;
/// The time for which a connection of the loop waits after a refusal.
const PAUSE: Duration = Duration::from_millis(20);
/// The iterations of the loop in a hook. They take some milliseconds.
const HOOK_ROUNDS: u64 = 20_000_000;

fn cpu() -> anyhow::Result<()> {
    let noise = Request::looping(HOOK_ROUNDS).of_tenant("loud").http1();
    let quiet = Request::injecting(1 << 10).of_tenant("quiet").http1();
    measure("[tenant.quota]\ncpu_ms_per_second = 250\n", "", &noise, &quiet)
}

fn turns() -> anyhow::Result<()> {
    if env::var_os("ANNEX_TEST_POSTGRES_URL").is_none() {
        println!("  skipped: ANNEX_TEST_POSTGRES_URL names no database");
        return Ok(());
    }
    let database = "[tasks]\npostgres_env = \"ANNEX_TEST_POSTGRES_URL\"\n[postgres]\nmax_connections = 4\n";
    let of = |tenant| Request::json_rpc().of_tenant(tenant).http1();
    measure("[tenant.quota]\nturns = 40\n", database, &of("loud"), &of("quiet"))
}

/// Measures the quiet tenant. `quota` is the TOML of the loud tenant's quota, and `settings` that of additional tables
/// of the config.
fn measure(quota: &str, settings: &str, noise: &str, quiet: &str) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("loud.toml"), tenant(annex_components::TEST_EXTENSION)?)?;
    fs::write(folder.path().join("quiet.toml"), tenant(annex_components::STATE_INJECTION)?)?;
    let tenants = format!(
        "{settings}[[tenant]]\nname = \"loud\"\nconfig = \"loud.toml\"\n{quota}[[tenant]]\nname = \"quiet\"\nconfig = \
         \"quiet.toml\"\n"
    );
    let setup = Setup { settings: &tenants, ..Setup::new(Kind::Bare) };
    let server = ServerProcess::start_with_files(&setup, folder)?;
    compare(server.address(), noise, quiet)
}

/// The config of a tenant: the specialist, with `component` as its only extension, which is not required.
fn tenant(component: &str) -> anyhow::Result<String> {
    let specialist = SPECIALIST.replace("{user_info}", "{user_info?}");
    let mut tables: Table = specialist.parse()?;
    tables.retain(|name, _| matches!(name, "card" | "agent" | "extension"));
    if let Some(Value::Array(extensions)) = tables.get_mut("extension") {
        extensions.truncate(1);
        for extension in extensions.iter_mut().filter_map(Value::as_table_mut) {
            // Its settings are those of state injection.
            if component != annex_components::STATE_INJECTION {
                extension.clear();
            }
            extension.insert("component".to_owned(), component.into());
            extension.insert("required".to_owned(), false.into());
        }
    }
    Ok(toml::to_string(&tables)?)
}

#[tokio::main(flavor = "current_thread")]
async fn compare(address: &str, noise: &str, quiet: &str) -> anyhow::Result<()> {
    latencies(address, quiet, REQUESTS).await?;
    let mut alone = Vec::new();
    let mut beside = Vec::new();
    let mut counts = [0, 0];
    for _ in 0..ROUNDS {
        alone.extend(latencies(address, quiet, REQUESTS).await?);
        let stop = CancellationToken::new();
        let loops = futures::future::try_join_all((0..LOOP).map(|_| ask_on(address, noise, &stop)));
        let quiet = async {
            let measured = latencies(address, quiet, REQUESTS).await;
            stop.cancel();
            measured
        };
        let (measured, looped) = futures::future::try_join(quiet, loops).await?;
        beside.extend(measured);
        for [taken, refused] in looped {
            counts[0] += taken;
            counts[1] += refused;
        }
    }
    let [taken, refused] = counts;
    anyhow::ensure!(taken > 0 && refused > 0, "the loop was not at its limit: {taken} taken, {refused} refused");
    let alone = Percentiles::of(alone);
    let beside = Percentiles::of(beside);
    alone.print("alone");
    beside.print("beside a loop");
    println!(
        "  of the loop {taken} were taken and {refused} refused; ratio of the 99th: {:.2}",
        beside.p99 / alone.p99
    );
    Ok(())
}

/// Sends the request in a loop until `stop` fires. Returns the number of answers and the number of refusals.
async fn ask_on(address: &str, request: &str, stop: &CancellationToken) -> anyhow::Result<[usize; 2]> {
    let mut stream = http1::connect(address).await?;
    let mut buffer = Vec::new();
    let mut counts = [0, 0];
    while !stop.is_cancelled() {
        let answer = http1::ask(&mut stream, request, false, &mut buffer).await?;
        let is_refused = answer.starts_with(b"HTTP/1.1 429");
        if is_refused {
            counts[1] += 1;
            tokio::time::sleep(PAUSE).await;
        } else {
            http1::ensure_completed(answer)?;
            counts[0] += 1;
        }
    }
    Ok(counts)
}
