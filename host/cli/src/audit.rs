//! `annex audit`

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use annex_server::{VerifiedChain, VerifyError, verify_audit};
use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::exit::Failure;
use crate::output;

/// Check the audit file of a server.
#[derive(Args)]
#[command(after_help = "Example:\n  annex audit verify /var/lib/annex/audit.jsonl\n\nThe file is the one that \
                        admin.audit_file names. The command reads the file and needs no server.")]
pub(crate) struct Audit {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check that no line is missing or changed between the first line and the last
    #[command(
        after_help = "Example:\n  annex audit verify /var/lib/annex/audit.jsonl\n\nThe command ends with 3 at the \
                            first line that does not follow the line before it. To find lines that were \
                            cut off at the end, compare the last number and digest with earlier ones."
    )]
    Verify(Verify),
}

#[derive(Args)]
struct Verify {
    /// The audit file
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Audit {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let Command::Verify(verify) = self.command;
        verify.run()
    }
}

impl Verify {
    fn run(self) -> anyhow::Result<()> {
        let path = self.file.display();
        let file = File::open(&self.file).with_context(|| format!("cannot read {path}"))?;
        match verify_audit(BufReader::new(file)) {
            Ok(chain) if self.json => output::json(&as_json(&chain).to_string()),
            Ok(chain) => output::show(&as_text(&chain)),
            Err(error @ VerifyError::Read(_)) => Err(error).with_context(|| format!("cannot read {path}")),
            Err(error) => Err(Failure::Refused.error(format!("{path} is no whole chain: {error}"))),
        }
    }
}

fn as_json(chain: &VerifiedChain) -> serde_json::Value {
    let VerifiedChain { lines, first_time, last_time, last_number, last_digest, continues } = chain;
    json!({
        "lines": lines,
        "firstTime": first_time,
        "lastTime": last_time,
        "lastNumber": last_number,
        "lastDigest": last_digest,
        "continues": continues,
    })
}

fn as_text(chain: &VerifiedChain) -> String {
    let VerifiedChain { lines, first_time, last_time, last_number, last_digest, continues } = chain;
    let before = match continues {
        Some(digest) => format!("It continues a file whose last line has the digest {digest}.\n"),
        None => String::new(),
    };
    let noun = if *lines == 1 { "line is" } else { "lines are" };
    format!(
        "{lines} {noun} one chain, from {first_time} to {last_time}.\n{before}The last line is number {last_number} with \
         the digest {last_digest}.\n"
    )
}
