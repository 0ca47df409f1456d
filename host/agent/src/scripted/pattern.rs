//! A pattern of a script, with limits on the memory of the compiled form and on the time of a search.

use std::sync::Mutex;

use regex_automata::Input;
use regex_automata::meta::{self, Cache, Regex};
use regex_automata::nfa::thompson;
use regex_automata::util::captures::Captures;
use regex_automata::util::primitives::PatternID;
use regex_automata::util::syntax;

/// The longest pattern, in bytes. Its intermediate form needs about 64 KiB per byte at most.
const MAX_TEXT: usize = 1 << 10;
/// The largest automaton for reading a text from left to right, in bytes.
const MAX_AUTOMATON: usize = 256 << 10;
/// The maximum size, in bytes, of the further automata that a search can use, such as the automaton for reading from
/// right to left.
const MAX_OTHER_AUTOMATON: usize = 512 << 10;
/// The size of an empty pattern's automaton, in bytes. Every automaton has this part, and no search reads this part.
const EMPTY_AUTOMATON: usize = 512;
/// The maximum number of capture groups. A search with captures moves the positions of all groups.
const MAX_GROUPS: usize = 32;
/// The number of capture groups whose positions take as much time as one search without captures.
const GROUPS_OF_A_SEARCH: u64 = 4;
/// The size in bytes of a table that a search fills while reading. A search may have two.
const SEARCH_TABLE: usize = 256 << 10;
/// The maximum size of the tables that are kept for the next search, in bytes. Larger tables are dropped after the
/// search.
const KEPT_TABLES: usize = 48 << 10;

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    regex: Regex,
    /// The tables of the last search. Creating new tables takes longer than most searches.
    tables: Mutex<Option<Cache>>,
    /// The maximum CPU time, in nanoseconds, that a search takes per byte of text. The value is the size of the
    /// automaton in bytes, without [`EMPTY_AUTOMATON`]. The slowest searches in measurements took 0.6 times as long.
    nanos_per_byte: u64,
}

/// The reason why a pattern cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum PatternError {
    #[error("is not a regular expression")]
    Syntax(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("{0}")]
    TooLarge(String),
}

impl Pattern {
    /// Compiles a pattern of at most [`MAX_TEXT`] bytes. Needs at most a tenth of a second and 64 MiB.
    pub(super) fn compile(text: &str) -> Result<Self, PatternError> {
        if text.len() > MAX_TEXT {
            let bytes = text.len();
            return Err(PatternError::TooLarge(format!(
                "has {bytes} bytes; at most {MAX_TEXT} are allowed, so spread it over several rules"
            )));
        }
        let parsed = syntax::parse(text).map_err(|error| PatternError::Syntax(error.into()))?;
        let groups = parsed.properties().explicit_captures_len();
        if groups > MAX_GROUPS {
            return Err(PatternError::TooLarge(format!(
                "has {groups} capture groups; at most {MAX_GROUPS} are allowed, and (?:…) captures nothing"
            )));
        }
        let too_large = || {
            PatternError::TooLarge(format!(
                "takes more than {MAX_AUTOMATON} bytes when it is compiled; repeat less, or take (?-u:\\w) in place of \\w, \
                 which knows all letters of Unicode"
            ))
        };
        // The limit ends the build itself: nested repetitions of a few bytes ask for more memory than there is.
        let config = thompson::Config::new().nfa_size_limit(Some(MAX_AUTOMATON));
        let automaton = thompson::Compiler::new().configure(config).build_from_hir(&parsed);
        let automaton = automaton.map_err(|_| too_large())?.memory_usage();
        let config = meta::Config::new()
            .nfa_size_limit(Some(MAX_OTHER_AUTOMATON))
            .hybrid_cache_capacity(SEARCH_TABLE)
            .onepass_size_limit(Some(MAX_AUTOMATON))
            .dfa(false);
        let regex = meta::Builder::new().configure(config).build_from_hir(&parsed).map_err(|_| too_large())?;
        let nanos_per_byte = u64::try_from(automaton.saturating_sub(EMPTY_AUTOMATON)).unwrap_or(u64::MAX);
        Ok(Self { regex, tables: Mutex::default(), nanos_per_byte })
    }

    /// The memory of the compiled pattern, in bytes.
    pub(super) fn weight(&self) -> usize {
        self.regex.memory_usage().saturating_add(KEPT_TABLES)
    }

    /// The maximum CPU time, in nanoseconds, that a search takes in a text of `bytes` bytes.
    pub(super) fn to_find(&self, bytes: usize) -> u64 {
        self.nanos_per_byte.saturating_mul(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// The maximum CPU time, in nanoseconds, that a search takes in a text of `bytes` bytes if it also captures the
    /// groups.
    pub(super) fn to_capture(&self, bytes: usize) -> u64 {
        let groups = u64::try_from(self.groups()).unwrap_or(u64::MAX);
        // The match is found first, and then a second time with its groups.
        self.to_find(bytes).saturating_mul(2 + groups / GROUPS_OF_A_SEARCH)
    }

    /// The number of groups, without group 0.
    pub(super) fn groups(&self) -> usize {
        self.regex.group_info().all_group_len().saturating_sub(1)
    }

    /// The names of the groups.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.regex.group_info().pattern_names(PatternID::ZERO).flatten()
    }

    /// Tells whether the text matches.
    pub(super) fn is_in(&self, text: &str) -> bool {
        let first = Input::new(text).earliest(true);
        self.with_tables(|tables| self.regex.search_half_with(tables, &first).is_some())
    }

    /// Searches the text and returns the first match. `None` if nothing matches.
    pub(super) fn captures<'a>(&self, text: &'a str) -> Option<CapturedPieces<'a>> {
        let mut groups = self.regex.create_captures();
        self.with_tables(|tables| self.regex.search_captures_with(tables, &Input::new(text), &mut groups));
        groups.is_match().then_some(CapturedPieces { text, groups })
    }

    /// Runs a search with the kept tables. Without them the regex engine would keep tables of any size for each thread.
    fn with_tables<T>(&self, search: impl FnOnce(&mut Cache) -> T) -> T {
        // Another thread is searching with the tables, or has panicked.
        let Ok(mut kept) = self.tables.try_lock() else { return search(&mut self.regex.create_cache()) };
        let mut tables = kept.take().unwrap_or_else(|| self.regex.create_cache());
        let found = search(&mut tables);
        *kept = Some(tables).filter(|tables| tables.memory_usage() <= KEPT_TABLES);
        found
    }
}

/// The texts that the groups of a pattern have captured.
pub(super) struct CapturedPieces<'a> {
    text: &'a str,
    groups: Captures,
}

impl<'a> CapturedPieces<'a> {
    pub(super) fn name(&self, name: &str) -> Option<&'a str> {
        self.text.get(self.groups.get_group_by_name(name)?.range())
    }

    /// The text of a group. Group 0 is the whole match.
    pub(super) fn get(&self, index: usize) -> Option<&'a str> {
        self.text.get(self.groups.get_group(index)?.range())
    }
}

#[cfg(test)]
mod tests {
    use super::{Pattern, PatternError};

    fn refused(text: &str) -> String {
        Pattern::compile(text).expect_err("it is refused").to_string()
    }

    #[test]
    fn what_a_search_costs_grows_with_what_is_to_be_remembered_and_with_the_text() {
        let small = Pattern::compile("(?i)hello").expect("a pattern");
        let large = Pattern::compile("[ab]*a[ab]{3000}c").expect("a pattern");
        assert!(large.to_find(1) > 100 * small.to_find(1), "{} and {}", small.to_find(1), large.to_find(1));
        assert_eq!(large.to_find(1_000_000), 1_000_000 * large.to_find(1));
        let groups = Pattern::compile(&format!("{}[ab]*a[ab]{{3000}}c", "(a)?".repeat(32))).expect("a pattern");
        assert!(groups.to_capture(1) > 8 * groups.to_find(1));
    }

    #[test]
    fn patterns_whose_compiling_would_have_no_bound_are_refused_before_it() {
        let repeated = [
            "((((a{1,100}){1,100}){1,100}){1,100})".to_owned(),
            "[ab]*a[ab]{30000}c".to_owned(),
            format!("(?i){}", r"\pL".repeat(340)),
            r"\w{200}".to_owned(),
        ];
        for text in repeated {
            assert!(refused(&text).contains("takes more than 262144 bytes"), "{text}");
        }
        for text in [format!("(?i){}", r"\pL".repeat(80_000)), r"\w".repeat(120_000), r"[\pL&&a]".repeat(200)] {
            let reason = refused(&text);
            assert!(reason.contains("at most 1024 are allowed"), "{reason}");
        }
        assert!(refused(&"(a)?".repeat(33)).contains("at most 32"));
        assert!(matches!(Pattern::compile("("), Err(PatternError::Syntax(_))));
    }
}
