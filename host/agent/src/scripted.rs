//! A model without a network: answers and calls tools by rules, the same every time. For demonstrations and tests.
//!
//! It knows only what a real model would be told. A rule can pick values out of the message, the rendered instruction
//! and the result of a tool, never out of the session, so an answer that names the user proves that the instruction did.
//!
//! Whoever writes a script may be a stranger. What its patterns take is known before they are compiled, and what an answer
//! takes before it is looked for: what is not small is done by a thread of its own (`work.rs`), and too much is refused.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use annex_protocol::Json;
use async_trait::async_trait;
use futures::{StreamExt, stream};
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::model::{Model, ModelError, ModelEvent, ModelStream, Prompt, PromptTooLong, ToolCall, Turn};
use crate::work;

mod kept;
mod pattern;
mod rule;

use kept::Kept;
use rule::{Applied, Rule};

const NAME: &str = "scripted";
/// The most patterns in all rules of a script.
const MAX_PATTERNS: usize = 100;
/// Bytes of the texts of all of them.
const MAX_PATTERN_TEXT: usize = 8 << 10;
/// Bytes that all of them keep when they are compiled.
const MAX_KEPT: usize = 8 << 20;
/// Nanoseconds that a thread which serves others may take for an answer.
const SMALL_WORK: u64 = 2_000_000;
/// Nanoseconds that an answer may take at all.
const MAX_WORK: u64 = 4_000_000_000;

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
        source: Box<dyn Error + Send + Sync>,
    },
    /// A regular expression would take too much.
    #[error("rule {rule}: `{field}` {reason}")]
    TooLarge {
        /// The rule.
        rule: usize,
        /// `when`, or the entry of `extract` or `extract_result`.
        field: String,
        /// What it takes, what it may take, and what to do.
        reason: String,
    },
    /// A rule asks for too many pieces or calls.
    #[error("rule {rule}: `{field}` is {given}; at most {most} are allowed")]
    TooMany {
        /// The rule.
        rule: usize,
        /// `chunks` or `call`.
        field: &'static str,
        /// The number that it has.
        given: usize,
        /// The most.
        most: usize,
    },
    /// All rules together would take too much.
    #[error("its rules have {given} {what} together; at most {most} are allowed")]
    Script {
        /// What there is too much of.
        what: &'static str,
        /// So much of it.
        given: usize,
        /// The most.
        most: usize,
    },
    /// The scripts that are loaded leave no room for this one.
    #[error(
        "there is no room for the {bytes} bytes of its patterns beside those of the other agents that are loaded; let fewer          tenants be loaded at once"
    )]
    NoRoom {
        /// The bytes.
        bytes: usize,
    },
    /// The thread that compiles it ended.
    #[error("compiling the rules broke off")]
    BrokeOff {
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
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

/// A model that follows a script. Clones share what is compiled.
#[derive(Clone, Debug)]
pub struct ScriptedModel {
    script: Arc<Script>,
    /// For work that is not small: one tenant does one at a time.
    place: Arc<Semaphore>,
}

#[derive(Debug)]
struct Script {
    rules: Vec<Rule>,
    fallback: String,
    _kept: Kept,
}

impl ScriptedModel {
    /// Compiles a script at once, on this thread.
    ///
    /// # Errors
    /// Says which rule is wrong, see [`ScriptError`].
    pub fn new(config: ScriptConfig) -> Result<Self, ScriptError> {
        let fallback = config.fallback.clone();
        let (rules, bytes) = config.into_rules()?;
        let kept = Kept::reserve(bytes).ok_or(ScriptError::NoRoom { bytes })?;
        let script = Arc::new(Script { rules, fallback, _kept: kept });
        Ok(Self { script, place: Arc::new(Semaphore::new(1)) })
    }

    /// The same by a thread that serves nobody, of which there are few.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub async fn compile(config: ScriptConfig) -> Result<Self, ScriptError> {
        aside(move || Self::new(config)).await
    }

    /// Checks that a script can be compiled, whatever room there is now.
    ///
    /// # Errors
    /// As [`Self::new`], without [`ScriptError::NoRoom`].
    pub async fn check(config: ScriptConfig) -> Result<(), ScriptError> {
        aside(move || config.into_rules().map(drop)).await
    }
}

async fn aside<T: Send + 'static>(
    compile: impl FnOnce() -> Result<T, ScriptError> + Send + 'static,
) -> Result<T, ScriptError> {
    let compiled = work::aside(&work::COMPILING, move |_| compile()).await;
    compiled.unwrap_or_else(|broke_off| Err(ScriptError::BrokeOff { source: broke_off.into() }))
}

impl ScriptConfig {
    /// The compiled rules, and the bytes that they keep.
    fn into_rules(self) -> Result<(Vec<Rule>, usize), ScriptError> {
        self.check()?;
        let mut room = MAX_KEPT;
        let rules = self.rules.into_iter().enumerate().map(|(index, rule)| Rule::compile(index + 1, rule, &mut room));
        let rules = rules.collect::<Result<_, _>>()?;
        Ok((rules, MAX_KEPT - room))
    }

    /// Checks what can be told without compiling anything.
    fn check(&self) -> Result<(), ScriptError> {
        let patterns = self
            .rules
            .iter()
            .flat_map(|rule| [&rule.when].into_iter().chain(rule.extract.values()).chain(rule.extract_result.values()));
        let (number, bytes) = patterns.fold((0, 0), |(number, bytes), pattern| (number + 1, bytes + pattern.len()));
        let most = [("patterns", number, MAX_PATTERNS), ("bytes of patterns", bytes, MAX_PATTERN_TEXT)];
        match most.into_iter().find(|(_, given, most)| given > most) {
            Some((what, given, most)) => Err(ScriptError::Script { what, given, most }),
            None => Ok(()),
        }
    }
}

impl Script {
    /// Nanoseconds of one core that [`Self::answer`] takes at most.
    fn cost(&self, prompt: &Prompt) -> u64 {
        self.rules.iter().map(|rule| rule.cost(prompt)).fold(0, u64::saturating_add)
    }

    /// The answer and the calls of the first rule that applies.
    fn answer(&self, prompt: &Prompt, given_up: &dyn Fn() -> bool) -> Applied {
        let mut rules = self.rules.iter().take_while(|_| !given_up());
        rules.find_map(|rule| rule.apply(prompt, given_up)).unwrap_or_else(|| Applied::fallback(&self.fallback))
    }
}

impl ScriptedModel {
    /// Finds the answer on this thread if that is little work, and on one for such work otherwise. Returns the prompt with it.
    async fn answer(&self, prompt: Prompt) -> Result<(Applied, Prompt), ModelError> {
        let failed = |source: Box<dyn Error + Send + Sync>| ModelError { model: NAME.to_owned(), source };
        let cost = self.script.cost(&prompt);
        if cost > MAX_WORK {
            return Err(failed(PromptTooLong.into()));
        }
        if cost <= SMALL_WORK {
            return Ok((self.script.answer(&prompt, &|| false), prompt));
        }
        // The semaphore is never closed.
        let place = Arc::clone(&self.place).acquire_owned().await;
        let script = Arc::clone(&self.script);
        let answering = work::aside(&work::ANSWERING, move |given_up| {
            let _place = place;
            (script.answer(&prompt, given_up), prompt)
        });
        answering.await.map_err(|panicked| failed(panicked.into()))
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
        let (Applied { answer, chunks, delay, calls }, prompt) = self.answer(prompt).await?;
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
