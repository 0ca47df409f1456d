//! Known vulnerabilities of the WebAssembly engine, compared with the linked version.
//!
//! The isolation of guests depends on the engine. The list has the advisories (RustSec and GitHub) for the release
//! line of wasmtime that Annex is built with. Older versions are subject to all of them.

use std::fmt;

/// The linked version of wasmtime. wasmtime has no constant for its version; its crates are released together.
pub const ENGINE_VERSION: &str = wasmtime_environ::VERSION;

/// A security advisory on wasmtime.
#[derive(Debug, PartialEq, Eq)]
pub struct Advisory {
    /// Identifier in the advisory database, such as `RUSTSEC-2026-0090`.
    pub id: &'static str,
    /// The fault in a few words.
    pub about: &'static str,
    /// First version of the release line with a fix.
    pub mended: EngineVersion,
    /// Why guests cannot reach the fault in this program. `None` if they can.
    pub kept_off: Option<&'static str>,
}

/// Major, minor and patch number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EngineVersion(pub u64, pub u64, pub u64);

impl fmt::Display for EngineVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(major, minor, patch) = self;
        write!(formatter, "{major}.{minor}.{patch}")
    }
}

impl EngineVersion {
    /// Parses a version. Text that is not a version counts as version 0.0.0, so that no advisory is taken for fixed.
    fn read(text: &str) -> Self {
        let mut numbers = text.split(['.', '-', '+']).map(|number| number.parse().unwrap_or_default());
        let mut next = || numbers.next().unwrap_or_default();
        Self(next(), next(), next())
    }
}

/// All known advisories, oldest first. Guests cannot reach some faults because of settings in
/// `confinement/engine.rs`, enabled engine features, and engine APIs that this crate does not use.
const ADVISORIES: [Advisory; 16] = [
    known("RUSTSEC-2026-0090 (GHSA-hfr4-7c6c-48w2)", "a cloned linker may use freed memory", [43, 0, 1]),
    known("RUSTSEC-2026-0096 (GHSA-jhxm-h53p-jm7w)", "guests may leave their memory on aarch64", [43, 0, 1]),
    known("RUSTSEC-2026-0222 (GHSA-hgjw-h833-99q9)", "stores may mix up types of two engines", [47, 0, 3]),
    known(
        "RUSTSEC-2026-0223 (GHSA-2hw9-mc66-jc2q)",
        "bulk operations that are stopped may break the engine",
        [47, 0, 3],
    ),
    known("RUSTSEC-2026-0268 (GHSA-x84v-gj2h-g759)", "streams may make the host allocate", [47, 0, 4]),
    known("RUSTSEC-2026-0316 (GHSA-jqpg-j7w6-42pr)", "records may allocate beyond the limit", [48, 0, 3]),
    known("RUSTSEC-2026-0326 (GHSA-hw8m-q44c-ggrf)", "the collector may free what is used", [48, 0, 4]),
    known("RUSTSEC-2026-0327 (GHSA-32h6-97mm-8q3c)", "callbacks may write beyond the native stack", [48, 0, 4]),
    kept_off(
        "GHSA-5m8g-xhq4-4h93",
        "empty writes to an output stream may grow the host's memory",
        "the output of guests goes to a stream of Annex's own, which takes lines into a buffer that is bounded",
    ),
    kept_off(
        "GHSA-f8mm-ggr3-89wh",
        "empty writes to the body of an HTTP/2 request may grow the host's memory",
        "a body is collected as a whole, without its empty pieces, before anything is sent",
    ),
    kept_off("GHSA-43j2-gcp4-m22g", "the garbage collector may use a stale base of its heap", NO_COLLECTOR),
    kept_off("GHSA-wvgq-g5hf-6gm6", "the heap of the garbage collector may outgrow its reservation", NO_COLLECTOR),
    kept_off(
        "GHSA-xrvr-8678-5wp8",
        "cancelling the copy of a stream or a future may break the engine",
        "streams and futures of components are off, and components that use them are refused",
    ),
    kept_off(
        "GHSA-hj27-mpw9-ff4c",
        "an export that is looked up outside of a call may be another's",
        "the function is for core modules, and extensions are components",
    ),
    kept_off("GHSA-rc4p-x33f-vpr2", "an engine that is built without `gc` may abort", "the engine is built with `gc`"),
    kept_off(
        "GHSA-2674-w29h-wqvj",
        "an engine that is built without `threads` may abort",
        "the engine is built with `threads`",
    ),
];

const NO_COLLECTOR: &str = "garbage collection is off for guests, and components that need it are refused";

const fn known(id: &'static str, about: &'static str, [major, minor, patch]: [u64; 3]) -> Advisory {
    Advisory { id, about, mended: EngineVersion(major, minor, patch), kept_off: None }
}

/// An advisory of 16 November 2026, fixed in 48.0.9.
const fn kept_off(id: &'static str, about: &'static str, reason: &'static str) -> Advisory {
    Advisory { id, about, mended: EngineVersion(48, 0, 9), kept_off: Some(reason) }
}

/// Advisories that apply to the linked engine.
#[must_use]
pub fn advisories() -> Vec<&'static Advisory> {
    on(ENGINE_VERSION)
}

fn on(version: &str) -> Vec<&'static Advisory> {
    let version = EngineVersion::read(version);
    ADVISORIES.iter().filter(|advisory| version < advisory.mended).collect()
}

#[cfg(test)]
mod tests {
    use super::{ENGINE_VERSION, EngineVersion, advisories, on};

    /// GHSA-jhxm-h53p-jm7w: building Annex with a vulnerable engine produces a warning.
    #[test]
    fn a_version_that_is_known_to_be_bad_is_named_with_what_is_wrong() {
        let ids = |version| on(version).into_iter().map(|advisory| advisory.id).collect::<Vec<_>>().join(", ");
        for (version, expected) in [
            ("36.0.6", "GHSA-jhxm-h53p-jm7w"),
            ("43.0.0", "GHSA-hfr4-7c6c-48w2"),
            ("47.0.2", "GHSA-hgjw-h833-99q9"),
            ("47.0.3", "GHSA-x84v-gj2h-g759"),
            ("48.0.0-rc.1", "RUSTSEC-2026-0316"),
            ("48.0.3", "RUSTSEC-2026-0327"),
            ("48.0.8", "GHSA-f8mm-ggr3-89wh"),
            ("not a version", "GHSA-jhxm-h53p-jm7w"),
        ] {
            assert!(ids(version).contains(expected), "{version}: {}", ids(version));
        }
        assert!(!ids("48.0.4").contains("RUSTSEC"), "{}", ids("48.0.4"));
        for version in ["48.0.9", "48.0.10", "48.1.0", "49.0.0"] {
            assert_eq!(ids(version), "", "{version}");
        }
    }

    /// Each reason why guests cannot reach a fault is a fact about this crate or its dependencies.
    #[test]
    fn what_keeps_guests_off_a_fault_of_the_engine_is_so() {
        let settings = include_str!("confinement/engine.rs");
        assert!(settings.contains(".concurrency_support(false)"));
        let (_, refused) = settings.split_once(".wasm_features(").expect("the proposals that are off");
        let (refused, _) = refused.split_once("false,\n").expect("they are off");
        assert!(refused.contains("WasmFeatures::GC\n"), "{refused}");
        let manifest = include_str!("../../../Cargo.toml");
        let (_, wasmtime) = manifest.split_once("\nwasmtime = ").expect("the engine");
        let (features, _) = wasmtime.split_once("] }").expect("its features");
        assert!(features.contains("\"gc\"") && features.contains("\"threads\""), "{features}");
        assert!(include_str!("confinement/http_sender.rs").contains(".collect().await"));
        assert!(include_str!("confinement/imports/stdio.rs").contains("impl OutputStream for LogStream"));
    }

    /// The newest version of the release line in the registry was 48.0.8 in November 2026.
    #[test]
    fn the_engine_that_is_linked_has_no_fault_that_a_release_mends() {
        assert!(EngineVersion::read(ENGINE_VERSION) >= EngineVersion(48, 0, 8), "{ENGINE_VERSION}");
        for advisory in advisories() {
            assert!(advisory.mended > EngineVersion(48, 0, 8), "{advisory:?}");
        }
    }
}
