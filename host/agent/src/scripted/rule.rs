//! One rule of a script: its condition, its answer and its calls.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use annex_protocol::{Json, JsonObject};
use regex::{Regex, RegexBuilder};

use super::{CallConfig, RuleConfig, ScriptError};
use crate::model::{Prompt, Turn};

/// The most memory that a compiled pattern may take.
const MAX_PATTERN_BYTES: usize = 1 << 20;
/// The most bytes that the answer and the calls of a rule may have together.
const MAX_FILLED_BYTES: usize = 4 << 20;

#[derive(Clone, Debug)]
pub(super) struct Rule {
    when: Regex,
    after: Option<String>,
    extract: BTreeMap<String, Regex>,
    extract_result: BTreeMap<String, Regex>,
    answer: Option<Vec<Segment>>,
    /// The name of each tool, and its arguments.
    calls: Vec<(String, Vec<Segment>)>,
    chunks: usize,
    delay: Duration,
}

/// The answer and the calls of a rule.
pub(super) struct Applied {
    pub(super) answer: Option<String>,
    pub(super) chunks: usize,
    pub(super) delay: Duration,
    /// The name of each tool, and its arguments as JSON text.
    pub(super) calls: Vec<(String, String)>,
}

/// A text is literal text and named pieces in turn.
#[derive(Clone, Debug)]
enum Segment {
    Literal(String),
    Piece(String),
}

type Pieces<'a> = BTreeMap<&'a str, &'a str>;

impl Applied {
    pub(super) fn fallback(answer: &str) -> Self {
        Self { answer: Some(answer.to_owned()), chunks: 1, delay: Duration::ZERO, calls: Vec::new() }
    }
}

impl Rule {
    /// `number` is the rule's place in the script, for error messages.
    pub(super) fn compile(number: usize, config: RuleConfig) -> Result<Self, ScriptError> {
        if config.answer.is_none() && config.call.is_empty() {
            return Err(ScriptError::Empty { rule: number });
        }
        if config.after.is_none() && !config.extract_result.is_empty() {
            return Err(ScriptError::NoResult { rule: number });
        }
        let when = compile(number, "when".to_owned(), &config.when)?;
        let extract = compile_pieces(number, "extract", config.extract)?;
        let extract_result = compile_pieces(number, "extract_result", config.extract_result)?;
        let extracted = extract.keys().chain(extract_result.keys()).map(String::as_str);
        let known: BTreeSet<&str> = when.capture_names().flatten().chain(extracted).collect();
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
        let chunks = config.chunks.unwrap_or(1);
        Ok(Self { when, after: config.after, extract, extract_result, answer, calls, chunks, delay })
    }

    /// The answer and the calls of the rule, if it applies. One whose texts would be too long does not.
    pub(super) fn apply(&self, prompt: &Prompt) -> Option<Applied> {
        let result = self.result(prompt)?;
        let mut pieces = Pieces::new();
        if self.when.capture_names().flatten().next().is_none() {
            // Nothing is taken out of what the user said.
            if !self.when.is_match(prompt.last_user_text()) {
                return None;
            }
        } else {
            let said = self.when.captures(prompt.last_user_text())?;
            for name in self.when.capture_names().flatten() {
                pieces.insert(name, said.name(name)?.as_str());
            }
        }
        for (name, pattern) in &self.extract {
            pieces.insert(name, pattern.captures(&prompt.instruction)?.get(1)?.as_str());
        }
        for (name, pattern) in &self.extract_result {
            pieces.insert(name, pattern.captures(result)?.get(1)?.as_str());
        }
        let mut room = MAX_FILLED_BYTES;
        let answer = match &self.answer {
            Some(answer) => Some(fill(answer, &mut room, |name| pieces.get(name).map(|&piece| Cow::Borrowed(piece)))?),
            None => None,
        };
        // Pieces are what users and tools wrote: a quote in one must not end the string that it stands in.
        let escaped = |name: &str| pieces.get(name).map(|piece| Cow::Owned(inside_string(piece)));
        let call =
            |(tool, arguments): &(String, Vec<Segment>)| Some((tool.clone(), fill(arguments, &mut room, escaped)?));
        let calls = self.calls.iter().map(call).collect::<Option<_>>()?;
        Some(Applied { answer, chunks: self.chunks, delay: self.delay, calls })
    }

    /// The result that the rule is about, or nothing for one that is about the user's words; `None` when something else
    /// came last.
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

fn compile(rule: usize, field: String, pattern: &str) -> Result<Regex, ScriptError> {
    let compiled = RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).build();
    compiled.map_err(|source| ScriptError::Pattern { rule, field, source })
}

fn compile_pieces(
    rule: usize,
    table: &str,
    patterns: BTreeMap<String, String>,
) -> Result<BTreeMap<String, Regex>, ScriptError> {
    let mut compiled = BTreeMap::new();
    for (name, pattern) in patterns {
        let field = format!("{table}.{name}");
        let pattern = compile(rule, field.clone(), &pattern)?;
        let groups = pattern.captures_len() - 1;
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

/// The text with its pieces; `None` where one is missing, or there is no room for it.
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

/// The text as it is written between the quotes of a JSON string.
fn inside_string(text: &str) -> String {
    let quoted = Json::string(text);
    quoted.get().strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default().to_owned()
}

/// Takes `{name}` for a piece if a name is all there is between the braces; everything else is literal.
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
