//! What is installed, in the text format of Prometheus.

use std::fmt::{self, Write};

use crate::installer::Installer;

/// The metrics as they are now.
pub(super) fn text(installer: &Installer, running_turns: usize) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut text, installer, running_turns);
    text
}

fn write(text: &mut String, installer: &Installer, running_turns: usize) -> fmt::Result {
    let versions = installer.versions();
    let gauges = [
        ("annex_edition", "The number of the edition in force.", installer.editions().current().number),
        ("annex_extensions_installed", "Extensions that are installed.", count(versions.len())),
        ("annex_extension_failures", "Sources whose last load failed.", count(installer.failures().len())),
        ("annex_pinned_tasks", "Waiting tasks that have pinned versions.", count(installer.pins().tasks())),
        ("annex_turns_running", "Turns that run.", count(running_turns)),
    ];
    for (name, help, value) in gauges {
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}")?;
    }
    let name = "annex_extension_info";
    writeln!(text, "# HELP {name} The version in force of each extension.\n# TYPE {name} gauge")?;
    for version in versions {
        let (uri, digest) = (label(version.uri().as_str()), version.extension.digest());
        writeln!(text, "{name}{{extension=\"{uri}\",digest=\"{digest}\",version=\"{}\"}} 1", version.number)?;
    }
    Ok(())
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
