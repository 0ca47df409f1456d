//! A process with many extensions. Measures how long it takes to start, and its memory per extension.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::kind::Kind;
use crate::load::{self, CONNECTIONS};
use crate::memory::mib;
use crate::process::ServerProcess;
use crate::request::Request;

pub(crate) const PART: (&str, fn() -> anyhow::Result<()>) =
    ("1,000 installed extensions, each another component, in one process", measure);

const EXTENSIONS: usize = 1_000;
const REQUESTS: usize = 20_000;

fn measure() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    fill(&folder.path().join("extensions"), 1)?;
    let one = start("1 extension", folder.path())?;
    fill(&folder.path().join("extensions"), EXTENSIONS)?;
    drop(start("1,000 extensions, all but one to be compiled", folder.path())?);
    let many = start("1,000 extensions, from the compile cache", folder.path())?;
    let each = many.resident_bytes()?.saturating_sub(one.resident_bytes()?) / (EXTENSIONS as u64 - 1);
    println!("  {:.1} KiB for each more", each as f64 / 1024.0);
    // Waits until the last extension is active.
    load::round(&many, &Request::json_rpc().activating(uri(EXTENSIONS - 1)), CONNECTIONS, CONNECTIONS)?;
    for (name, server) in [("1", &one), ("1,000", &many)] {
        load::round(server, &Request::json_rpc(), CONNECTIONS, REQUESTS)?;
        let round = load::round(server, &Request::json_rpc(), CONNECTIONS, REQUESTS)?;
        let resident = mib(server.resident_bytes()?);
        println!(
            "  {name:>5} installed, none active: {:.1} µs CPU/request, then {resident:.1} MiB",
            round.cpu_micros()
        );
    }
    Ok(())
}

fn start(title: &str, folder: &Path) -> anyhow::Result<ServerProcess> {
    let started = Instant::now();
    let server = ServerProcess::start_in(Kind::Many, folder)?;
    let seconds = started.elapsed().as_secs_f64();
    println!("  {title}: {seconds:.2} s to start, {:.1} MiB", mib(server.resident_bytes()?));
    Ok(server)
}

/// Writes `count` components into a folder. They have the same code, but different digests and URIs.
pub(crate) fn fill(folder: &Path, count: usize) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let component = fs::read(annex_components::TEST_EXTENSION)?;
    for number in 0..count {
        let mut component = component.clone();
        // A custom section without a name: its length, the length of the name, four digits.
        component.extend([0, 5, 0]);
        component.extend(format!("{number:04}").bytes());
        fs::write(folder.join(format!("e{number:04}.wasm")), component)?;
        // Two that own the same metadata keys are not installed together.
        let settings = format!(
            "[parameters]\nuri = \"{}\"\nowns_keys = false\nbehaviour = {{ respond = \"none\" }}\n",
            uri(number)
        );
        fs::write(folder.join(format!("e{number:04}.toml")), settings)?;
    }
    Ok(())
}

/// The URI of the extension with the number `number`.
pub(crate) fn uri(number: usize) -> String {
    format!("https://annex.example/many/{number}")
}
