//! The only place that matches on versions of the WIT contract.
//!
//! Each live version has one module with its generated bindings; the rest of the crate speaks protocol types. A broken
//! contract becomes one more module here, and at most two versions live at a time (`wit/README.md`).

pub(crate) mod v0_1;

/// The package whose interfaces are hooks and own capabilities.
pub(crate) const PACKAGE: &str = "annex:extension";

/// Versions of [`PACKAGE`] that this host runs, newest first.
pub(crate) const SUPPORTED: &[&str] = &["0.1.0"];

/// Whether a component built against `version` links here: the same major and minor below 1.0, no newer patch.
pub(crate) fn is_supported(version: &str) -> bool {
    let Some(wanted) = parts(version) else { return false };
    SUPPORTED
        .iter()
        .filter_map(|ours| parts(ours))
        .any(|ours| (ours.0, ours.1) == (wanted.0, wanted.1) && ours.2 >= wanted.2)
}

fn parts(version: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::is_supported;

    #[test]
    fn a_component_links_when_its_contract_is_not_newer_and_not_broken() {
        let expected = [("0.1.0", true), ("0.1.1", false), ("0.2.0", false), ("1.0.0", false), ("draft", false)];
        for (version, supported) in expected {
            assert_eq!(is_supported(version), supported, "{version}");
        }
    }
}
