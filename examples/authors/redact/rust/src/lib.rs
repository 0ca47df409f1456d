//! Redacts the numbers of payment cards in the texts that go out.

use annex_sdk::{Content, Descriptor, EventKinds, Extension, NoParameters, Output, Place, Verdict};

struct Redact;

impl Extension for Redact {
    type Parameters = NoParameters;

    fn descriptor(_: &NoParameters) -> Result<Descriptor, String> {
        let redact = Descriptor::new("https://annex.example/redact/v1", "Redacts the numbers of payment cards.");
        Ok(Descriptor { events: EventKinds::all(), ..redact })
    }
}

impl Output for Redact {
    fn revise(_: &NoParameters, content: Content) -> Result<Verdict, String> {
        match &content.place {
            // The number may go on in the next chunk.
            Place::Artifact(chunk) if !chunk.last => Ok(Verdict::Hold),
            _ => Verdict::text(&content, redacted),
        }
    }
}

/// Replaces each run of 13 digits or more, with spaces and hyphens between digits.
fn redacted(text: &str) -> String {
    let (mut result, mut rest) = (String::new(), text);
    while let Some((before, run)) = rest.find(|c: char| c.is_ascii_digit()).map(|start| rest.split_at(start)) {
        let end = run.find(|c: char| !c.is_ascii_digit() && c != ' ' && c != '-').unwrap_or(run.len());
        let number = run.split_at(end).0.trim_end_matches([' ', '-']);
        let is_card = number.bytes().filter(u8::is_ascii_digit).count() >= 13;
        result.extend([before, if is_card { "[card number]" } else { number }]);
        rest = run.split_at(number.len()).1;
    }
    result + rest
}

annex_sdk::export!(Redact: output);
