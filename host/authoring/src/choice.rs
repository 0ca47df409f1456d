//! The options of a new project.

use std::fmt;

use annex_runtime::Hook;

/// The options of a new project.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The name of the project. The project's folder and component have the same name.
    pub name: ProjectName,
    /// The language of the sources.
    pub language: Language,
    /// The hooks of the extension, in the contract's order. `descriptor` is not among them, because every project has
    /// it.
    pub hooks: Vec<Hook>,
    /// The capabilities that the extension uses.
    pub capabilities: Vec<Capability>,
    /// The URI. Default: `https://example.com/extensions/NAME/v1`, an example that must be replaced.
    pub uri: Option<String>,
}

/// The beginning of every default URI.
pub const EXAMPLE_URI: &str = "https://example.com/";

impl Choice {
    /// Checks that the options fit each other, and that the language supports them.
    ///
    /// # Errors
    /// When two hooks exclude each other, or the tools of the language do not support an option.
    pub fn check(&self) -> Result<(), String> {
        let is_script = matches!(self.language, Language::JavaScript | Language::TypeScript);
        if is_script && self.capabilities.contains(&Capability::Http) {
            let reason = "the tool that makes components of JavaScript, componentize-qjs 0.4, cannot import wasi:http; choose \
                          another language, or leave out http";
            return Err(reason.to_owned());
        }
        if self.hooks.contains(&Hook::Card) && self.hooks.contains(&Hook::LiveCard) {
            let reason = "card and live-card are the same entry on the Agent Card; choose one of them";
            return Err(reason.to_owned());
        }
        Ok(())
    }
}

/// A name that every language accepts for a package: words of lower-case letters and digits, joined by `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectName(String);

/// The longest name, in bytes.
const MAX_NAME: usize = 64;

/// Names that a project must not have: reserved words of Rust and of the tools, and names that the projects themselves
/// use.
const RESERVED: [&str; 16] = [
    "annex-sdk",
    "as",
    "async",
    "await",
    "build",
    "core",
    "deps",
    "extension",
    "false",
    "generated",
    "self",
    "std",
    "super",
    "test",
    "true",
    "wit",
];

impl ProjectName {
    /// Parses the name of a project.
    ///
    /// # Errors
    /// When the name breaks a rule. The error names the rule.
    pub fn parse(text: &str) -> Result<Self, String> {
        let reason = if text.is_empty() {
            "is empty"
        } else if text.len() > MAX_NAME {
            "has more than 64 characters"
        } else if !text.starts_with(|first: char| first.is_ascii_lowercase()) {
            "does not begin with a lower-case letter"
        } else if !text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
            "has other characters than a-z, 0-9 and `-`"
        } else if text.ends_with('-') || text.contains("--") {
            "has a `-` at its end, or two in a row"
        } else if text.split('-').any(|word| !word.starts_with(|first: char| first.is_ascii_lowercase())) {
            // WIT wants it so.
            "has a word that begins with a digit"
        } else if RESERVED.contains(&text) {
            "is a reserved word of a language or a tool"
        } else {
            return Ok(Self(text.to_owned()));
        };
        Err(format!("{text:?} {reason}; take a name such as word-count"))
    }

    /// The name as it was given, such as `word-count`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name with `_` between its words, such as `word_count`.
    #[must_use]
    pub fn snake(&self) -> String {
        self.0.replace('-', "_")
    }

    /// The words of the name capitalised and joined, such as `WordCount`.
    #[must_use]
    pub fn camel(&self) -> String {
        upper_camel(&self.0)
    }
}

/// Capitalises the words of a name with `-` and joins them: `declare-methods` becomes `DeclareMethods`.
pub(crate) fn upper_camel(name: &str) -> String {
    let capital = |word: &str| word.get(..1).unwrap_or_default().to_uppercase() + word.get(1..).unwrap_or_default();
    name.split('-').map(capital).collect()
}

impl fmt::Display for ProjectName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A language that `annex new` has templates for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Rust, with the SDK.
    Rust,
    /// JavaScript, in QuickJS.
    JavaScript,
    /// TypeScript, bundled to JavaScript.
    TypeScript,
    /// Python, in CPython.
    Python,
    /// C, with clang.
    C,
    /// Go, with its standard compiler.
    Go,
}

impl Language {
    /// Every language.
    pub const ALL: [Self; 6] = [Self::Rust, Self::JavaScript, Self::TypeScript, Self::Python, Self::C, Self::Go];

    /// The name of the language on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::JavaScript => "js",
            Self::TypeScript => "ts",
            Self::Python => "python",
            Self::C => "c",
            Self::Go => "go",
        }
    }

    /// Parses the name of a language.
    ///
    /// # Errors
    /// When the language is unknown. The error lists the valid ones.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "javascript" => Ok(Self::JavaScript),
            "typescript" => Ok(Self::TypeScript),
            "py" => Ok(Self::Python),
            "golang" => Ok(Self::Go),
            other => one_of(other, Self::ALL, Self::name, "language"),
        }
    }
}

/// A function of the host that an extension can call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// The operator's parameters.
    Parameters,
    /// Stored keys that only this extension can read.
    KeyValue,
    /// The time of day.
    Clock,
    /// Random numbers.
    Random,
    /// HTTP requests to other servers.
    Http,
    /// JSON Schema validation in the host.
    JsonSchema,
    /// The state of the conversation.
    SessionState,
    /// The task of the turn.
    Task,
    /// The caller's tasks.
    Tasks,
    /// Resuming tasks that the extension interrupted.
    TaskResumption,
    /// The steps that the agent took in this turn.
    AgentSteps,
    /// Who calls.
    Caller,
    /// Setting metadata of the turn's task.
    TaskMetadata,
    /// Lines in the host's log.
    Logging,
}

impl Capability {
    /// Every capability.
    pub const ALL: [Self; 14] = [
        Self::Parameters,
        Self::KeyValue,
        Self::Clock,
        Self::Random,
        Self::Http,
        Self::JsonSchema,
        Self::SessionState,
        Self::Task,
        Self::Tasks,
        Self::TaskResumption,
        Self::AgentSteps,
        Self::Caller,
        Self::TaskMetadata,
        Self::Logging,
    ];

    /// The name of the capability on the command line. If the capability needs a grant, the grant has the same name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parameters => "parameters",
            Self::KeyValue => "keyvalue",
            Self::Clock => "clock",
            Self::Random => "random",
            Self::Http => "http",
            Self::JsonSchema => "json-schema",
            Self::SessionState => "session-state",
            Self::Task => "task",
            Self::Tasks => "tasks",
            Self::TaskResumption => "task-resumption",
            Self::AgentSteps => "agent-steps",
            Self::Caller => "caller",
            Self::TaskMetadata => "task-metadata",
            Self::Logging => "logging",
        }
    }

    /// Parses the name of a capability.
    ///
    /// # Errors
    /// When the capability is unknown. The error lists the valid ones.
    pub fn parse(text: &str) -> Result<Self, String> {
        one_of(text, Self::ALL, Self::name, "capability")
    }
}

/// The hooks that an author can choose. Every project has `descriptor` in addition.
pub const HOOKS: [Hook; 14] = [
    Hook::Card,
    Hook::LiveCard,
    Hook::Activation,
    Hook::Message,
    Hook::State,
    Hook::Transition,
    Hook::Reply,
    Hook::Steering,
    Hook::Output,
    Hook::Response,
    Hook::Reads,
    Hook::ExtendedCard,
    Hook::Method,
    Hook::Client,
];

/// Parses the name of a hook that an author can choose.
///
/// # Errors
/// When the hook is unknown. The error lists the valid ones.
pub fn parse_hook(text: &str) -> Result<Hook, String> {
    one_of(text, HOOKS, Hook::name, "hook")
}

fn one_of<T: Copy, const N: usize>(
    text: &str,
    all: [T; N],
    name: impl Fn(T) -> &'static str,
    what: &str,
) -> Result<T, String> {
    let text = text.trim();
    let found = all.into_iter().find(|item| name(*item) == text);
    found.ok_or_else(|| format!("there is no {what} {text:?}; there are {}", all.map(name).join(", ")))
}

#[cfg(test)]
mod tests {
    use super::{Language, ProjectName, parse_hook};

    #[test]
    fn a_name_fits_every_language() {
        for good in ["a", "word-count", "x9", "quota-v2"] {
            assert_eq!(ProjectName::parse(good).expect("a name").as_str(), good);
        }
        let long = "a".repeat(65);
        for bad in ["", "Word", "9a", "a-9", "a--b", "a-", "-a", "a b", "ä", "../a", "a/b", "std", "async", &long] {
            assert!(ProjectName::parse(bad).is_err(), "{bad}");
        }
        let name = ProjectName::parse("word-count").expect("a name");
        assert_eq!((name.snake().as_str(), name.camel().as_str()), ("word_count", "WordCount"));
    }

    #[test]
    fn a_wrong_word_is_told_the_right_ones() {
        assert_eq!(
            Language::parse("java").expect_err("unknown"),
            "there is no language \"java\"; there are rust, js, ts, python, c, go"
        );
        assert!(parse_hook("descriptor").expect_err("not to be chosen").contains("card, live-card, activation"));
    }
}
