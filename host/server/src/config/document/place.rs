//! Finds, removes and moves entries of a parsed text. An entry is a key with its value, or a list element.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// One step of the path to an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    /// The index of a list element, from 0.
    Item(usize),
}

/// The path of an entry that was found by its span.
#[derive(Debug, Default)]
pub(super) struct EntryPath {
    /// The path of the entry, empty for the whole text.
    pub(super) steps: Vec<Step>,
    /// True if the span covers the key. False if the span covers the value.
    pub(super) is_key: bool,
}

/// The entry at a path. If the entry does not exist, its innermost existing parent.
#[derive(Debug)]
pub(super) struct Nearest {
    /// The first byte of the entry. `None` for the whole text.
    pub(super) start: Option<usize>,
    /// The first step of the path that does not exist. `None` if the entry exists.
    pub(super) missing: Option<Step>,
    /// The span of the table or list in which the last step was looked up.
    pub(super) parent: Range<usize>,
    /// The spans of the entry and of all values inside the entry. Empty if the entry does not exist.
    pub(super) within: Vec<Range<usize>>,
}

/// Parses a path such as `tenant[3].name`. A key in quotes, as in `registries."registry.example".ca_file`, may have dots.
pub(super) fn steps(key: &str) -> Vec<Step> {
    let mut is_quoted = false;
    let is_end = |character| {
        is_quoted ^= character == '"';
        character == '.' && !is_quoted
    };
    let mut steps = Vec::new();
    for part in key.split(is_end) {
        if let Some(name) = part.strip_prefix('"').and_then(|part| part.strip_suffix('"')) {
            steps.push(Step::Key(name.to_owned()));
            continue;
        }
        let (name, items) = part.split_once('[').unwrap_or((part, ""));
        steps.push(Step::Key(name.to_owned()));
        let numbers = items.split('[').filter_map(|number| number.trim_end_matches(']').parse().ok());
        steps.extend(numbers.map(Step::Item));
    }
    steps
}

/// The keys of a path, joined by dots. Indexes are left out.
pub(super) fn dotted(steps: &[Step]) -> String {
    let keys = steps.iter().filter_map(|step| match step {
        Step::Key(key) => Some(key.as_str()),
        Step::Item(_) => None,
    });
    keys.collect::<Vec<_>>().join(".")
}

/// Finds the innermost entry whose key or value has this span.
pub(super) fn find(table: &DeTable<'_>, span: &Range<usize>) -> Option<EntryPath> {
    table.iter().find_map(|(key, value)| {
        let step = || Step::Key(key.get_ref().to_string());
        find_in(value, span).map(|found| found.below(step())).or_else(|| {
            let is_key = key.span() == *span;
            (is_key || value.span() == *span).then(|| EntryPath { steps: vec![step()], is_key })
        })
    })
}

fn find_in(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<EntryPath> {
    match value.get_ref() {
        DeValue::Table(table) => find(table, span),
        DeValue::Array(items) => items.iter().enumerate().find_map(|(number, item)| {
            let step = || Step::Item(number);
            let itself = || (item.span() == *span).then(|| EntryPath { steps: vec![step()], is_key: false });
            find_in(item, span).map(|found| found.below(step())).or_else(itself)
        }),
        _ => None,
    }
}

impl EntryPath {
    fn below(mut self, step: Step) -> Self {
        self.steps.insert(0, step);
        self
    }
}

pub(super) fn at<'t, 'i>(root: &'t DeTable<'i>, steps: &[Step]) -> Option<&'t Spanned<DeValue<'i>>> {
    steps.iter().try_fold(None, |value, step| child(root, value, step).map(|(_, value)| Some(value))).flatten()
}

/// The span of the table at a path. Empty for the whole text and for a missing table.
pub(super) fn table_span(root: &DeTable<'_>, steps: &[Step]) -> Range<usize> {
    at(root, steps).map(Spanned::span).unwrap_or_default()
}

/// The first byte of the entry at a path. `None` if the entry does not exist.
pub(super) fn start(root: &DeTable<'_>, steps: &[Step]) -> Option<usize> {
    let (last, parent) = steps.split_last()?;
    let value = at(root, parent);
    if value.is_none() && !parent.is_empty() {
        return None;
    }
    child(root, value, last).map(|(start, _)| start)
}

/// Follows a path as far as its entries exist.
pub(super) fn nearest(root: &DeTable<'_>, steps: &[Step]) -> Nearest {
    let (mut start, mut value, mut parent) = (None, None, 0..0);
    for step in steps {
        parent = value.map(Spanned::span).unwrap_or_default();
        let Some((begin, next)) = child(root, value, step) else {
            return Nearest { start, missing: Some(step.clone()), parent, within: Vec::new() };
        };
        (start, value) = (Some(begin), Some(next));
    }
    let mut within = Vec::new();
    if let Some(value) = value {
        spans(value, &mut within);
    }
    Nearest { start, missing: None, parent, within }
}

fn spans(value: &Spanned<DeValue<'_>>, into: &mut Vec<Range<usize>>) {
    into.push(value.span());
    match value.get_ref() {
        DeValue::Table(table) => table.values().for_each(|value| spans(value, into)),
        DeValue::Array(items) => items.iter().for_each(|item| spans(item, into)),
        _ => {}
    }
}

/// The child of `value` at one step, with the byte at which the child begins. If `value` is `None`, the child of the
/// root.
fn child<'t, 'i>(
    root: &'t DeTable<'i>,
    value: Option<&'t Spanned<DeValue<'i>>>,
    step: &Step,
) -> Option<(usize, &'t Spanned<DeValue<'i>>)> {
    match (step, value.map(Spanned::get_ref)) {
        (Step::Key(key), None) => keyed(root, key),
        (Step::Key(key), Some(DeValue::Table(table))) => keyed(table, key),
        (Step::Item(number), Some(DeValue::Array(items))) => items.get(*number).map(|item| (item.span().start, item)),
        _ => None,
    }
}

fn keyed<'t, 'i>(table: &'t DeTable<'i>, key: &str) -> Option<(usize, &'t Spanned<DeValue<'i>>)> {
    let (key, value) = table.get_key_value(key)?;
    // A table begins with the bracket of its header, before the key. Other values begin after their key.
    Some((key.span().start.min(value.span().start), value))
}

pub(super) fn at_mut<'t, 'i>(root: &'t mut DeTable<'i>, steps: &[Step]) -> Option<&'t mut Spanned<DeValue<'i>>> {
    let (first, rest) = steps.split_first()?;
    let Step::Key(first) = first else { return None };
    rest.iter().try_fold(root.get_mut(first.as_str())?, |value, step| match (step, value.get_mut()) {
        (Step::Key(key), DeValue::Table(table)) => table.get_mut(key.as_str()),
        (Step::Item(number), DeValue::Array(items)) => items.get_mut(*number),
        _ => None,
    })
}

pub(super) fn table_mut<'t, 'i>(root: &'t mut DeTable<'i>, steps: &[Step]) -> Option<&'t mut DeTable<'i>> {
    if steps.is_empty() {
        return Some(root);
    }
    match at_mut(root, steps)?.get_mut() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

/// Removes the entry at a path. Returns false if there is no such entry.
pub(super) fn take_out(root: &mut DeTable<'_>, steps: &[Step]) -> bool {
    match steps.split_last() {
        None => false,
        Some((Step::Key(key), parent)) => {
            table_mut(root, parent).is_some_and(|table| table.remove(key.as_str()).is_some())
        }
        Some((Step::Item(number), parent)) => {
            let Some(DeValue::Array(items)) = at_mut(root, parent).map(Spanned::get_mut) else { return false };
            let before = items.len();
            let all = std::mem::replace(items, DeArray::new()).into_iter().enumerate();
            *items = all.filter(|(place, _)| place != number).map(|(_, item)| item).collect();
            items.len() < before
        }
    }
}

/// Moves the content of the table `from` into the last table of the list `to`. Returns false and changes nothing if
/// `from` is not a table or `to` is not a list of tables.
pub(super) fn move_into_last(root: &mut DeTable<'_>, from: &[Step], to: &[Step]) -> bool {
    let is_table = matches!(at(root, from).map(Spanned::get_ref), Some(DeValue::Table(_)));
    let is_list = matches!(at(root, to).map(Spanned::get_ref), Some(DeValue::Array(items))
        if matches!(items.last().map(Spanned::get_ref), Some(DeValue::Table(_))));
    let (true, true, Some((Step::Key(name), parent))) = (is_table, is_list, from.split_last()) else { return false };
    let moved = table_mut(root, parent).and_then(|table| table.remove(name.as_str()));
    let Some(DeValue::Table(moved)) = moved.map(Spanned::into_inner) else { return false };
    let Some(DeValue::Array(items)) = at_mut(root, to).map(Spanned::get_mut) else { return false };
    let Some(DeValue::Table(last)) = items.last_mut().map(Spanned::get_mut) else { return false };
    last.extend(moved);
    true
}
