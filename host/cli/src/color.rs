//! `--color`: whether text for people is coloured.

use std::env;
use std::io::{self, IsTerminal};
use std::sync::OnceLock;

use clap::{ColorChoice, ValueEnum};

/// When text for people is coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    Always,
    Never,
}

/// The value of `--color` for this process.
static CHOICE: OnceLock<Color> = OnceLock::new();

impl Color {
    /// Finds the value of `--color` before clap parses the arguments, because clap's errors are coloured too. Here an
    /// invalid value counts as `auto`, because clap reports it later.
    pub(crate) fn among(words: impl Iterator<Item = String>) -> Self {
        let mut words = words.take_while(|word| word != "--");
        let mut choice = None;
        while let Some(word) = words.next() {
            if word == "--color" {
                choice = words.next();
            } else if let Some(value) = word.strip_prefix("--color=") {
                choice = Some(value.to_owned());
            }
        }
        choice.and_then(|choice| Self::from_str(&choice, false).ok()).unwrap_or_default()
    }

    /// Uses this choice for the rest of the process.
    pub(crate) fn choose(self) {
        // Chosen once, at the start.
        let _ = CHOICE.set(self);
    }
}

impl From<Color> for ColorChoice {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => Self::Auto,
            Color::Always => Self::Always,
            Color::Never => Self::Never,
        }
    }
}

/// The style of a word that states an outcome.
#[derive(Clone, Copy)]
pub(crate) enum Tint {
    Good,
    Warning,
    Bad,
}

impl Tint {
    /// Returns the text in this colour if standard output is coloured. Otherwise returns it unchanged.
    pub(crate) fn on_standard_output(self, text: &str) -> String {
        self.paint(text, is_chosen(io::stdout().is_terminal()))
    }

    /// Returns the text in this colour if standard error is coloured. Otherwise returns it unchanged.
    pub(crate) fn on_standard_error(self, text: &str) -> String {
        self.paint(text, on_standard_error())
    }

    fn paint(self, text: &str, coloured: bool) -> String {
        let code = match self {
            Self::Good => "32",
            Self::Warning => "1;33",
            Self::Bad => "1;31",
        };
        if coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// True if text on standard error is coloured.
pub(crate) fn on_standard_error() -> bool {
    is_chosen(io::stderr().is_terminal())
}

fn is_chosen(is_terminal: bool) -> bool {
    is_wanted(CHOICE.get().copied().unwrap_or_default(), is_terminal, |name| {
        env::var_os(name).is_some_and(|value| !value.is_empty() && (name == "NO_COLOR" || value == "dumb"))
    })
}

/// Decides whether a stream is coloured. `forbids` returns true for the name of an environment variable that turns
/// colours off.
fn is_wanted(color: Color, is_terminal: bool, forbids: impl Fn(&str) -> bool) -> bool {
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => is_terminal && !forbids("NO_COLOR") && !forbids("TERM"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Color, is_wanted};

    #[test]
    fn a_terminal_is_coloured_unless_a_variable_or_a_word_says_otherwise() {
        assert!(is_wanted(Color::Auto, true, |_| false));
        assert!(!is_wanted(Color::Auto, false, |_| false));
        assert!(!is_wanted(Color::Auto, true, |name| name == "NO_COLOR"));
        assert!(!is_wanted(Color::Auto, true, |name| name == "TERM"));
        assert!(is_wanted(Color::Always, false, |_| true));
        assert!(!is_wanted(Color::Never, true, |_| false));
    }

    #[test]
    fn the_choice_is_found_among_the_words_of_a_command() {
        let found = |words: &str| Color::among(words.split(' ').map(str::to_owned));
        assert_eq!(found("annex card http://x --color never"), Color::Never);
        assert_eq!(found("annex --color=always card"), Color::Always);
        assert_eq!(found("annex send http://x -- --color=always"), Color::Auto);
        assert_eq!(found("annex --color sometimes"), Color::Auto);
    }
}
