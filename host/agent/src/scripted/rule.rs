//! One rule of a script: its condition, its answer and its calls.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use annex_protocol::{Json, JsonObject};

use super::pattern::{Pattern, PatternError};
use super::{CallConfig, RuleConfig, ScriptError};
use crate::model::{Prompt, Turn};

/// The maximum size of a rule's answer and calls together, in bytes.
const MAX_FILLED_BYTES: usize = 4 << 20;
/// The maximum CPU time, in nanoseconds, for one byte of a rule's answer or calls. Each byte is copied. A byte of an
/// argument is escaped as JSON first.
const FILLED_BYTE: u64 = 8;
/// The maximum number of pieces of an answer. Each piece is an event.
const MAX_CHUNKS: usize = 1_000;
/// The maximum number of calls of a rule. Every agent has this limit on the calls of one answer.
const MAX_CALLS: usize = crate::template_agent::MAX_CALLS;

#[derive(Debug)]
pub(super) struct Rule {
    when: Pattern,
    after: Option<String>,
    extract: BTreeMap<String, Pattern>,
    extract_result: BTreeMap<String, Pattern>,
    answer: Option<Vec<Segment>>,
    /// The name of the tool and the arguments of each call.
    calls: Vec<(String, Vec<Segment>)>,
    chunks: usize,
    delay: Duration,
}

/// The answer and the calls of a rule, with the pieces filled in.
pub(super) struct RuleAnswer {
    pub(super) answer: Option<String>,
    pub(super) chunks: usize,
    pub(super) delay: Duration,
    /// The name of the tool, and the arguments as JSON text, of each call.
    pub(super) calls: Vec<(String, String)>,
}

/// A segment of a text: literal text, or the name of a piece.
#[derive(Clone, Debug)]
enum Segment {
    Literal(String),
    Piece(String),
}

type Pieces<'a> = BTreeMap<&'a str, &'a str>;

impl RuleAnswer {
    pub(super) fn fallback(answer: &str) -> Self {
        Self { answer: Some(answer.to_owned()), chunks: 1, delay: Duration::ZERO, calls: Vec::new() }
    }
}

impl Rule {
    /// Compiles a rule. `number` is its position in the script, for error messages. Subtracts the size of its patterns
    /// from `room`.
    pub(super) fn compile(number: usize, config: RuleConfig, room: &mut usize) -> Result<Self, ScriptError> {
        if config.answer.is_none() && config.call.is_empty() {
            return Err(ScriptError::Empty { rule: number });
        }
        if config.after.is_none() && !config.extract_result.is_empty() {
            return Err(ScriptError::NoResult { rule: number });
        }
        let too_many = |field, given: usize, most| ScriptError::TooMany { rule: number, field, given, most };
        let chunks = config.chunks.unwrap_or(1);
        if chunks > MAX_CHUNKS {
            return Err(too_many("chunks", chunks, MAX_CHUNKS));
        }
        if config.call.len() > MAX_CALLS {
            return Err(too_many("call", config.call.len(), MAX_CALLS));
        }
        let when = compile(number, "when".to_owned(), &config.when, room)?;
        let extract = compile_pieces(number, "extract", config.extract, room)?;
        let extract_result = compile_pieces(number, "extract_result", config.extract_result, room)?;
        let extracted = extract.keys().chain(extract_result.keys()).map(String::as_str);
        let known: BTreeSet<&str> = when.names().chain(extracted).collect();
        let text = |field, text: &str| known_segments(number, field, text, &known);
        let answer = config.answer.map(|answer| text("answer", &answer)).transpose()?;
        let mut calls = Vec::new();
        for CallConfig { tool, arguments } in config.call {
            let arguments = text("call.arguments", &arguments)?;
            // `0` is valid JSON inside a string and outside of one.
            let mut room = MAX_FILLED_BYTES;
            let sample = fill(&arguments, &mut room, |_| Some(Cow::Borrowed("0"))).unwrap_or_default();
            if JsonObject::parse(&sample).is_err() {
                return Err(ScriptError::Arguments { rule: number, tool });
            }
            calls.push((tool, arguments));
        }
        let delay = Duration::from_millis(config.delay_ms.unwrap_or(0));
        Ok(Self { when, after: config.after, extract, extract_result, answer, calls, chunks, delay })
    }

    /// The maximum CPU time, in nanoseconds, that [`Self::apply`] takes.
    pub(super) fn cost(&self, prompt: &Prompt) -> u64 {
        let Some(result) = self.result(prompt) else { return 0 };
        let said = prompt.last_user_text();
        let captured = |patterns: &BTreeMap<String, Pattern>, text: &str| {
            patterns.values().map(|pattern| pattern.to_capture(text.len())).fold(0, u64::saturating_add)
        };
        let when = if self.when.names().next().is_none() {
            self.when.to_find(said.len())
        } else {
            self.when.to_capture(said.len())
        };
        let searches = [when, captured(&self.extract, &prompt.instruction), captured(&self.extract_result, result)];
        let pieces = said.len().max(prompt.instruction.len()).max(result.len());
        let texts = self.answer.iter().chain(self.calls.iter().map(|(_, arguments)| arguments));
        let filled = texts.flatten().map(|segment| match segment {
            Segment::Literal(literal) => literal.len(),
            Segment::Piece(_) => pieces,
        });
        // The piece that exceeds the room is read too.
        let filled = filled.fold(0, usize::saturating_add).min(MAX_FILLED_BYTES.saturating_add(pieces));
        let filled = u64::try_from(filled).unwrap_or(u64::MAX).saturating_mul(FILLED_BYTE);
        searches.into_iter().fold(filled, u64::saturating_add)
    }

    /// Returns the answer and the calls, or `None` if the rule does not apply. A rule whose texts are too long does not apply.
    /// Once `given_up` returns true, the result is `None` too.
    pub(super) fn apply(&self, prompt: &Prompt, given_up: &dyn Fn() -> bool) -> Option<RuleAnswer> {
        let result = self.result(prompt)?;
        let mut pieces = Pieces::new();
        if self.when.names().next().is_none() {
            // Without a match in the user's message, the rule does not apply.
            if !self.when.is_in(prompt.last_user_text()) {
                return None;
            }
        } else {
            let said = self.when.captures(prompt.last_user_text())?;
            for name in self.when.names() {
                pieces.insert(name, said.name(name)?);
            }
        }
        let instruction = self.extract.iter().map(|piece| (piece, prompt.instruction.as_str()));
        let result = self.extract_result.iter().map(|piece| (piece, result));
        for ((name, pattern), text) in instruction.chain(result) {
            if given_up() {
                return None;
            }
            pieces.insert(name, pattern.captures(text)?.get(1)?);
        }
        let mut room = MAX_FILLED_BYTES;
        let answer = match &self.answer {
            Some(answer) => Some(fill(answer, &mut room, |name| pieces.get(name).map(|&piece| Cow::Borrowed(piece)))?),
            None => None,
        };
        // Users and tools write the pieces: a quote inside a piece must not end the surrounding string.
        let escaped = |name: &str| pieces.get(name).map(|piece| Cow::Owned(inside_string(piece)));
        let call =
            |(tool, arguments): &(String, Vec<Segment>)| Some((tool.clone(), fill(arguments, &mut room, escaped)?));
        let calls = self.calls.iter().map(call).collect::<Option<_>>()?;
        Some(RuleAnswer { answer, chunks: self.chunks, delay: self.delay, calls })
    }

    /// The tool result that the rule reads. It is empty for a rule about the user's message. `None` if the rule does
    /// not apply to the last turn.
    fn result<'a>(&self, prompt: &'a Prompt) -> Option<&'a str> {
        match (prompt.turns.last(), &self.after) {
            (Some(Turn::Tools(results)), Some(tool)) => {
                results.iter().find(|result| result.name == *tool).map(|result| result.response.get())
            }
            (Some(Turn::Tools(_)), None) | (_, Some(_)) => None,
            (_, None) => Some(""),
        }
    }
}

fn compile(rule: usize, field: String, pattern: &str, room: &mut usize) -> Result<Pattern, ScriptError> {
    let pattern = match Pattern::compile(pattern) {
        Ok(pattern) => pattern,
        Err(PatternError::Syntax(source)) => return Err(ScriptError::Pattern { rule, field, source }),
        Err(PatternError::TooLarge(reason)) => return Err(ScriptError::TooLarge { rule, field, reason }),
    };
    match room.checked_sub(pattern.weight()) {
        Some(left) => *room = left,
        None => {
            let reason = "takes too much when it is compiled, with the patterns before it; write fewer or smaller ones";
            return Err(ScriptError::TooLarge { rule, field, reason: reason.to_owned() });
        }
    }
    Ok(pattern)
}

fn compile_pieces(
    rule: usize,
    table: &str,
    patterns: BTreeMap<String, String>,
    room: &mut usize,
) -> Result<BTreeMap<String, Pattern>, ScriptError> {
    let mut compiled = BTreeMap::new();
    for (name, pattern) in patterns {
        let field = format!("{table}.{name}");
        let pattern = compile(rule, field.clone(), &pattern, room)?;
        let groups = pattern.groups();
        if groups != 1 {
            return Err(ScriptError::Groups { rule, field, groups });
        }
        compiled.insert(name, pattern);
    }
    Ok(compiled)
}

fn known_segments(
    rule: usize,
    field: &'static str,
    text: &str,
    known: &BTreeSet<&str>,
) -> Result<Vec<Segment>, ScriptError> {
    let segments = segments(text);
    let unknown = segments.iter().find_map(|segment| match segment {
        Segment::Piece(name) if !known.contains(name.as_str()) => Some(name.clone()),
        Segment::Piece(_) | Segment::Literal(_) => None,
    });
    match unknown {
        Some(name) => Err(ScriptError::UnknownPiece { rule, field, name }),
        None => Ok(segments),
    }
}

/// Fills the pieces into a text. `None` if a piece is missing, or if the text has more than `room` bytes. Subtracts the bytes
/// of the text from `room`.
fn fill<'a>(segments: &[Segment], room: &mut usize, piece: impl Fn(&str) -> Option<Cow<'a, str>>) -> Option<String> {
    let mut text = String::new();
    for segment in segments {
        let next = match segment {
            Segment::Literal(literal) => Cow::Borrowed(literal.as_str()),
            Segment::Piece(name) => piece(name)?,
        };
        *room = room.checked_sub(next.len())?;
        text.push_str(&next);
    }
    Some(text)
}

/// Escapes a text for the inside of a JSON string.
fn inside_string(text: &str) -> String {
    let quoted = Json::string(text);
    quoted.get().strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default().to_owned()
}

/// Splits a text into segments. `{name}` is a piece if only a name is between the braces; everything else is literal.
fn segments(text: &str) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut rest = text;
    while let Some((head, after)) = rest.split_once('}') {
        let piece = head.rsplit_once('{').filter(|(_, name)| is_name(name));
        match piece {
            Some((before, name)) => {
                segments.push(Segment::Literal(before.to_owned()));
                segments.push(Segment::Piece(name.to_owned()));
            }
            None => segments.push(Segment::Literal(format!("{head}}}"))),
        }
        rest = after;
    }
    segments.push(Segment::Literal(rest.to_owned()));
    segments
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|character| character.is_alphanumeric() || character == '_')
}
