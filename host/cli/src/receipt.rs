//! `annex receipt`

use std::fmt::Write;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use annex_auth::receipt::{Receipt as SignedTurn, ReceiptExtension, Verdict, check};
use annex_text::line;
use anyhow::Context;
use clap::{Args, Subcommand};

use crate::connect::read_keys;
use crate::exit::Failure;
use crate::output;

/// The name that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// Check the signed receipts of turns.
#[derive(Args)]
#[command(after_help = "Example:\n  annex receipt verify task.json --key card-key.pub.pem")]
pub(crate) struct Receipt {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Verify(Verify),
}

/// Compare tasks with their receipts, without a connection.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  annex receipt verify task.json --key card-key.pub.pem\n  annex receipt verify first.json \
                  second.json --key keys.json\n  curl -s https://agent.example/a2a/rest/tasks/t-1 | annex receipt verify - --key \
                  keys.json\n\nChecks the signature of each receipt, the message and the answer of each turn as far as the \
                  JSON has them, and the chain of receipts over all files. Exit code 3: something differs from the \
                  receipts, and each difference is printed."
)]
struct Verify {
    /// JSON of A2A 1.0 with a task, several tasks or the message of an agent, or a receipt; - for standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The public key of the card's signatures: a JSON Web Key Set, or one public key as PEM
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
}

impl Receipt {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let Command::Verify(verify) = self.command;
        verify.run()
    }
}

impl Verify {
    fn run(self) -> anyhow::Result<()> {
        let Self { files, key } = self;
        let keys = read_keys(&key)?;
        let inputs = files.iter().map(|file| read(file)).collect::<anyhow::Result<Vec<String>>>()?;
        let Verdict { receipts, differences, notes, .. } = check(&inputs, &keys).context("nothing is verified")?;
        output::write(&receipts.iter().map(described).collect::<String>())?;
        for note in notes {
            output::note(&line(&note));
        }
        if differences.is_empty() {
            return Ok(());
        }
        let listed: Vec<String> = differences.iter().map(|difference| line(difference).to_string()).collect();
        Err(Failure::Refused.error(format!("not as the receipts say:\n{}", listed.join("\n"))))
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    if file == Path::new(STANDARD_INPUT) {
        let mut text = String::new();
        io::stdin().lock().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(text);
    }
    fs::read_to_string(file).map(annex_files::without_mark).with_context(|| format!("cannot read {}", file.display()))
}

/// A signed receipt, in one line and a line for each extension.
fn described(receipt: &SignedTurn) -> String {
    let SignedTurn { number, context_id, task_id, time, state, issuer, .. } = receipt;
    let state = state.as_deref().unwrap_or("a message");
    let mut text = format!(
        "receipt {number} of context {}, task {}: {} at {}, signed by {}\n",
        line(context_id),
        line(task_id),
        line(state),
        line(time),
        line(&issuer.name)
    );
    for ReceiptExtension { uri, digest, outcome } in &receipt.extensions {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {} {} {}", line(outcome), line(uri), line(digest));
    }
    text
}
