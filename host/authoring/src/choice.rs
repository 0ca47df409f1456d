//! The choices that a new project is made of.

use std::fmt;

use annex_runtime::Hook;

/// The choices for a new project.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Its name, and that of its folder and component.
    pub name: ProjectName,
    /// The language.
    pub language: Language,
    /// Its hooks beside `descriptor`, in the contract's order.
    pub hooks: Vec<Hook>,
    /// The capabilities that it calls.
    pub capabilities: Vec<Capability>,
    /// Its URI; without one it is `https://example.com/extensions/NAME/v1`, which is nobody's.
    pub uri: Option<String>,
}

/// The beginning of the URIs of extensions that have none of their own yet.
pub const EXAMPLE_URI: &str = "https://example.com/";

impl Choice {
    /// # Errors
    /// When a tool of the language cannot do what is chosen.
    pub fn check(&self) -> Result<(), String> {
        let is_script = matches!(self.language, Language::JavaScript | Language::TypeScript);
        if is_script && self.capabilities.contains(&Capability::Http) {
            let reason = "the tool that makes components of JavaScript, componentize-qjs 0.4, cannot import wasi:http; choose \
                          another language, or leave out http";
            return Err(reason.to_owned());
        }
        Ok(())
    }
}

/// A name that every language takes for a package: lower-case letters and digits in words with a `-` between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectName(String);

/// Bytes of a name.
const MAX_NAME: usize = 64;

/// Words that are no names of packages: of Rust, of the tools, and of what the projects themselves use.
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
    /// # Errors
    /// The rule that the text breaks.
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
            "is a word that a language or a tool keeps to itself"
        } else {
            return Ok(Self(text.to_owned()));
        };
        Err(format!("{text:?} {reason}; take a name such as word-count"))
    }

    /// The name as it is: `word-count`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// With `_` between its words: `word_count`.
    #[must_use]
    pub fn snake(&self) -> String {
        self.0.replace('-', "_")
    }

    /// With a capital at each word: `WordCount`.
    #[must_use]
    pub fn camel(&self) -> String {
        upper_camel(&self.0)
    }
}

/// The name of a project or of something in WIT, `declare-methods`, as `DeclareMethods`.
pub(crate) fn upper_camel(name: &str) -> String {
    let capital = |word: &str| word.get(..1).unwrap_or_default().to_uppercase() + word.get(1..).unwrap_or_default();
    name.split('-').map(capital).collect()
}

impl fmt::Display for ProjectName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A language that projects can be written in.
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

    /// The word for it on the command line.
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

    /// # Errors
    /// Names those that there are.
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

/// Something of the host that an extension can call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// The operator's parameters.
    Parameters,
    /// Keys of its own.
    KeyValue,
    /// The time of day.
    Clock,
    /// Random numbers.
    Random,
    /// Requests to others.
    Http,
    /// Validation in the host.
    JsonSchema,
    /// The state of the conversation.
    SessionState,
    /// The task.
    Task,
    /// The caller's tasks.
    Tasks,
    /// Taking up tasks that it interrupted.
    TaskResumption,
    /// The steps of the agent.
    AgentSteps,
    /// Lines in the host's log.
    Logging,
}

impl Capability {
    /// Every capability.
    pub const ALL: [Self; 12] = [
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
        Self::Logging,
    ];

    /// The word for it on the command line: the name of its grant, where there is one.
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
            Self::Logging => "logging",
        }
    }

    /// # Errors
    /// Names those that there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        one_of(text, Self::ALL, Self::name, "capability")
    }
}

/// The hooks that can be chosen; `descriptor` is always there.
pub const HOOKS: [Hook; 8] = [
    Hook::Card,
    Hook::Activation,
    Hook::Message,
    Hook::State,
    Hook::Transition,
    Hook::Response,
    Hook::Method,
    Hook::Client,
];

/// Reads the name of a hook that can be chosen.
///
/// # Errors
/// Names those that there are.
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
        assert!(parse_hook("descriptor").expect_err("not to be chosen").contains("card, activation, message"));
    }
}
