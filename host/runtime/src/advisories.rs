//! Faults of the WebAssembly engine that are known, and the version of it that is linked.
//!
//! The engine confines what it compiles only as far as its own faults let it. The list is that of the line of releases
//! that Annex is built with (RustSec and GitHub advisories on wasmtime); what is older has all of them.

use std::fmt;

/// The version of wasmtime that is linked. `wasmtime` has no constant for it; its crates are released together.
pub const ENGINE_VERSION: &str = wasmtime_environ::VERSION;

/// An advisory, or several of one day.
#[derive(Debug, PartialEq, Eq)]
pub struct Advisory {
    /// Its name in a database of advisories.
    pub id: &'static str,
    /// The fault, in a few words.
    pub about: &'static str,
    /// The first version of the line that does not have it.
    pub mended: EngineVersion,
}

/// Major, minor and patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EngineVersion(pub u64, pub u64, pub u64);

impl fmt::Display for EngineVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(major, minor, patch) = self;
        write!(formatter, "{major}.{minor}.{patch}")
    }
}

impl EngineVersion {
    /// A text that is no version is older than all, so that it is not taken for a good one.
    fn read(text: &str) -> Self {
        let mut numbers = text.split(['.', '-', '+']).map(|number| number.parse().unwrap_or_default());
        let mut next = || numbers.next().unwrap_or_default();
        Self(next(), next(), next())
    }
}

/// All that is known, the oldest first.
const ADVISORIES: [Advisory; 9] = [
    known("RUSTSEC-2026-0090 (GHSA-hfr4-7c6c-48w2)", "a cloned linker may use freed memory", 43, 0, 1),
    known("RUSTSEC-2026-0096 (GHSA-jhxm-h53p-jm7w)", "guests may leave their memory on aarch64", 43, 0, 1),
    known("RUSTSEC-2026-0222 (GHSA-hgjw-h833-99q9)", "stores may mix up types of two engines", 47, 0, 3),
    known("RUSTSEC-2026-0223 (GHSA-2hw9-mc66-jc2q)", "bulk operations that are stopped may break the engine", 47, 0, 3),
    known("RUSTSEC-2026-0268 (GHSA-x84v-gj2h-g759)", "streams may make the host allocate", 47, 0, 4),
    known("RUSTSEC-2026-0316 (GHSA-jqpg-j7w6-42pr)", "records may allocate beyond the limit", 48, 0, 3),
    known("RUSTSEC-2026-0326 (GHSA-hw8m-q44c-ggrf)", "the collector may free what is used", 48, 0, 4),
    known("RUSTSEC-2026-0327 (GHSA-32h6-97mm-8q3c)", "callbacks may write beyond the native stack", 48, 0, 4),
    known(
        "eight advisories of 16 November 2026",
        "see https://github.com/bytecodealliance/wasmtime/security",
        48,
        0,
        9,
    ),
];

const fn known(id: &'static str, about: &'static str, major: u64, minor: u64, patch: u64) -> Advisory {
    Advisory { id, about, mended: EngineVersion(major, minor, patch) }
}

/// The advisories that the linked engine is subject to.
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

    /// GHSA-jhxm-h53p-jm7w: whoever builds Annex with an engine that is known to be bad hears of it.
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
            ("48.0.8", "16 November"),
            ("not a version", "GHSA-jhxm-h53p-jm7w"),
        ] {
            assert!(ids(version).contains(expected), "{version}: {}", ids(version));
        }
        assert!(!ids("48.0.4").contains("RUSTSEC"), "{}", ids("48.0.4"));
        for version in ["48.0.9", "48.0.10", "48.1.0", "49.0.0"] {
            assert_eq!(ids(version), "", "{version}");
        }
    }

    /// The registry has nothing newer of the line than 48.0.8 (November 2026).
    #[test]
    fn the_engine_that_is_linked_has_no_fault_that_a_release_mends() {
        assert!(EngineVersion::read(ENGINE_VERSION) >= EngineVersion(48, 0, 8), "{ENGINE_VERSION}");
        for advisory in advisories() {
            assert!(advisory.mended > EngineVersion(48, 0, 8), "{advisory:?}");
        }
    }
}
