//! A model without a network: answers and calls tools by rules, the same every time. For demonstrations and tests.
//!
//! It knows only what a real model would be told. A rule can pick values out of the message, the rendered instruction
//! and the result of a tool, never out of the session, so an answer that names the user proves that the instruction did.

use std::collections::BTreeMap;

use annex_protocol::Json;
use async_trait::async_trait;
use futures::{StreamExt, stream};
use serde::Deserialize;

use crate::model::{Model, ModelError, ModelEvent, ModelStream, Prompt, ToolCall, Turn};

mod rule;

use rule::{Applied, Rule};

const NAME: &str = "scripted";

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

/// A condition, and the answer for it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    /// A regular expression that is searched for in the user's last words. `(?i)` ignores case.
    pub when: String,
    /// The tool whose result came last. Without it the rule applies to the user's words, with it to that result.
    pub after: Option<String>,
    /// Names for pieces of the instruction: the text that the one group of each regular expression captures there. The
    /// rule applies only if all of them match. The named groups of `when` are pieces as well.
    #[serde(default)]
    pub extract: BTreeMap<String, String>,
    /// The same for pieces of the result, which is JSON text.
    #[serde(default)]
    pub extract_result: BTreeMap<String, String>,
    /// The answer. `{name}` stands for the piece of that name.
    pub answer: Option<String>,
    /// The tools to call, at the same time. With an answer, that is said until their results are there.
    #[serde(default)]
    pub call: Vec<CallConfig>,
    /// The number of pieces of similar length that the answer is sent in. Default: one.
    pub chunks: Option<usize>,
    /// The time to wait before each piece, in milliseconds. Default: none.
    pub delay_ms: Option<u64>,
}

/// A tool to call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallConfig {
    /// The tool.
    pub tool: String,
    /// The arguments as JSON text, an object. `{name}` stands for the piece of that name, as it is written inside of a
    /// JSON string. Default: `{}`.
    #[serde(default = "no_arguments")]
    pub arguments: String,
}

fn no_arguments() -> String {
    "{}".to_owned()
}

/// A fault in a script. Rules are counted from 1.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// A regular expression cannot be compiled.
    #[error("rule {rule}: `{field}` is not a regular expression")]
    Pattern {
        /// The rule.
        rule: usize,
        /// `when`, or the entry of `extract` or `extract_result`.
        field: String,
        /// The cause.
        #[source]
        source: regex::Error,
    },
    /// The expression of a piece must have exactly one capture group.
    #[error("rule {rule}: `{field}` has {groups} capture groups, one is needed")]
    Groups {
        /// The rule.
        rule: usize,
        /// The entry of `extract` or `extract_result`.
        field: String,
        /// The number that it has.
        groups: usize,
    },
    /// A text names a piece that there is none of.
    #[error("rule {rule}: `{field}` has `{{{name}}}`, but nothing extracts `{name}`")]
    UnknownPiece {
        /// The rule.
        rule: usize,
        /// `answer`, or the arguments of a call.
        field: &'static str,
        /// The name in the text.
        name: String,
    },
    /// The arguments of a call are not an object, whatever the pieces are.
    #[error("rule {rule}: the arguments of `{tool}` are not a JSON object")]
    Arguments {
        /// The rule.
        rule: usize,
        /// The tool.
        tool: String,
    },
    /// It neither says nor calls anything.
    #[error("rule {rule}: it needs `answer` or `call`")]
    Empty {
        /// The rule.
        rule: usize,
    },
    /// There is no result to extract from.
    #[error("rule {rule}: `extract_result` needs `after`")]
    NoResult {
        /// The rule.
        rule: usize,
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
        NAME
    }

    fn is_remote(&self) -> bool {
        false
    }

    async fn stream(&self, prompt: Prompt) -> Result<ModelStream, ModelError> {
        let applied = self.rules.iter().find_map(|rule| rule.apply(&prompt));
        let Applied { answer, chunks, delay, calls } = applied.unwrap_or_else(|| Applied::fallback(&self.fallback));
        let calls = tool_calls(calls, &prompt)?;
        let pieces = stream::iter(answer.map_or_else(Vec::new, |answer| split(answer, chunks)));
        let pieces = pieces.then(move |piece| async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            Ok(ModelEvent::Text(piece))
        });
        Ok(pieces.chain(stream::iter(calls.into_iter().map(|call| Ok(ModelEvent::Call(call))))).boxed())
    }
}

/// Numbers the calls, after those that the prompt has.
fn tool_calls(calls: Vec<(String, String)>, prompt: &Prompt) -> Result<Vec<ToolCall>, ModelError> {
    // Counted and not random, so that the same conversation has the same ids each time.
    let before = prompt.turns.iter().map(|turn| match turn {
        Turn::Agent { calls, .. } => calls.len(),
        Turn::User(_) | Turn::Tools(_) => 0,
    });
    let numbered = (before.sum::<usize>() + 1..).zip(calls);
    let call = |(number, (name, arguments))| {
        let arguments = Json::parse(arguments);
        let arguments = arguments.map_err(|error| ModelError { model: NAME.to_owned(), source: error.into() })?;
        Ok(ToolCall { id: format!("call-{number}"), name, arguments, signatures: Vec::new() })
    };
    numbered.map(call).collect()
}

/// Cuts a text into at most `count` pieces whose lengths differ by one character at most.
fn split(text: String, count: usize) -> Vec<String> {
    if count == 1 {
        return vec![text];
    }
    let characters: Vec<char> = text.chars().collect();
    let count = count.clamp(1, characters.len().max(1));
    let cut = |index: usize| index * characters.len() / count;
    (0..count).filter_map(|index| characters.get(cut(index)..cut(index + 1))).map(String::from_iter).collect()
}
