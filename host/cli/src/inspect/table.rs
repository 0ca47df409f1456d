//! The report of an inspection as text.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use annex_runtime::{ManifestGrants, ManifestSection};
use annex_text::line;

use super::report::{AccessReport, DescriptorReport, Report};
use crate::output;
use crate::pretty::pretty;
use crate::registry::origin::Origin;

const NAME_WIDTH: usize = 15;
/// The indent, in columns, of the second and later lines of a row that has no name.
const INDENT: usize = 2;

pub(super) fn of(report: &Report) -> Result<String, fmt::Error> {
    let mut text = String::new();
    match &report.origin {
        Some(origin) => describe_origin(&mut text, origin)?,
        None => row(&mut text, "file", &line(&report.file))?,
    }
    row(&mut text, "digest", &report.digest)?;
    row(&mut text, "size", &format!("{} bytes", report.size))?;
    if let Some(manifest) = &report.manifest {
        project(&mut text, manifest)?;
    }
    row(&mut text, "contract", &format!("annex:extension@{}", report.contract))?;
    row(&mut text, "hooks", &listed(&report.hooks))?;
    imports(&mut text, report)?;
    let kept = report.unkeepable.as_ref().map_or("can be".to_owned(), |reason| format!("cannot be: {}", line(reason)));
    row(&mut text, "kept instances", &kept)?;
    if !report.trust.is_empty() {
        row(&mut text, "trust", &report.trust.join("\n"))?;
    }
    if let Some(descriptor) = &report.descriptor {
        describe(&mut text, descriptor)?;
    }
    if let Some(problem) = &report.problem {
        // If there is a table for the config despite the problem, the parameters were the problem.
        let outcome = match (&report.config, &report.parameter_schema) {
            (Some(_), Some(_)) if !report.has_parameters => {
                "It needs parameters (--settings FILE gives them), so it could not say what it is"
            }
            (Some(_), _) => {
                "It was refused with these parameters (--settings FILE gives others), so it could not say what it is"
            }
            (None, _) => "This host refuses it",
        };
        let problem = output::hanging(&format!("{outcome}:\n  {}", line(problem)), INDENT);
        writeln!(text, "\n{problem}")?;
    }
    parameters(&mut text, report)?;
    if let Some(config) = &report.config {
        writeln!(text, "\nFor the config:\n\n{}", config.trim_end())?;
    }
    Ok(text)
}

/// Writes what the author of the component says about it.
fn project(text: &mut String, manifest: &ManifestSection) -> fmt::Result {
    let ManifestSection { name, version, grants, uri, licence, source, .. } = manifest;
    let tested = match grants {
        ManifestGrants::Tested(names) if !names.is_empty() => format!(", tried with grants: {}", names.join(", ")),
        ManifestGrants::Tested(_) | ManifestGrants::Reasons(_) => String::new(),
    };
    row(text, "project", &line(&format!("{name} {version}{tested}")))?;
    for (name, value) in [("project uri", uri), ("licence", licence), ("source", source)] {
        if let Some(value) = value {
            row(text, name, &line(value))?;
        }
    }
    let ManifestGrants::Reasons(reasons) = grants else { return Ok(()) };
    let reasons: Vec<_> = reasons.iter().map(|(grant, reason)| (line(grant), line(reason))).collect();
    let width = reasons.iter().map(|(grant, _)| grant.len()).max().unwrap_or(0);
    let lines = reasons.iter().map(|(grant, reason)| format!("{grant:width$}  {reason}").trim_end().to_owned());
    let lines: Vec<String> = lines.collect();
    row(text, "grants", &if lines.is_empty() { "none".to_owned() } else { lines.join("\n") })
}

/// Writes the schema of the parameters, unless it stands in the description already, and the author's example.
fn parameters(text: &mut String, report: &Report) -> fmt::Result {
    let of_manifest = report.manifest.as_ref().and_then(|manifest| manifest.parameters.as_ref());
    let named = of_manifest.filter(|_| report.descriptor.is_none()).map(|parameters| &parameters.schema);
    let schema = report.parameter_schema.as_ref().or(named);
    let example = of_manifest.and_then(|parameters| parameters.example.as_ref());
    if schema.is_some() || example.is_some() {
        text.push('\n');
    }
    if let Some(schema) = schema {
        row(text, "parameters", &pretty(schema))?;
    }
    example.map_or(Ok(()), |example| row(text, "example", &pretty(example)))
}

fn describe_origin(text: &mut String, origin: &Origin) -> fmt::Result {
    row(text, "reference", &line(&origin.reference))?;
    let signatures = match (origin.signatures, origin.signers.as_slice()) {
        (0, _) => "none".to_owned(),
        (number, []) => format!("{number}, which nobody has verified: --key FILE or --issuer URL does"),
        (_, signers) => format!("by {}", line(&signers.join(" and "))),
    };
    row(text, "signatures", &signatures)?;
    if let Some(sboms) = &origin.sboms {
        let sboms: Vec<String> = sboms.iter().map(|sbom| format!("{}, {} bytes", sbom.digest, sbom.size)).collect();
        row(text, "SBOMs", &if sboms.is_empty() { "none".to_owned() } else { sboms.join("\n") })?;
    }
    origin.locked.as_ref().map_or(Ok(()), |locked| row(text, "annex.lock", &line(&locked.to_string())))
}

/// Writes one row: the name in the first column, and the lines of the value in the second.
fn row(text: &mut String, name: &str, value: &str) -> fmt::Result {
    for (number, line_of_value) in value.split('\n').enumerate() {
        let name = if number == 0 { name } else { "" };
        let indent = if name.is_empty() { INDENT } else { NAME_WIDTH };
        writeln!(text, "{}", output::hanging(&format!("{name:NAME_WIDTH$}{line_of_value}"), indent))?;
    }
    Ok(())
}

fn imports(text: &mut String, report: &Report) -> fmt::Result {
    let mut rows = Vec::new();
    let mut of_wasi = BTreeSet::new();
    let mut wasi = 0_usize;
    // An interpreter imports dozens of interfaces that concern nobody.
    for import in &report.imports {
        let package = import.name.split_once('/').map(|(package, _)| package);
        match (&import.access, package.filter(|package| package.starts_with("wasi:"))) {
            (AccessReport::Free, Some(package)) => {
                of_wasi.insert(package);
                wasi += 1;
            }
            (AccessReport::Free, None) => rows.push((line(&import.name), "free".to_owned())),
            (AccessReport::Needs { grant }, _) => rows.push((line(&import.name), format!("needs {grant}"))),
            (AccessReport::Unknown, _) => rows.push((line(&import.name), "not offered by this host".to_owned())),
        }
    }
    let packages = of_wasi.into_iter().map(line).collect::<Vec<_>>().join(", ");
    if rows.is_empty() {
        return row(text, "imports", &if wasi == 0 { "none".to_owned() } else { free(wasi, &packages) });
    }
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (index, (name, access)) in rows.iter().enumerate() {
        // The author of a component chooses the names of its imports, so the names may contain control sequences for a
        // terminal.
        row(text, if index == 0 { "imports" } else { "" }, &format!("{name:width$}  {access}"))?;
    }
    if wasi > 0 { row(text, "", &free(wasi, &packages)) } else { Ok(()) }
}

fn free(count: usize, packages: &str) -> String {
    let noun = if count == 1 { "interface" } else { "interfaces" };
    format!("{count} {noun} of {packages}: free (--json lists them)")
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
