//! Entries of a parsed text: their paths, and where they stand.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// One step of the path to an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    /// The number of an element, from 0.
    Item(usize),
}

/// The entry at a span.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Its path; that of the whole text is empty.
    pub(super) steps: Vec<Step>,
    /// True if the span is that of its key.
    pub(super) is_key: bool,
}

/// The entry of a path, or the innermost one of it that is there.
#[derive(Debug)]
pub(super) struct Nearest {
    /// Where it begins; `None` for the whole text.
    pub(super) start: Option<usize>,
    /// The first step that leads nowhere.
    pub(super) missing: Option<Step>,
    /// The span of what that step, or else the last one, was taken in.
    pub(super) parent: Range<usize>,
    /// The spans of the entry and of all that is in it.
    pub(super) within: Vec<Range<usize>>,
}

/// The path of `tenant[3].name`.
pub(super) fn steps(key: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for part in key.split('.') {
        let (name, items) = part.split_once('[').unwrap_or((part, ""));
        steps.push(Step::Key(name.to_owned()));
        let numbers = items.split('[').filter_map(|number| number.trim_end_matches(']').parse().ok());
        steps.extend(numbers.map(Step::Item));
    }
    steps
}

/// The keys of a path with dots between them.
pub(super) fn dotted(steps: &[Step]) -> String {
    let keys = steps.iter().filter_map(|step| match step {
        Step::Key(key) => Some(key.as_str()),
        Step::Item(_) => None,
    });
    keys.collect::<Vec<_>>().join(".")
}

/// The innermost entry whose key or value has this span.
pub(super) fn find(table: &DeTable<'_>, span: &Range<usize>) -> Option<Found> {
    table.iter().find_map(|(key, value)| {
        let step = || Step::Key(key.get_ref().to_string());
        find_in(value, span).map(|found| found.below(step())).or_else(|| {
            let is_key = key.span() == *span;
            (is_key || value.span() == *span).then(|| Found { steps: vec![step()], is_key })
        })
    })
}

fn find_in(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<Found> {
    match value.get_ref() {
        DeValue::Table(table) => find(table, span),
        DeValue::Array(items) => items.iter().enumerate().find_map(|(number, item)| {
            let step = || Step::Item(number);
            let itself = || (item.span() == *span).then(|| Found { steps: vec![step()], is_key: false });
            find_in(item, span).map(|found| found.below(step())).or_else(itself)
        }),
        _ => None,
    }
}

impl Found {
    fn below(mut self, step: Step) -> Self {
        self.steps.insert(0, step);
        self
    }
}

/// The entry of a path.
pub(super) fn at<'t, 'i>(root: &'t DeTable<'i>, steps: &[Step]) -> Option<&'t Spanned<DeValue<'i>>> {
    steps.iter().try_fold(None, |value, step| child(root, value, step).map(|(_, value)| Some(value))).flatten()
}

/// The span of the table of a path; that of the whole text is empty.
pub(super) fn table_span(root: &DeTable<'_>, steps: &[Step]) -> Range<usize> {
    at(root, steps).map(Spanned::span).unwrap_or_default()
}

/// Where the entry of a path begins.
pub(super) fn start(root: &DeTable<'_>, steps: &[Step]) -> Option<usize> {
    let (last, parent) = steps.split_last()?;
    let value = at(root, parent);
    if value.is_none() && !parent.is_empty() {
        return None;
    }
    child(root, value, last).map(|(start, _)| start)
}

/// As far as the path leads.
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

/// What a step leads to from `value`, or from the whole text, and where that begins.
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
    // A table begins with the bracket of its header, before the key. Other values come after their keys.
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

/// Takes the entry out. Returns false if it is not there.
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

/// Moves what is in the table `from` into the last table of the list `to`, as `[extension.grants]` is meant for the
/// `[[extensions]]` before it. Returns false, and does nothing, where these are not there.
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
