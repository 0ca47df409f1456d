//! A TOML text that is decoded with all its mistakes at once, each with its place.
//!
//! serde ends at the first mistake. So each one is noted, the entry at fault is mended or taken out of what was parsed, and
//! the rest is decoded again, until nothing is wrong any more.

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
use super::wording::Mistake;

mod place;

use place::{Found, Step};

/// The most mistakes that are looked for in one text unless somebody asks for fewer. Each takes another round.
const MAX_PROBLEMS: usize = 200;

/// Said by the parser of a key that stands there twice.
const DUPLICATE: &str = "duplicate key";

/// The text of a config and its file, to tell later where something stands in it.
#[derive(Clone)]
pub(crate) struct ConfigText {
    path: PathBuf,
    text: Arc<str>,
}

impl fmt::Debug for ConfigText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each extension has it.
        formatter.debug_struct("ConfigText").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ConfigText {
    fn new(path: &Path, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.into() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The text, to note what is wrong in it.
    pub(crate) fn document(&self) -> Document<'_> {
        Document::parse(&self.path, &self.text)
    }

    /// The file, the line and the column of the first of these keys that is there.
    pub(crate) fn locate(&self, keys: &[String]) -> Option<String> {
        let document = self.document();
        let start = keys.iter().find_map(|key| place::start(&document.root, &place::steps(key)))?;
        let (line, column) = document.position(start);
        Some(format!("{}:{line}:{column}", self.path.display()))
    }
}

/// A TOML text, and what is wrong in it as far as somebody has looked.
pub(crate) struct Document<'a> {
    path: &'a Path,
    text: &'a str,
    root: DeTable<'a>,
    /// The most mistakes that are looked for.
    most: usize,
    problems: Vec<Problem>,
    /// Lines that are no TOML. What else is said of them comes of that.
    broken_lines: Vec<usize>,
    lost: Vec<Lost>,
}

/// An entry that is not there any more, or not as it was written. What else is said of it comes of that.
struct Lost {
    /// The span of the table that it was in.
    table: Range<usize>,
    key: String,
    /// The same as a dotted path.
    path: String,
}

impl<'a> Document<'a> {
    /// Parses the text; `path` is for messages.
    pub(crate) fn parse(path: &'a Path, text: &'a str) -> Self {
        let (root, errors) = DeTable::parse_recoverable(text);
        let root = root.into_inner();
        let (problems, broken_lines, lost) = (Vec::new(), Vec::new(), Vec::new());
        let mut document = Self { path, text, root, most: MAX_PROBLEMS, problems, broken_lines, lost };
        for error in errors.iter().take(MAX_PROBLEMS) {
            let span = error.span().unwrap_or_default();
            let (line, _) = document.position(span.start);
            // A line that is no TOML is often several errors.
            if !document.broken_lines.contains(&line) {
                document.note("", span.start, error.message().trim().replace('\n', " "));
                document.broken_lines.push(line);
            }
        }
        document
    }

    /// The same text, in which at most so many mistakes are looked for.
    pub(super) fn with_most(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// The value that the text has, without what is wrong in it; `None` where too much is.
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

    /// Notes that the value of a key cannot be used. The key is a dotted path, with the number of an element from 0 in
    /// brackets: `tenant[3].name`. What comes of another mistake is not noted.
    pub(crate) fn wrong(&mut self, key: &str, reason: impl Into<String>) {
        let reason = reason.into();
        // A check that names a key which is lost would not say so if the key was there.
        let comes_of = |lost: &Lost| {
            let named = reason.contains(&format!("[{}]", lost.path));
            named || lost.path.contains('.') && reason.contains(&lost.path)
        };
        if !self.broken_lines.is_empty() || self.lost.iter().any(comes_of) {
            return;
        }
        let problem = self.remark(key, reason);
        self.problems.extend(problem);
    }

    /// What is to be said of a key, with its place. The text can be used all the same, so it is not noted.
    pub(crate) fn remark(&self, key: &str, reason: impl Into<String>) -> Option<Problem> {
        let steps = place::steps(key);
        let place = self.start_of(&steps)?.map(|start| self.position(start));
        Some(Problem { path: self.path.to_owned(), place, key: place::dotted(&steps), reason: reason.into() })
    }

    /// What is wrong, in the order of the lines.
    pub(crate) fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems;
        problems.sort_by_key(|problem| problem.place);
        problems.dedup();
        problems
    }

    /// The value that was decoded, if nothing is wrong.
    ///
    /// # Errors
    /// With all that is wrong.
    pub(crate) fn into_checked<T>(self, value: Option<T>) -> Result<T, ConfigError> {
        let path = self.path.to_owned();
        let mut problems = self.into_problems();
        match value {
            Some(value) if problems.is_empty() => return Ok(value),
            None if problems.is_empty() => {
                let reason = "cannot be read as a config".to_owned();
                problems.push(Problem { path, place: None, key: String::new(), reason });
            }
            _ => {}
        }
        Err(ConfigError::Problems(problems))
    }

    /// A copy of the text.
    pub(super) fn to_config_text(&self) -> ConfigText {
        ConfigText::new(self.path, self.text)
    }

    /// Where the innermost entry of the path begins that is there. `None` where the path leads to what is lost,
    /// `Some(None)` where nothing of it is there.
    fn start_of(&self, steps: &[Step]) -> Option<Option<usize>> {
        let nearest = place::nearest(&self.root, steps);
        let last = nearest.missing.as_ref().or(steps.last());
        let is_lost = |lost: &Lost| {
            let is_itself = lost.table == nearest.parent && matches!(last, Some(Step::Key(key)) if *key == lost.key);
            is_itself || nearest.within.contains(&lost.table)
        };
        if self.lost.iter().any(is_lost) { None } else { Some(nearest.start) }
    }

    fn note(&mut self, key: &str, start: usize, reason: String) {
        let place = Some(self.position(start));
        self.problems.push(Problem { path: self.path.to_owned(), place, key: key.to_owned(), reason });
    }

    /// The line and the column of a byte, from 1.
    fn position(&self, byte: usize) -> (usize, usize) {
        let before = self.text.get(..byte.min(self.text.len())).unwrap_or_default();
        let line = before.rfind('\n').map_or(0, |end| end + 1);
        (before.matches('\n').count() + 1, before.get(line..).unwrap_or_default().chars().count() + 1)
    }

    /// Notes an error, and mends or takes out what it is about. Returns false where nothing can be done.
    fn mend(&mut self, error: &toml::de::Error) -> bool {
        let span = error.span().unwrap_or_default();
        let Found { steps, is_key } = place::find(&self.root, &span).unwrap_or_default();
        // A value that stands in for a missing one does not fit, so its table cannot be decoded.
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
                        one_or_several(&place::dotted(&steps), steps.last())
                    }
                    _ => text,
                };
                self.other(&steps, &span, &text)
            }
        }
    }

    /// Notes what is wrong with a value. One with a table often begins with the key.
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
        // Said of the key, the text need not begin with it.
        let text = if rest.starts_with('=') { text } else { rest };
        self.note_at(&whole, &(start..start), text.to_owned());
        self.take_out(&whole) || self.take_out(&of_name)
    }

    /// Notes a mistake of the decoder, unless it comes of a line that is no TOML or of a name that was guessed.
    fn note_at(&mut self, steps: &[Step], span: &Range<usize>, reason: String) {
        let (line, _) = self.position(span.start);
        if !self.is_lost(steps) && !self.broken_lines.contains(&line) {
            self.note(&place::dotted(steps), span.start, reason);
        }
    }

    /// Notes a key that nobody knows. Its value is looked at under the name that was surely meant.
    fn unknown_key(&mut self, steps: &[Step], key: &str, accepted: &[String], of: &str) -> bool {
        let Some((_, parent)) = steps.split_last() else { return false };
        let Some(start) = place::start(&self.root, steps) else { return false };
        let meant = nearest(key, accepted.iter().map(String::as_str));
        let takes = match place::dotted(parent).as_str() {
            "" => "the file takes".to_owned(),
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

    /// Notes a key that must be there, and puts a text in its place to find out what else is wrong.
    fn missing(&mut self, steps: &[Step], span: &Range<usize>, key: String, needed: &str) -> bool {
        let whole: Vec<Step> = steps.iter().cloned().chain([Step::Key(key.clone())]).collect();
        let needed = if needed.is_empty() { String::new() } else { format!("; {needed} it") };
        let is_root = steps.is_empty();
        if self.broken_lines.is_empty() && !self.is_lost(&whole) {
            let (path, dotted) = (self.path.to_owned(), place::dotted(&whole));
            let place = (!is_root).then(|| self.position(span.start));
            self.problems.push(Problem { path, place, key: dotted, reason: format!("is missing{needed}") });
        }
        self.lose(&whole);
        // Each stands behind the text, where nothing else does.
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
        let Some((Step::Key(key), parent)) = steps.split_last() else { return };
        let table = place::table_span(&self.root, parent);
        self.lost.push(Lost { table, key: key.clone(), path: place::dotted(steps) });
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
        // What is in a table is looked at, and a value that does not fit is no news.
        let is_table = matches!(value.get_ref(), DeValue::Table(_) | DeValue::Array(_));
        table.insert(Spanned::new(key.span(), Cow::Owned(name)), value);
        if !is_table {
            self.lose(&renamed);
        }
        true
    }

    /// Moves a table into the last one of a list beside it whose name is surely a misspelling of its own. What is wrong with
    /// that name is found by itself.
    fn joins_misspelt_list(&mut self, steps: &[Step]) -> bool {
        let Some((Step::Key(name), parent)) = steps.split_last() else { return false };
        let Some(table) = place::table_mut(&mut self.root, parent) else { return false };
        let is_misspelt = |key: &str| key != name && nearest(key, [name.as_str()]).is_some_and(|meant| meant.is_sure);
        let keys: Vec<String> = table.keys().map(|key| key.get_ref().to_string()).collect();
        let lists = keys.into_iter().filter(|key| is_misspelt(key));
        let mut lists = lists.map(|key| parent.iter().cloned().chain([Step::Key(key)]).collect::<Vec<_>>());
        lists.any(|list| self.join(steps, &list))
    }

    /// Moves the table `from` into the last one of the list `to`, if that is what they are.
    fn join(&mut self, from: &[Step], to: &[Step]) -> bool {
        let is_moved = place::move_into_last(&mut self.root, from, to);
        if is_moved {
            self.forget_duplicates_behind(to);
        }
        is_moved
    }

    /// Takes back that keys stand there twice, behind the entry: each element of a misspelt list may have them.
    fn forget_duplicates_behind(&mut self, steps: &[Step]) {
        let first = place::start(&self.root, steps).map_or(usize::MAX, |start| self.position(start).0);
        let is_one = |problem: &Problem| {
            problem.key.is_empty() && problem.reason == DUPLICATE && problem.place.is_some_and(|(line, _)| line > first)
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

/// Said of a table that is written as one of several, or of one of several that is written as one.
fn one_or_several(key: &str, last: Option<&Step>) -> String {
    match last {
        Some(Step::Item(_)) => {
            let meant = if key == "tenants" { ", or as [[tenant]] for a tenant of this config" } else { "" };
            format!("is a list of tables, and there is one; write it as [{key}]{meant}")
        }
        _ => format!("is one table, and there may be several; write it as [[{key}]]"),
    }
}
