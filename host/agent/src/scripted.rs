//! A model without a network: answers by rules, the same every time. For demonstrations and tests.
//!
//! It knows only what a real model would be told. A rule can pick values out of the rendered instruction, never out of
//! the session, so an answer that names the user proves that the instruction did.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use regex::Regex;
use serde::Deserialize;

use crate::model::{Model, ModelError, ModelEvent, ModelStream, Prompt};

/// The script of a [`ScriptedModel`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptConfig {
    /// The first rule that applies answers.
    #[serde(default)]
    pub rules: Vec<RuleConfig>,
    /// The answer when none does.
    pub fallback: String,
}

/// When to give which answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    /// A regular expression that is searched for in what the user said last. `(?i)` ignores case.
    pub when: String,
    /// Names for pieces of the instruction: the text that the one group of each regular expression captures there. The
    /// rule applies only if all of them match.
    #[serde(default)]
    pub extract: BTreeMap<String, String>,
    /// The answer. `{name}` stands for the piece of that name.
    pub answer: String,
    /// In how many pieces of similar length the answer is sent. Default: one.
    pub chunks: Option<usize>,
    /// How long to wait before each piece, in milliseconds. Default: not at all.
    pub delay_ms: Option<u64>,
}

/// What is wrong with a script. Rules are counted from 1.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// A regular expression cannot be compiled.
    #[error("rule {rule}: `{field}` is not a regular expression")]
    Pattern {
        /// The rule.
        rule: usize,
        /// `when`, or the `extract` entry.
        field: String,
        /// Why.
        #[source]
        source: regex::Error,
    },
    /// The expression of an `extract` entry must have exactly one capture group.
    #[error("rule {rule}: `{field}` has {groups} capture groups, one is needed")]
    Groups {
        /// The rule.
        rule: usize,
        /// The `extract` entry.
        field: String,
        /// How many it has.
        groups: usize,
    },
    /// The answer names a piece that is not extracted.
    #[error("rule {rule}: the answer has `{{{name}}}`, but `extract` has no `{name}`")]
    UnknownPiece {
        /// The rule.
        rule: usize,
        /// The name in the answer.
        name: String,
    },
}

/// A model that follows a script.
#[derive(Clone, Debug)]
pub struct ScriptedModel {
    rules: Vec<Rule>,
    fallback: String,
}

impl ScriptedModel {
    /// Compiles a script.
    ///
    /// # Errors
    /// Says which rule is wrong, see [`ScriptError`].
    pub fn new(config: ScriptConfig) -> Result<Self, ScriptError> {
        let rules = config.rules.into_iter().enumerate().map(|(index, rule)| Rule::compile(index + 1, rule));
        Ok(Self { rules: rules.collect::<Result<_, _>>()?, fallback: config.fallback })
    }
}

#[async_trait]
impl Model for ScriptedModel {
    fn name(&self) -> &str {
        "scripted"
    }

    async fn stream(&self, prompt: Prompt) -> Result<ModelStream, ModelError> {
        let (answer, chunks, delay) = self
            .rules
            .iter()
            .find_map(|rule| Some((rule.answer(&prompt)?, rule.chunks, rule.delay)))
            .unwrap_or_else(|| (self.fallback.clone(), 1, Duration::ZERO));
        let pieces = stream::iter(split(&answer, chunks)).then(move |piece| async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            Ok(ModelEvent::Text(piece))
        });
        Ok(pieces.boxed())
    }
}

#[derive(Clone, Debug)]
struct Rule {
    when: Regex,
    extract: BTreeMap<String, Regex>,
    answer: Vec<Segment>,
    chunks: usize,
    delay: Duration,
}

/// An answer is literal text and pieces of the instruction in turn.
#[derive(Clone, Debug)]
enum Segment {
    Literal(String),
    Piece(String),
}

impl Rule {
    /// `number` is the rule's place in the script, for error messages.
    fn compile(number: usize, config: RuleConfig) -> Result<Self, ScriptError> {
        let compile = |field: String, pattern: &str| {
            Regex::new(pattern).map_err(|source| ScriptError::Pattern { rule: number, field, source })
        };
        let when = compile("when".to_owned(), &config.when)?;
        let mut extract = BTreeMap::new();
        for (name, pattern) in config.extract {
            let field = format!("extract.{name}");
            let pattern = compile(field.clone(), &pattern)?;
            let groups = pattern.captures_len() - 1;
            if groups != 1 {
                return Err(ScriptError::Groups { rule: number, field, groups });
            }
            extract.insert(name, pattern);
        }
        let answer = segments(&config.answer);
        let unknown = answer.iter().find_map(|segment| match segment {
            Segment::Piece(name) if !extract.contains_key(name) => Some(name.clone()),
            Segment::Piece(_) | Segment::Literal(_) => None,
        });
        if let Some(name) = unknown {
            return Err(ScriptError::UnknownPiece { rule: number, name });
        }
        let delay = Duration::from_millis(config.delay_ms.unwrap_or(0));
        Ok(Self { when, extract, answer, chunks: config.chunks.unwrap_or(1), delay })
    }

    /// The answer, if the rule applies.
    fn answer(&self, prompt: &Prompt) -> Option<String> {
        if !self.when.is_match(prompt.last_user_text()) {
            return None;
        }
        let mut pieces = BTreeMap::new();
        for (name, pattern) in &self.extract {
            let captured = pattern.captures(&prompt.instruction)?.get(1)?;
            pieces.insert(name.as_str(), captured.as_str());
        }
        let text = |segment: &Segment| match segment {
            Segment::Literal(text) => Some(text.clone()),
            Segment::Piece(name) => pieces.get(name.as_str()).map(|&piece| piece.to_owned()),
        };
        self.answer.iter().map(text).collect()
    }
}

/// Takes `{name}` for a piece if a name is all there is between the braces; everything else is literal.
fn segments(answer: &str) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut rest = answer;
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

/// Cuts a text into at most `count` pieces whose lengths differ by one character at most.
fn split(text: &str, count: usize) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let count = count.clamp(1, characters.len().max(1));
    let cut = |index: usize| index * characters.len() / count;
    (0..count).filter_map(|index| characters.get(cut(index)..cut(index + 1))).map(String::from_iter).collect()
}
