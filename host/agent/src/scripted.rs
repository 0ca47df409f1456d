//! A model without a network: answers and calls tools by rules, the same every time. For demonstrations and tests.
//!
//! The model sees only the prompt, as a real model does. A rule can pick values out of the message, the rendered
//! instruction and the result of a tool, never out of the session. An answer that contains the user's name therefore
//! proves that the instruction contained the name.
//!
//! A script may come from a tenant that is not trusted. The cost of its patterns is known before they are compiled, and
//! the cost of an answer before the search begins. Larger work runs on a thread of its own (`work.rs`), and excessive
//! work is refused.

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

mod pattern;
mod pattern_memory;
mod rule;

use pattern_memory::Reservation;
use rule::{Rule, RuleAnswer};

const NAME: &str = "scripted";
/// The maximum number of patterns in all rules of a script together.
const MAX_PATTERNS: usize = 100;
/// The maximum size of the texts of all patterns together, in bytes.
const MAX_PATTERN_TEXT: usize = 8 << 10;
/// The maximum size of all compiled patterns together, in bytes.
const MAX_KEPT: usize = 8 << 20;
/// The maximum CPU time, in nanoseconds, for an answer that is found on a thread that also serves requests.
const SMALL_WORK: u64 = 2_000_000;
/// The maximum CPU time, in nanoseconds, for an answer.
const MAX_WORK: u64 = 4_000_000_000;

/// The script of a [`ScriptedModel`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptConfig {
    /// The rules. The first rule that applies answers.
    #[serde(default)]
    pub rules: Vec<RuleConfig>,
    /// The answer if no rule applies.
    pub fallback: String,
    /// The maximum size of the compiled patterns of a tenant's script, in bytes. `None` for a script of the operator.
    #[serde(skip)]
    share: Option<usize>,
}

/// A condition, with an answer and tool calls.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    /// A regular expression that is searched for in the user's last message. `(?i)` ignores case.
    pub when: String,
    /// The tool whose result came last. If set, the rule applies to that result; if not, to the user's message.
    pub after: Option<String>,
    /// Names for pieces of the instruction. Each regular expression has one group, which captures the piece. The rule applies
    /// only if all expressions match. The named groups of `when` are pieces too. Example: `name = "named (\\w+)"`.
    #[serde(default)]
    pub extract: BTreeMap<String, String>,
    /// Names for pieces of the tool's result, each with a regular expression as in `extract`. The expressions are searched in
    /// the JSON text of the result.
    #[serde(default)]
    pub extract_result: BTreeMap<String, String>,
    /// The answer. `{name}` is replaced by the piece of that name.
    pub answer: Option<String>,
    /// The tools to call, all at the same time. With an `answer`, that text is shown until the results are known.
    #[serde(default)]
    pub call: Vec<CallConfig>,
    /// The number of pieces of similar length in which the answer is sent. Default: one.
    pub chunks: Option<usize>,
    /// The time to wait before each piece, in milliseconds. Default: none.
    pub delay_ms: Option<u64>,
}

/// A tool call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallConfig {
    /// The name of the called tool.
    pub tool: String,
    /// The arguments: the JSON text of an object. `{name}` is replaced by the piece of that name, escaped for a JSON
    /// string. Default: `{}`.
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
        /// The number of the rule, from 1.
        rule: usize,
        /// `when`, or the entry of `extract` or `extract_result`.
        field: String,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A regular expression needs too much memory or time.
    #[error("rule {rule}: `{field}` {reason}")]
    TooLarge {
        /// The number of the rule, from 1.
        rule: usize,
        /// `when`, or the entry of `extract` or `extract_result`.
        field: String,
        /// The reason: the cost, the limit, and how to change the expression.
        reason: String,
    },
    /// A rule has too many pieces or calls.
    #[error("rule {rule}: `{field}` is {given}; at most {most} are allowed")]
    TooMany {
        /// The number of the rule, from 1.
        rule: usize,
        /// `chunks` or `call`.
        field: &'static str,
        /// The number of pieces or calls in the rule.
        given: usize,
        /// The largest allowed number of pieces or calls.
        most: usize,
    },
    /// All rules together exceed a limit.
    #[error("its rules have {given} {what} together; at most {most} are allowed")]
    Script {
        /// The name of the quantity that exceeds its limit when all rules are counted together, such as `patterns`.
        what: &'static str,
        /// The amount that the script has.
        given: usize,
        /// The largest allowed amount.
        most: usize,
    },
    /// The loaded scripts of other agents leave too little memory for this script.
    #[error(
        "there is no room for the {bytes} bytes of its patterns beside those of the other agents that are loaded; let fewer \
         tenants be loaded at once"
    )]
    NoRoom {
        /// The size of this script's patterns, in bytes.
        bytes: usize,
    },
    /// The thread that compiled the script ended early.
    #[error("compiling the rules broke off")]
    BrokeOff {
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The regular expression of a piece does not have exactly one capture group.
    #[error("rule {rule}: `{field}` has {groups} capture groups, one is needed")]
    Groups {
        /// The number of the rule, from 1.
        rule: usize,
        /// The entry of `extract` or `extract_result`.
        field: String,
        /// The number of groups in the expression.
        groups: usize,
    },
    /// A text names an unknown piece.
    #[error("rule {rule}: `{field}` has `{{{name}}}`, but nothing extracts `{name}`")]
    UnknownPiece {
        /// The number of the rule, from 1.
        rule: usize,
        /// `answer`, or the arguments of a call.
        field: &'static str,
        /// The name in the text.
        name: String,
    },
    /// The arguments of a call are not a JSON object.
    #[error("rule {rule}: the arguments of `{tool}` are not a JSON object")]
    Arguments {
        /// The number of the rule, from 1.
        rule: usize,
        /// The name of the called tool.
        tool: String,
    },
    /// The rule has neither an answer nor a call.
    #[error("rule {rule}: it needs `answer` or `call`")]
    Empty {
        /// The number of the rule, from 1.
        rule: usize,
    },
    /// The rule has `extract_result` but no `after`.
    #[error("rule {rule}: `extract_result` needs `after`")]
    NoResult {
        /// The number of the rule, from 1.
        rule: usize,
    },
}

/// A model that follows a script. Clones share the compiled script.
#[derive(Clone, Debug)]
pub struct ScriptedModel {
    script: Arc<Script>,
    /// Lets one piece of larger work run at a time. Clones of the model share this limit.
    place: Arc<Semaphore>,
}

#[derive(Debug)]
struct Script {
    rules: Vec<Rule>,
    fallback: String,
    _kept: Reservation,
}

impl ScriptedModel {
    /// Compiles a script on the current thread.
    ///
    /// # Errors
    /// Names the faulty rule, see [`ScriptError`].
    pub fn new(config: ScriptConfig) -> Result<Self, ScriptError> {
        let fallback = config.fallback.clone();
        let room = if config.share.is_some() { &pattern_memory::SHARED } else { &pattern_memory::OWN };
        let (rules, bytes) = config.into_rules()?;
        let kept = room.reserve(bytes).ok_or(ScriptError::NoRoom { bytes })?;
        let script = Arc::new(Script { rules, fallback, _kept: kept });
        Ok(Self { script, place: Arc::new(Semaphore::new(1)) })
    }

    /// Compiles a script on one of a few threads that serve no requests.
    ///
    /// # Errors
    /// The errors of [`Self::new`], and [`ScriptError::BrokeOff`] if the thread ended early.
    pub async fn compile(config: ScriptConfig) -> Result<Self, ScriptError> {
        aside(move || Self::new(config)).await
    }

    /// Checks that a script compiles, without reserving memory for the script.
    ///
    /// # Errors
    /// The errors of [`Self::compile`] except [`ScriptError::NoRoom`].
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
    /// Returns this config with a limit on the memory of the script's patterns. The limit is an equal share of the memory for
    /// tenants' scripts, so that `scripts` scripts fit into that memory together.
    #[must_use]
    pub fn for_one_of(self, scripts: usize) -> Self {
        Self { share: Some(pattern_memory::share(scripts)), ..self }
    }

    /// Compiles the rules. Also returns the size of the compiled patterns in bytes.
    fn into_rules(self) -> Result<(Vec<Rule>, usize), ScriptError> {
        self.check()?;
        let most = self.share.map_or(MAX_KEPT, |share| share.min(MAX_KEPT));
        let mut room = most;
        let rules = self.rules.into_iter().enumerate().map(|(index, rule)| Rule::compile(index + 1, rule, &mut room));
        let rules = rules.collect::<Result<_, _>>()?;
        Ok((rules, most - room))
    }

    /// Checks the limits that need no compilation.
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
    /// The maximum CPU time, in nanoseconds, that [`Self::answer`] takes.
    fn cost(&self, prompt: &Prompt) -> u64 {
        self.rules.iter().map(|rule| rule.cost(prompt)).fold(0, u64::saturating_add)
    }

    /// Returns the answer and the calls of the first rule that applies. If no rule applies, returns the fallback.
    fn answer(&self, prompt: &Prompt, given_up: &dyn Fn() -> bool) -> RuleAnswer {
        let mut rules = self.rules.iter().take_while(|_| !given_up());
        rules.find_map(|rule| rule.apply(prompt, given_up)).unwrap_or_else(|| RuleAnswer::fallback(&self.fallback))
    }
}

impl ScriptedModel {
    /// Finds the answer. If the search may take long, it runs on a separate thread. Also returns the prompt.
    async fn answer(&self, prompt: Prompt) -> Result<(RuleAnswer, Prompt), ModelError> {
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

    async fn stream(&self, prompt: Prompt) -> Result<ModelStream, ModelError> {
        let (RuleAnswer { answer, chunks, delay, calls }, prompt) = self.answer(prompt).await?;
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

/// Numbers the calls, continuing after the calls in the prompt.
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

/// Cuts a text into at most `count` pieces, whose lengths differ by at most one character.
fn split(text: String, count: usize) -> Vec<String> {
    if count == 1 {
        return vec![text];
    }
    let characters: Vec<char> = text.chars().collect();
    let count = count.clamp(1, characters.len().max(1));
    let cut = |index: usize| index * characters.len() / count;
    (0..count).filter_map(|index| characters.get(cut(index)..cut(index + 1))).map(String::from_iter).collect()
}
