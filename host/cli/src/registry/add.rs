//! `annex add`

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use annex_registry::{Reference, is_reference};
use annex_runtime::{GrantNeeded, Hook};
use annex_server::Config;
use annex_server::lock::{LOCK_FILE, Lock};
use anyhow::{Context, bail};
use clap::Args;

use super::config_text::{ConfigText, NewExtension};
use super::grants::{self, AcceptedGrants};
use super::source::{ComponentSource, InspectedComponent};
use crate::exit::Failure;
use crate::{output, serve};

const NAME_WIDTH: usize = 12;
/// The indent, in columns, of the second and later lines of a row that has no name.
const INDENT: usize = 2;

/// Add a component of an OCI registry to a config and to its annex.lock.
///
/// Pulls the component, verifies its signatures by the config's `[trust]`, and shows what it is and which grants it needs. Then
/// asks on a terminal. None of the component's code runs.
#[derive(Args)]
#[command(after_help = "Examples:\n  annex add oci://registry.example/acme/redact:1.2\n  annex add \
                        oci://registry.example/acme/redact:1.2 --config server/annex.toml --accept clock,keyvalue\n\n\
                        Without a terminal, --accept must name exactly the grants that the component needs, or none if \
                        it needs no grant. The config gets an [[extension]] at its end, and the rest of its text stays. \
                        A refused component changes neither file.")]
pub(crate) struct Add {
    /// The component: `oci://HOST[:PORT]/PATH[:TAG][@sha256:HEX]`
    reference: Reference,
    /// The config
    #[arg(long, value_name = "FILE", default_value = "annex.toml")]
    config: PathBuf,
    /// Accept exactly these grants, with commas between them, or `none`
    #[arg(long, value_name = "GRANTS", value_parser = AcceptedGrants::parse)]
    accept: Option<AcceptedGrants>,
    /// Refuse requests that do not activate the extension
    #[arg(long)]
    required: bool,
}

impl Add {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Self { reference, config: file, accept, required } = self;
        let locations = serve::locations(&file);
        let config = Config::read(&file).context("--config names the config that the component is added to")?;
        check_new(&reference, &config, &file)?;
        let source = ComponentSource::new(&config, &locations)?;
        let component = Box::pin(source.pull(&reference, source.policy())).await?;
        output::show(&report(&reference, &component))?;
        let needs = component.needs();
        check_accepted(&needs, accept.as_ref())?;

        let text = ConfigText::read(&file)?;
        let named = reference.to_string();
        let extension = NewExtension { component: &named, is_required: required, grants: &needs };
        let changed = text.with(&extension)?;
        let mut lock = Lock::read(&locations.config)?.unwrap_or_default();
        lock.put(component.to_lock(&reference));
        // A lock that has more than the config does no harm. A config that has more is not served.
        lock.write(&locations.config)?;
        text.replace_by(&changed)?;
        let file = file.display();
        let to_fill_in = extension.to_fill_in();
        if !to_fill_in.is_empty() {
            let lines = to_fill_in.join("\n");
            output::note(&format!(
                "{file} has this grant as a comment, because only you know the values; fill it in before you serve:\n{lines}"
            ));
        }
        output::write(&format!("Added {named} to {file} and {LOCK_FILE}. Check it: annex check {file} --load\n"))
    }
}

/// Refuses a component of which the config names a version already.
fn check_new(reference: &Reference, config: &Config, file: &Path) -> anyhow::Result<()> {
    let named = config.extensions.iter().filter(|extension| is_reference(&extension.component));
    for extension in named {
        let earlier = extension.component.parse::<Reference>().with_context(|| file.display().to_string())?;
        if earlier.place() == reference.place() {
            let file = file.display();
            let text = format!(
                "{file} names {earlier} already; for another version, change the reference there and run: annex lock {file}"
            );
            return Err(Failure::Usage.error(text));
        }
    }
    Ok(())
}

/// Describes the component. Its author has chosen most of the words.
fn report(reference: &Reference, component: &InspectedComponent) -> String {
    let InspectedComponent { pulled, signatures, signers, inspection } = component;
    let mut text = String::new();
    row(&mut text, "reference", &reference.with_digest(&pulled.manifest_digest).to_string());
    if let Some(manifest) = &inspection.manifest {
        row(&mut text, "project", &format!("{} {}", manifest.name, manifest.version));
        for (name, value) in [("uri", &manifest.uri), ("licence", &manifest.licence), ("source", &manifest.source)] {
            if let Some(value) = value {
                row(&mut text, name, value);
            }
        }
    }
    row(&mut text, "size", &format!("{} bytes", inspection.size));
    let signed = match (*signatures, signers.as_slice()) {
        (0, _) => "by nobody, which [trust] allows".to_owned(),
        (number, []) => format!("{number} times, which nobody has verified, because [trust] needs no signature"),
        (_, signers) => format!("by {}", signers.join(" and ")),
    };
    row(&mut text, "signed", &signed);
    let hooks: Vec<&str> = inspection.hooks.iter().copied().map(Hook::name).collect();
    row(&mut text, "hooks", &hooks.join(", "));
    let needs = component.needs();
    if needs.is_empty() {
        row(&mut text, "grants", "none");
    }
    for (number, grant) in needs.iter().enumerate() {
        let reason = component.reason(*grant).map(|reason| format!(": {reason}")).unwrap_or_default();
        row(&mut text, if number == 0 { "grants" } else { "" }, &format!("{}{reason}", grant.name()));
    }
    text
}

fn row(text: &mut String, name: &str, value: &str) {
    let line = format!("{name:NAME_WIDTH$}{}", annex_text::line(value));
    text.push_str(&output::hanging(&line, if name.is_empty() { INDENT } else { NAME_WIDTH }));
    text.push('\n');
}

/// Compares the needed grants with `--accept`, or asks.
///
/// # Errors
/// When the person does not accept them.
fn check_accepted(needs: &[GrantNeeded], accept: Option<&AcceptedGrants>) -> anyhow::Result<()> {
    let argument = grants::argument(needs);
    match accept {
        Some(accept) if accept.is_exactly(needs) => Ok(()),
        Some(_) => {
            let text = format!(
                "the component needs other grants than --accept names, and nothing was added; it needs: \
                                --accept {argument}"
            );
            Err(Failure::Refused.error(text))
        }
        None if io::stdin().is_terminal() && io::stderr().is_terminal() => ask(needs),
        None => {
            let text = format!(
                "standard input is no terminal, so nobody can be asked, and nothing was added; to accept \
                                what the component needs: --accept {argument}"
            );
            Err(Failure::Usage.error(text))
        }
    }
}

fn ask(needs: &[GrantNeeded]) -> anyhow::Result<()> {
    let with = if needs.is_empty() { "without grants" } else { "with these grants" };
    output::prompt(&format!("Add it {with}? [y/N] "));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).context("cannot read a line of standard input")?;
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        bail!("nothing was added");
    }
    Ok(())
}
