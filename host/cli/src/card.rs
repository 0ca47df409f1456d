//! `annex card`

use std::fmt::{self, Write};

use annex_protocol::{AgentCard, AgentExtension, Json};
use annex_text::line;
use clap::Args;

use crate::connect::Location;
use crate::output;
use crate::pretty::pretty;

mod authentication;

/// Print an agent's Agent Card.
#[derive(Args)]
#[command(
    after_help = "Example:\n  annex card http://127.0.0.1:9999\n  annex card http://127.0.0.1:9999 --verify keys.json"
)]
pub(crate) struct Card {
    #[command(flatten)]
    location: Location,
    /// Print the JSON of the card, as the agent sent it
    #[arg(long)]
    json: bool,
}

impl Card {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let document = self.location.card().await?;
        if let Some(verified) = &document.verified {
            output::note(&format!("signed by {} ({})", verified.kid, verified.algorithm));
        }
        if self.json {
            return output::json(&document.text);
        }
        let mut text = String::new();
        describe(&document.card, &mut text)?;
        output::show(&output::hanging(&text, 2))
    }
}

fn describe(card: &AgentCard, text: &mut String) -> fmt::Result {
    // The card is a stranger's. `line` keeps each field in its line, so that none can forge another.
    writeln!(text, "{} {}\n{}", line(&card.name), line(&card.version), line(&card.description))?;
    if let Some(provider) = &card.provider {
        writeln!(text, "by {} ({})", line(&provider.organization), line(&provider.url))?;
    }
    writeln!(text, "\nInterfaces")?;
    for interface in &card.supported_interfaces {
        let binding = line(&interface.protocol_binding);
        writeln!(text, "  {binding} {}  {}", line(&interface.protocol_version), line(&interface.url))?;
    }
    let capabilities = &card.capabilities;
    writeln!(text, "\nCapabilities")?;
    writeln!(text, "  streaming           {}", yes_or_no(capabilities.streaming))?;
    writeln!(text, "  push notifications  {}", yes_or_no(capabilities.push_notifications))?;
    writeln!(text, "  extended card       {}", yes_or_no(capabilities.extended_agent_card))?;
    heading(text, "Authentication", card.security_schemes.is_empty())?;
    for (name, scheme) in &card.security_schemes {
        authentication::describe(name, scheme, text)?;
    }
    authentication::describe_requirements(card, text)?;
    heading(text, "Extensions", capabilities.extensions.is_empty())?;
    for extension in &capabilities.extensions {
        describe_extension(extension, text)?;
    }
    heading(text, "Skills", card.skills.is_empty())?;
    for skill in &card.skills {
        writeln!(text, "  {}: {}", line(&skill.name), line(&skill.description))?;
        for example in &skill.examples {
            writeln!(text, "    for example: {}", line(example))?;
        }
    }
    Ok(())
}

fn heading(text: &mut String, title: &str, is_empty: bool) -> fmt::Result {
    writeln!(text, "\n{title}{}", if is_empty { "\n  none" } else { "" })
}

fn describe_extension(extension: &AgentExtension, text: &mut String) -> fmt::Result {
    let required = if extension.required { "  (required)" } else { "" };
    writeln!(text, "  {}{required}", line(extension.uri.as_str()))?;
    if !extension.description.is_empty() {
        writeln!(text, "    {}", line(&extension.description))?;
    }
    for (name, value) in extension.params.iter().flatten() {
        writeln!(text, "    {} = {}", line(name), indented(value))?;
    }
    Ok(())
}

fn indented(json: &Json) -> String {
    pretty(json).replace('\n', "\n    ")
}

fn yes_or_no(flag: Option<bool>) -> &'static str {
    if flag == Some(true) { "yes" } else { "no" }
}
