//! A report for people.

use std::fmt::{self, Write};

use annex_runtime::ManifestSection;
use annex_text::line;

use super::report::{AccessReport, DescriptorReport, Report};
use crate::pretty::pretty;

const NAME_WIDTH: usize = 15;

pub(super) fn of(report: &Report) -> Result<String, fmt::Error> {
    let mut text = String::new();
    row(&mut text, "file", &line(&report.file))?;
    row(&mut text, "digest", &report.digest)?;
    row(&mut text, "size", &format!("{} bytes", report.size))?;
    if let Some(ManifestSection { name, version, grants }) = &report.manifest {
        let grants =
            if grants.is_empty() { String::new() } else { format!(", tried with grants: {}", grants.join(", ")) };
        row(&mut text, "project", &line(&format!("{name} {version}{grants}")))?;
    }
    row(&mut text, "contract", &format!("annex:extension@{}", report.contract))?;
    row(&mut text, "hooks", &listed(&report.hooks))?;
    imports(&mut text, report)?;
    let kept = report.unkeepable.as_ref().map_or("can be".to_owned(), |reason| format!("cannot be: {}", line(reason)));
    row(&mut text, "kept instances", &kept)?;
    if let Some(descriptor) = &report.descriptor {
        describe(&mut text, descriptor)?;
    }
    if let Some(problem) = &report.problem {
        // A table for the config is there when the parameters were what was wrong.
        let outcome = if report.config.is_some() {
            "It was refused with these parameters (--settings FILE gives others), so it could not say what it is"
        } else {
            "This host refuses it"
        };
        writeln!(text, "\n{outcome}:\n  {}", line(problem))?;
    }
    if let Some(schema) = &report.parameter_schema {
        text.push('\n');
        row(&mut text, "parameters", &pretty(schema))?;
    }
    if let Some(config) = &report.config {
        writeln!(text, "\nFor the config:\n\n{}", config.trim_end())?;
    }
    Ok(text)
}

/// Lines after the first one of the value stand below it.
fn row(text: &mut String, name: &str, value: &str) -> fmt::Result {
    let value = value.replace('\n', &format!("\n{:NAME_WIDTH$}", ""));
    writeln!(text, "{name:NAME_WIDTH$}{value}")
}

fn imports(text: &mut String, report: &Report) -> fmt::Result {
    if report.imports.is_empty() {
        row(text, "imports", "none")?;
    }
    let width = report.imports.iter().map(|import| import.name.len()).max().unwrap_or(0);
    for (index, import) in report.imports.iter().enumerate() {
        let access = match &import.access {
            AccessReport::Free => "free".to_owned(),
            AccessReport::Needs { grant } => format!("needs {grant}"),
            AccessReport::Unknown => "not offered by this host".to_owned(),
        };
        let name = if index == 0 { "imports" } else { "" };
        // The author of a component chooses the names of its imports, so they may be made to steer a terminal.
        row(text, name, &format!("{:width$}  {access}", line(&import.name)))?;
    }
    Ok(())
}

fn describe(text: &mut String, descriptor: &DescriptorReport) -> fmt::Result {
    text.push('\n');
    row(text, "uri", descriptor.uri.as_str())?;
    row(text, "name", &line(&descriptor.name))?;
    row(text, "version", &line(&descriptor.version))?;
    row(text, "description", &line(&descriptor.description))?;
    let keys: Vec<_> = descriptor.metadata_keys.iter().map(|key| line(key)).collect();
    row(text, "metadata keys", &if keys.is_empty() { "none".to_owned() } else { keys.join("\n") })?;
    row(text, "depends on", &listed(&descriptor.depends_on))?;
    if !descriptor.methods.is_empty() {
        let methods = descriptor.methods.iter().map(|method| format!("{}  {}", method.name, method.description));
        row(text, "methods", &methods.collect::<Vec<_>>().join("\n"))?;
    }
    let form = if descriptor.payload && !descriptor.events.is_empty() { ", as JSON" } else { "" };
    row(text, "events", &format!("{}{form}", listed(&descriptor.events)))?;
    match &descriptor.parameter_schema {
        Some(schema) => row(text, "parameters", &pretty(schema)),
        None => row(text, "parameters", "any"),
    }
}

fn listed(items: &[impl AsRef<str>]) -> String {
    let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}
