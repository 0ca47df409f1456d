//! A TOML text whose mistakes are all reported at once, each with line and column.
//!
//! serde stops at the first mistake. Therefore this module notes the mistake, repairs or removes the wrong key, table
//! or list element in the parsed text, and decodes the text again. This repeats until no mistake is left.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annex_text::{instead, nearest};
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::problems::{ConfigError, Problem};
use super::wording::{Mistake, one_or_several};

mod place;
pub(super) mod syntax;

use place::{EntryPath, Step};
use syntax::{DUPLICATE, SyntaxMistake};

/// The default maximum number of mistakes that are reported per text. Each mistake costs one more decoding.
const MAX_PROBLEMS: usize = 200;

/// The text of a config and the path of its file, kept so that later checks can report line and column.
#[derive(Clone)]
pub(crate) struct ConfigText {
    path: PathBuf,
    text: Arc<str>,
}

impl fmt::Debug for ConfigText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each extension has a copy, so the text would fill a debug print.
        formatter.debug_struct("ConfigText").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ConfigText {
    fn new(path: &Path, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.into() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A new [`Document`] of the text, in which mistakes can be noted.
    pub(crate) fn document(&self) -> Document<'_> {
        Document::parse(&self.path, &self.text)
    }

    /// The position of the first of `keys` that the text has, as `FILE:LINE:COLUMN`. `None` if the text has none of the
    /// keys.
    pub(crate) fn locate(&self, keys: &[String]) -> Option<String> {
        let document = self.document();
        let start = keys.iter().find_map(|key| place::start(&document.root, &place::steps(key)))?;
        let (line, column) = document.position(start);
        Some(format!("{}:{line}:{column}", self.path.display()))
    }
}

/// A key without the indices of list elements, such as `tenant.name` for `tenant[3].name`.
pub(super) fn without_indices(key: &str) -> String {
    place::dotted(&place::steps(key))
}

/// A TOML text with the mistakes found in it.
pub(crate) struct Document<'a> {
    path: &'a Path,
    text: &'a str,
    root: DeTable<'a>,
    /// The maximum number of mistakes that are reported. Further mistakes are not looked for.
    most: usize,
    problems: Vec<Problem>,
    /// The numbers of the lines that are not TOML. Of the errors on such a line, only the first is reported, because it
    /// usually causes the others.
    broken_lines: Vec<usize>,
    lost: Vec<LostEntry>,
}

/// A key, table or list element that was removed or changed because of a mistake. Later errors about it come from this
/// change, so they are not reported.
struct LostEntry {
    /// The span of the table or list that had the entry.
    table: Range<usize>,
    /// Empty for an element of a list.
    key: String,
    /// The dotted path of the entry, such as `server.listen`.
    path: String,
}

impl<'a> Document<'a> {
    /// Parses the text. `path` is only for messages.
    pub(crate) fn parse(path: &'a Path, text: &'a str) -> Self {
        let (root, errors) = DeTable::parse_recoverable(text);
        let root = root.into_inner();
        let (problems, broken_lines, lost) = (Vec::new(), Vec::new(), Vec::new());
        let mut document = Self { path, text, root, most: MAX_PROBLEMS, problems, broken_lines, lost };
        for error in errors.iter().take(MAX_PROBLEMS) {
            let span = error.span().unwrap_or_default();
            let (line, _) = document.position(span.start);
            // One invalid line often causes several errors. Only the first is reported.
            if !document.broken_lines.contains(&line) {
                let SyntaxMistake { start, key, reason, example } = syntax::mistake(text, &span, error.message());
                let place = Some(document.position(start));
                document.problems.push(Problem { path: path.to_owned(), place, key, reason, example });
                document.broken_lines.push(line);
            }
        }
        document
    }

    /// Sets the maximum number of mistakes that are reported.
    pub(super) fn with_most(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// Decodes the text and notes all mistakes. Keys, tables and list elements with a mistake are left out. `None` if
    /// the rest cannot be decoded.
    pub(crate) fn decode<T: DeserializeOwned>(&mut self) -> Option<T> {
        for _ in 0..self.most {
            let root = Spanned::new(0..0, self.root.clone());
            match T::deserialize(Deserializer::from(root)) {
                Ok(value) => return Some(value),
                Err(error) if self.mend(&error) => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// Notes that the value of a key is wrong. The key is a dotted path, with the index of a list element in brackets,
    /// such as `tenant[3].name` for the fourth tenant. Notes nothing if an earlier mistake may be the cause.
    pub(crate) fn wrong(&mut self, key: &str, reason: impl Into<String>) {
        let reason = reason.into();
        // A check that names a removed key in its reason would have passed with this key.
        let comes_of = |lost: &LostEntry| {
            let named = reason.contains(&format!("[{}]", lost.path));
            named || lost.path.contains('.') && reason.contains(&lost.path)
        };
        if !self.broken_lines.is_empty() || self.lost.iter().any(comes_of) {
            return;
        }
        let problem = self.remark(key, reason);
        self.problems.extend(problem);
    }

    /// Returns a warning about a key, with the line and column of the key. Notes no mistake, because the value can be
    /// used. `None` if the key was removed because of a mistake.
    pub(crate) fn remark(&self, key: &str, reason: impl Into<String>) -> Option<Problem> {
        let steps = place::steps(key);
        let place = self.start_of(&steps)?.map(|start| self.position(start));
        let (path, key) = (self.path.to_owned(), place::dotted(&steps));
        Some(Problem { path, place, key, reason: reason.into(), example: None })
    }

    /// The value of a key, such as `agent.instruction`, if the value is a text. Otherwise `None`.
    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        place::at(&self.root, &place::steps(key)).and_then(|value| value.get_ref().as_str())
    }

    /// All mistakes, ordered by line.
    pub(crate) fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems;
        problems.sort_by_key(|problem| problem.place);
        problems.dedup();
        problems
    }

    /// The decoded value, if the text has no mistakes.
    ///
    /// # Errors
    /// [`ConfigError::Problems`] with all mistakes.
    pub(crate) fn into_checked<T>(self, value: Option<T>) -> Result<T, ConfigError> {
        let path = self.path.to_owned();
        let mut problems = self.into_problems();
        match value {
            Some(value) if problems.is_empty() => return Ok(value),
            None if problems.is_empty() => {
                let reason = "cannot be read as a config".to_owned();
                problems.push(Problem { path, place: None, key: String::new(), reason, example: None });
            }
            _ => {}
        }
        Err(ConfigError::Problems(problems))
    }

    /// A copy of the text.
    pub(super) fn to_config_text(&self) -> ConfigText {
        ConfigText::new(self.path, self.text)
    }

    /// The byte at which the entry of the path begins. For a missing entry, the byte at which its innermost existing
    /// parent begins. `Some(None)` if this parent is the whole text. `None` if the entry was removed.
    fn start_of(&self, steps: &[Step]) -> Option<Option<usize>> {
        let nearest = place::nearest(&self.root, steps);
        let last = nearest.missing.as_ref().or(steps.last());
        let is_lost = |lost: &LostEntry| {
            let is_itself = lost.table == nearest.parent && matches!(last, Some(Step::Key(key)) if *key == lost.key);
            is_itself || nearest.within.contains(&lost.table)
        };
        if self.lost.iter().any(is_lost) { None } else { Some(nearest.start) }
    }

    fn note(&mut self, key: &str, start: usize, reason: String) {
        let place = Some(self.position(start));
        let (path, key) = (self.path.to_owned(), key.to_owned());
        self.problems.push(Problem { path, place, key, reason, example: None });
    }

    /// The line and the column of a byte, both from 1.
    fn position(&self, byte: usize) -> (usize, usize) {
        let before = self.text.get(..byte.min(self.text.len())).unwrap_or_default();
        let line = before.rfind('\n').map_or(0, |end| end + 1);
        (before.matches('\n').count() + 1, before.get(line..).unwrap_or_default().chars().count() + 1)
    }

    /// Notes an error of the decoder, and repairs or removes the wrong entry. Returns false if neither is possible.
    fn mend(&mut self, error: &toml::de::Error) -> bool {
        let span = error.span().unwrap_or_default();
        let EntryPath { steps, is_key } = place::find(&self.root, &span).unwrap_or_default();
        // The span of a placeholder lies behind the text. A placeholder that does not fit means that its table cannot
        // be decoded.
        if span.start > self.text.len() {
            return self.take_out(steps.get(..steps.len().saturating_sub(1)).unwrap_or_default());
        }
        let mistake = Mistake::read(error.message());
        match mistake {
            Mistake::UnknownKey { key, accepted, of } => {
                let of_table = Step::Key(key.clone());
                let steps = if is_key { steps } else { steps.into_iter().chain([of_table]).collect() };
                self.unknown_key(&steps, &key, &accepted, &of)
            }
            Mistake::UnknownValue { value, accepted } if is_key => self.unknown_key(&steps, &value, &accepted, ""),
            Mistake::UnknownValue { value, accepted } => {
                let meant = nearest(&value, accepted.iter().map(String::as_str));
                let text = instead(&value, &accepted, "it takes");
                self.note_at(&steps, &span, format!("{value:?} is not accepted{text}"));
                let mended = meant.map(|meant| meant.name.to_owned());
                mended.is_some_and(|meant| self.replace(&steps, meant)) || self.take_out(&steps)
            }
            Mistake::MissingKey { key, needed } => self.missing(&steps, &span, key, &needed),
            Mistake::Other(text) => {
                if self.joins_misspelt_list(&steps) {
                    return true;
                }
                let text = match place::at(&self.root, &steps).map(Spanned::get_ref) {
                    Some(DeValue::Table(_)) if text.ends_with("a list in brackets") => {
                        one_or_several(&place::dotted(&steps), matches!(steps.last(), Some(Step::Item(_))))
                    }
                    _ => text,
                };
                self.other(&steps, &span, &text)
            }
        }
    }

    /// Notes a wrong value, and removes the entry. If the message about a table begins with the name of a key in the
    /// table, the mistake is noted for this key.
    fn other(&mut self, steps: &[Step], span: &Range<usize>, text: &str) -> bool {
        let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
        let named = place::steps(name.trim_matches('`'));
        let whole: Vec<Step> = steps.iter().chain(&named).cloned().collect();
        let of_name = whole.get(..steps.len() + 1).unwrap_or_default().to_vec();
        let Some(start) = place::start(&self.root, &of_name) else {
            self.note_at(steps, span, text.to_owned());
            return self.take_out(steps);
        };
        let start = place::start(&self.root, &whole).unwrap_or(start);
        // The problem names the key already, so the message need not repeat it.
        let text = if rest.starts_with('=') { text } else { rest };
        self.note_at(&whole, &(start..start), text.to_owned());
        self.take_out(&whole) || self.take_out(&of_name)
    }

    /// Notes a mistake of the decoder. Notes nothing for a removed entry or an invalid line, because the mistake was
    /// reported there already.
    fn note_at(&mut self, steps: &[Step], span: &Range<usize>, reason: String) {
        let (line, _) = self.position(span.start);
        if !self.is_lost(steps) && !self.broken_lines.contains(&line) {
            self.note(&place::dotted(steps), span.start, reason);
        }
    }

    /// Notes an unknown key. If the key is clearly a misspelling, its value is checked under the right name.
    fn unknown_key(&mut self, steps: &[Step], key: &str, accepted: &[String], of: &str) -> bool {
        let Some((_, parent)) = steps.split_last() else { return false };
        let Some(start) = place::start(&self.root, steps) else { return false };
        let meant = nearest(key, accepted.iter().map(String::as_str));
        let takes = match place::dotted(parent).as_str() {
            "" if accepted.iter().any(|key| key == "server") => "the file takes".to_owned(),
            "" => "the file of a tenant takes".to_owned(),
            table => format!("`{table}` takes"),
        };
        let text = if of.is_empty() {
            format!("unknown key{}", instead(key, accepted, &takes))
        } else {
            format!("unknown key{of}")
        };
        self.note_at(steps, &(start..start), text);
        let sure = meant.filter(|meant| meant.is_sure).map(|meant| meant.name.to_owned());
        match sure {
            Some(sure) => self.rename(steps, sure) || self.take_out(steps),
            None => self.take_out(steps),
        }
    }

    /// Notes a missing key, and inserts a placeholder for the key. With the placeholder, decoding can go on to the next
    /// mistake.
    fn missing(&mut self, steps: &[Step], span: &Range<usize>, key: String, needed: &str) -> bool {
        let whole: Vec<Step> = steps.iter().cloned().chain([Step::Key(key.clone())]).collect();
        let needed = if needed.is_empty() { String::new() } else { format!("; {needed} it") };
        let is_root = steps.is_empty();
        if self.broken_lines.is_empty() && !self.is_lost(&whole) {
            let (path, dotted) = (self.path.to_owned(), place::dotted(&whole));
            let place = (!is_root).then(|| self.position(span.start));
            let reason = format!("is missing{needed}");
            self.problems.push(Problem { path, place, key: dotted, reason, example: None });
        }
        self.lose(&whole);
        // Each placeholder gets a span of its own behind the end of the text.
        let start = self.text.len() + self.lost.len();
        let Some(table) = place::table_mut(&mut self.root, steps) else { return false };
        let placeholder = Spanned::new(start..start + 1, DeValue::String(Cow::Borrowed("")));
        table.insert(Spanned::new(start..start, Cow::Owned(key)), placeholder).is_none()
    }

    fn is_lost(&self, steps: &[Step]) -> bool {
        let Some((Step::Key(last), parent)) = steps.split_last() else { return false };
        let table = place::table_span(&self.root, parent);
        self.lost.iter().any(|lost| lost.table == table && lost.key == *last)
    }

    fn lose(&mut self, steps: &[Step]) {
        let Some((last, parent)) = steps.split_last() else { return };
        let key = match last {
            Step::Key(key) => key.clone(),
            // The other tables of a list such as `extension` are checked without the lost one.
            Step::Item(_) if parent.len() < 2 => return,
            Step::Item(_) => String::new(),
        };
        let table = place::table_span(&self.root, parent);
        self.lost.push(LostEntry { table, key, path: place::dotted(steps) });
    }

    fn take_out(&mut self, steps: &[Step]) -> bool {
        self.lose(steps);
        place::take_out(&mut self.root, steps)
    }

    fn rename(&mut self, steps: &[Step], name: String) -> bool {
        let Some((Step::Key(old), parent)) = steps.split_last() else { return false };
        let renamed: Vec<Step> = parent.iter().cloned().chain([Step::Key(name.clone())]).collect();
        self.join(&renamed, steps);
        if place::at(&self.root, &renamed).is_some() {
            return false;
        }
        let Some(table) = place::table_mut(&mut self.root, parent) else { return false };
        let Some((key, value)) = table.remove_entry(old.as_str()) else { return false };
        // The content of a table is checked under the new name. A value that does not fit there is not reported again.
        let is_table = matches!(value.get_ref(), DeValue::Table(_) | DeValue::Array(_));
        table.insert(Spanned::new(key.span(), Cow::Owned(name)), value);
        if !is_table {
            self.lose(&renamed);
        }
        true
    }

    /// Moves a table into the last element of the list with a misspelt name. For example, `[extension.grants]` belongs
    /// to the `[[extensions]]` before this table. The misspelt name is reported separately.
    fn joins_misspelt_list(&mut self, steps: &[Step]) -> bool {
        let Some((Step::Key(name), parent)) = steps.split_last() else { return false };
        let Some(table) = place::table_mut(&mut self.root, parent) else { return false };
        let is_misspelt = |key: &str| key != name && nearest(key, [name.as_str()]).is_some_and(|meant| meant.is_sure);
        let keys: Vec<String> = table.keys().map(|key| key.get_ref().to_string()).collect();
        let lists = keys.into_iter().filter(|key| is_misspelt(key));
        let mut lists = lists.map(|key| parent.iter().cloned().chain([Step::Key(key)]).collect::<Vec<_>>());
        lists.any(|list| self.join(steps, &list))
    }

    /// Moves the table `from` into the last element of the list `to`. Returns false if `from` is not a table or `to` is
    /// not a list of tables.
    fn join(&mut self, from: &[Step], to: &[Step]) -> bool {
        let is_moved = place::move_into_last(&mut self.root, from, to);
        if is_moved {
            self.forget_duplicates_behind(to);
        }
        is_moved
    }

    /// Removes the reports of duplicate keys that are behind the misspelt list at `steps`. Each element of this list
    /// may have the same keys, so the keys are no mistakes.
    fn forget_duplicates_behind(&mut self, steps: &[Step]) {
        let first = place::start(&self.root, steps).map_or(usize::MAX, |start| self.position(start).0);
        let is_one = |problem: &Problem| {
            problem.reason.starts_with(DUPLICATE) && problem.place.is_some_and(|(line, _)| line > first)
        };
        let (duplicates, others): (Vec<_>, _) = std::mem::take(&mut self.problems).into_iter().partition(is_one);
        self.problems = others;
        let lines: Vec<usize> = duplicates.iter().filter_map(|problem| problem.place).map(|(line, _)| line).collect();
        self.broken_lines.retain(|line| !lines.contains(line));
    }

    fn replace(&mut self, steps: &[Step], text: String) -> bool {
        let Some(value) = place::at_mut(&mut self.root, steps) else { return false };
        *value.get_mut() = DeValue::String(Cow::Owned(text));
        true
    }
}
