//! Computes the size of a pattern's automaton, before the validator builds the automaton.
//!
//! Matching takes time in proportion to the size of the automaton and to the text. The size also bounds the caches of
//! the regex engine.

use jsonschema_regex::to_rust_regex;
use regex_automata::nfa::thompson;

/// Maximum length of a pattern, in bytes. Translating takes time in proportion to the square of the length.
const MAX_TEXT: usize = 1 << 10;
/// Maximum size of an automaton, in bytes.
pub(crate) const MAX_AUTOMATON: usize = 256 << 10;

/// Size in bytes of a pattern's automaton for one direction.
pub(crate) fn automaton_bytes(pattern: &str) -> Result<u64, String> {
    if pattern.len() > MAX_TEXT {
        return Err(format!("a pattern has {} bytes; at most {MAX_TEXT} are allowed", pattern.len()));
    }
    let refused = |reason: String| format!("the pattern {pattern:?} is not usable: {reason}");
    let translated = to_rust_regex(pattern).map_err(|()| refused("it is not a regular expression".to_owned()))?;
    // The limit stops the build itself: nested repetitions of a few bytes can need more memory than the machine has.
    let config = thompson::Config::new().nfa_size_limit(Some(MAX_AUTOMATON));
    let automaton = thompson::Compiler::new().configure(config).build(&translated);
    let automaton = automaton.map_err(|error| match error.size_limit() {
        Some(limit) => refused(format!("its automaton takes more than {limit} bytes")),
        None => refused("look-around and back-references have no bound, and are not supported".to_owned()),
    })?;
    Ok(u64::try_from(automaton.memory_usage()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::automaton_bytes;

    #[test]
    fn the_size_grows_with_the_states_of_the_automaton() {
        let small = automaton_bytes("^[a-z0-9-]+$").expect("a pattern");
        let large = automaton_bytes("[ab]*a[ab]{1500}c").expect("a pattern");
        assert!(large > 40 * small, "{small} and {large}");
    }

    #[test]
    fn patterns_without_a_bound_are_refused_with_the_reason() {
        let refused = |pattern: &str, expected: &str| {
            let error = automaton_bytes(pattern).expect_err("refused");
            assert!(error.contains(expected), "{error}");
        };
        refused("((((a{1,100}){1,100}){1,100}){1,100})", "automaton");
        refused("(?=a)b", "look-around");
        refused(r"(a)\1", "back-references");
        refused("(", "not a regular expression");
        refused(&"a".repeat(2_000), "at most 1024");
    }
}
