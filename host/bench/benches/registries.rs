//! Components of registries: the time to verify one signature, the start of a server with 100 locked components from the
//! cache against the same components as files, and the throughput of a pull from a registry on loopback.
//!
//! `host/deploy/registries/check.py --bench` compares the pull with `skopeo copy`.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use annex_registry::{Cache, Client, ClientConfig, Digest, Pulled, Reference, component_layer};
use annex_server::lock::{Lock, LockedComponent};
use annex_test_support::{TestConfig, TestRegistry, TestServer};
use annex_trust::{PrivateKey, TrustConfig, sign};
use anyhow::{Context, ensure};
use serde_json::json;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// No registry has this name (RFC 6761).
const PLACE: &str = "registry.invalid/acme/bench";
const TRUST: &str = "all_of = [{ key = \"acme.pub\" }]";
const VERIFICATIONS: u32 = 1_000;
const EXTENSIONS: usize = 100;
const STARTS: usize = 10;
const PULLS: usize = 10;
/// The size of the pulled component in bytes.
const SIZE: usize = 18_000_000;

fn main() -> anyhow::Result<()> {
    annex_runtime::compile_if_asked();
    if annex_bench::is_wanted("registries") { measure() } else { Ok(()) }
}

#[tokio::main]
async fn measure() -> anyhow::Result<()> {
    verify()?;
    Box::pin(start()).await?;
    Box::pin(pull()).await
}

/// Verifies the signature of one manifest with a policy of one key.
fn verify() -> anyhow::Result<()> {
    let (key, _) = PrivateKey::generate()?;
    let manifest = Digest::of(b"manifest");
    let bundles = [sign(&key, manifest.as_str(), PLACE)?];
    let config: TrustConfig = toml::from_str(TRUST)?;
    let policy = config.policy(|_| Ok(key.public().to_pem().into()))?;
    let mut fastest = Duration::MAX;
    for _ in 0..STARTS {
        let started = Instant::now();
        for _ in 0..VERIFICATIONS {
            policy.verify(PLACE, manifest.as_str(), &bundles)?;
        }
        fastest = fastest.min(started.elapsed());
    }
    let micros = fastest.as_secs_f64() * 1e6 / f64::from(VERIFICATIONS);
    println!("verification of one P-256 signature: {micros:.0} µs");
    Ok(())
}

/// Starts two servers alternately: one whose components are locked and in the cache, and one whose components are files.
async fn start() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let component = fs::read(annex_test_support::component("test-extension"))?;
    let size = component.len();
    let (locked, files) = (folder.path().join("locked"), folder.path().join("files"));
    install_locked(&locked, &component)?;
    install_files(&files, &component)?;
    let (mut with_lock, mut with_files) = (Vec::new(), Vec::new());
    // The first start of each kind fills the cache of compiled components.
    for _ in 0..=STARTS {
        with_lock.push(time_to_start(&locked).await?);
        with_files.push(time_to_start(&files).await?);
    }
    let (with_lock, with_files) = (median(with_lock), median(with_files));
    println!(
        "start with {EXTENSIONS} extensions of {size} bytes: {with_lock:.0} ms locked, {with_files:.0} ms as files, ratio {:.2}",
        with_lock / with_files
    );
    Ok(())
}

async fn time_to_start(folder: &Path) -> anyhow::Result<f64> {
    let started = Instant::now();
    let config = folder.join("annex.toml");
    let mut server = TestServer::from_file_with_caches(&config, None, &folder.join("caches")).await?;
    let millis = started.elapsed().as_secs_f64() * 1e3;
    ensure!(server.installer().installed().iter().count() == EXTENSIONS, "not all extensions are installed");
    server.begin_shutdown();
    server.ended().await?;
    Ok(millis)
}

/// The median of all times but the first one.
fn median(times: Vec<f64>) -> f64 {
    let mut times: Vec<f64> = times.into_iter().skip(1).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Writes a config with [`EXTENSIONS`] references, their lock, their cache and the key that has signed them.
fn install_locked(folder: &Path, component: &[u8]) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let (key, _) = PrivateKey::generate()?;
    fs::write(folder.join("acme.pub"), key.public().to_pem())?;
    let cache = Cache::at(folder.join("caches/registry"));
    let mut lock = Lock::default();
    let mut references = Vec::new();
    for number in 0..EXTENSIONS {
        let reference: Reference = format!("oci://{PLACE}:{number}").parse()?;
        let pulled = pulled(component, number);
        cache.put(&pulled, &[sign(&key, pulled.manifest_digest.as_str(), PLACE)?])?;
        references.push(reference.to_string());
        lock.put(LockedComponent {
            reference,
            manifest: pulled.manifest_digest,
            component: pulled.component_digest,
            size: component.len().try_into()?,
            signers: vec!["acme.pub".to_owned()],
            grants: Vec::new(),
        });
    }
    lock.write(folder)?;
    write_config(folder, &format!("[trust]\n{TRUST}\n"), &references)
}

/// Writes a config with [`EXTENSIONS`] files.
fn install_files(folder: &Path, component: &[u8]) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let mut names = Vec::new();
    for number in 0..EXTENSIONS {
        let name = format!("./e{number}.wasm");
        fs::write(folder.join(&name), component)?;
        names.push(name);
    }
    write_config(folder, "", &names)
}

fn write_config(folder: &Path, trust: &str, components: &[String]) -> anyhow::Result<()> {
    let mut more = trust.to_owned();
    for (number, component) in components.iter().enumerate() {
        // Two that own the same metadata keys are not installed together.
        more.push_str(&format!(
            "[[extension]]\ncomponent = {component:?}\n[extension.parameters]\nuri = \
             \"https://annex.example/many/{number}\"\nowns_keys = false\nbehaviour = {{ respond = \"none\" }}\n"
        ));
    }
    let config = TestConfig::template("i").set("runtime.watch", false).with(&more);
    Ok(fs::write(folder.join("annex.toml"), config.toml())?)
}

/// The component with a manifest of its own.
fn pulled(component: &[u8], number: usize) -> Pulled {
    let component_digest = Digest::of(component);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.wasm.config.v0+json", "digest": Digest::of(b"{}").as_str(), "size": 2},
        "layers": [{
            "mediaType": "application/wasm", "digest": component_digest.as_str(), "size": component.len(),
        }],
        "annotations": {"number": number.to_string()},
    });
    let manifest = manifest.to_string().into_bytes();
    Pulled { manifest_digest: Digest::of(&manifest), manifest, component_digest, component: component.to_vec() }
}

/// Pulls a component of [`SIZE`] bytes. The registry is in this process.
async fn pull() -> anyhow::Result<()> {
    let registry = TestRegistry::start();
    let reference: Reference = registry.reference("acme/large:1").parse()?;
    let mut component = vec![0; SIZE];
    fastrand::Rng::with_seed(1).fill(&mut component);
    Client::new(ClientConfig::default()).push(&reference, component.into(), BTreeMap::new(), &()).await?;
    let mut fastest = Duration::MAX;
    for _ in 0..PULLS {
        // As a command does, each pull opens its connection.
        let client = Client::new(ClientConfig::default());
        let started = Instant::now();
        let pulled = client.pull(&reference, &()).await?;
        fastest = fastest.min(started.elapsed());
        let size = component_layer(&pulled.manifest)?.size;
        ensure!(size == u64::try_from(SIZE).context("a size")?, "another component was pulled");
    }
    let mb_per_second = SIZE as f64 / fastest.as_secs_f64() / 1e6;
    println!("pull of {SIZE} bytes from loopback: {mb_per_second:.0} MB/s");
    Ok(())
}
