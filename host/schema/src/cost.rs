//! The cost of a schema. It is known before the schema is compiled.
//!
//! Validation runs on the host, where guest deadlines do not apply. The work of every admitted keyword is proportional
//! to one of the sizes of the instance. So the cost of a schema is a number of keywords per kind of work. Each number
//! is multiplied by the size that this kind of work depends on, and by a factor. The sum of the products is the upper
//! bound for the work of a validation.
//!
//! The factors are nanoseconds of one core. They were measured with the slowest known instances and rounded up. The
//! test `no_validation_costs_more_than_its_bound` checks them.

use crate::size::Size;

/// Nanoseconds for checking one value against one part of a schema.
const VISIT: u64 = 60;
/// Nanoseconds for reading one byte of a string or key.
const BYTE: u64 = 3;
/// Nanoseconds for reading one byte for `format`, `contentEncoding` or `contentMediaType`.
const FORMAT_BYTE: u64 = 40;
/// Nanoseconds for comparing one byte of two items.
const COMPARED_BYTE: u64 = 12;
/// Nanoseconds for reading one byte of text, per 16 bytes of a pattern's automaton.
const AUTOMATON_BYTE: u64 = 24;
/// Nanoseconds for copying one byte into a violation.
const COPIED_BYTE: u64 = 1;
/// Bytes of a violation, in addition to its path and the quoted value.
const VIOLATION_BYTES: u64 = 512;
/// Bytes of a compiled part of a schema, in addition to its path.
const PART_BYTES: u64 = 1 << 10;
/// Bytes of a pattern's matcher, per byte of the automaton for one direction.
const MATCHER: u64 = 16;
/// Bytes of the tables that a pattern's matcher fills while reading.
pub(crate) const MATCHER_TABLES: u64 = 160 << 10;

/// The cost of a schema, as counts. In the counted schema every `$ref` is replaced by its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Number of parts that check a value.
    pub(crate) parts: u64,
    /// Number of keywords that a value can violate.
    pub(crate) assertions: u64,
    /// Number of keywords that read strings or keys.
    pub(crate) texts: u64,
    /// Number of keywords that decode strings.
    pub(crate) formats: u64,
    /// Number of keywords that compare the items of an array.
    pub(crate) uniques: u64,
    /// Bytes of the automata of all patterns.
    pub(crate) automata: u64,
    /// Number of distinct patterns.
    pub(crate) patterns: u64,
    /// Bytes of the paths of all parts.
    pub(crate) paths: u64,
    /// Depth of nesting.
    pub(crate) height: u64,
}

impl Cost {
    /// Adds the counts of a part at the path segment `segment`.
    pub(crate) fn add_below(&mut self, segment: &str, inner: Self) {
        let segment = 1 + u64::try_from(segment.len()).unwrap_or(u64::MAX);
        self.paths = self.paths.saturating_add(inner.paths).saturating_add(inner.parts.saturating_mul(segment));
        self.parts = self.parts.saturating_add(inner.parts);
        self.assertions = self.assertions.saturating_add(inner.assertions);
        self.texts = self.texts.saturating_add(inner.texts);
        self.formats = self.formats.saturating_add(inner.formats);
        self.uniques = self.uniques.saturating_add(inner.uniques);
        self.automata = self.automata.saturating_add(inner.automata);
        self.patterns = self.patterns.saturating_add(inner.patterns);
        self.height = self.height.max(inner.height.saturating_add(1));
    }

    /// Bytes that the compiled schema takes.
    pub(crate) fn weight(self) -> u64 {
        let parts = self.parts.saturating_mul(PART_BYTES).saturating_add(self.paths.saturating_mul(4));
        let tables = self.patterns.saturating_mul(MATCHER_TABLES);
        parts.saturating_add(self.automata.saturating_mul(MATCHER)).saturating_add(tables)
    }

    /// Upper bound in nanoseconds for deciding whether an instance is valid.
    pub(crate) fn to_judge(self, size: &Size) -> u64 {
        let work = [
            [self.parts, size.values, VISIT],
            [self.texts, size.bytes, BYTE],
            [self.formats, size.bytes, FORMAT_BYTE],
            [self.uniques, size.compared, COMPARED_BYTE],
            [self.automata.div_ceil(16), size.bytes, AUTOMATON_BYTE],
        ];
        sum(work.map(product))
    }

    /// Upper bound in bytes for all violations of an instance.
    pub(crate) fn violations(self, size: &Size) -> u64 {
        let quoted = sum([size.nested_bytes, size.paths, size.values.saturating_mul(VIOLATION_BYTES)]);
        // Each surrounding part may repeat the violation among its own reasons.
        self.assertions.saturating_mul(quoted)
    }

    /// Upper bound in nanoseconds for listing all violations. Before the validator lists the violations of a branch of
    /// `anyOf` or a similar keyword, it checks the branch a second time.
    pub(crate) fn to_list(self, size: &Size) -> u64 {
        let judged = self.to_judge(size).saturating_mul(self.height.saturating_add(2));
        judged.saturating_add(self.violations(size).saturating_mul(COPIED_BYTE))
    }
}

fn product(factors: [u64; 3]) -> u64 {
    // Saturating: an overflow must look too costly, not cheap.
    factors.into_iter().fold(1, u64::saturating_mul)
}

fn sum<const N: usize>(parts: [u64; N]) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}
