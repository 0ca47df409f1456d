//! The constraint `checkout.line_items`: which items a checkout must have.
//!
//! Each entry of the constraint takes its quantity of acceptable items, and each item of the checkout belongs to one
//! entry. Entries and items are matched by augmenting paths, as in a search for a maximal flow.

use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;

/// The maximum number of entries of a constraint, and of different items of a checkout.
const MAX_ITEMS: usize = 32;

/// A line of a checkout.
#[derive(Deserialize)]
pub(super) struct LineItem {
    item: Item,
    quantity: u64,
}

#[derive(Deserialize)]
struct Item {
    id: String,
}

/// An entry of the constraint.
#[derive(Deserialize)]
pub(super) struct Entry {
    acceptable_items: Vec<Item>,
    quantity: u64,
}

/// Checks that each entry has its quantity, and that no item is left.
///
/// # Errors
/// The items do not fit. The error says why, as a lower-case fragment.
pub(super) fn check(entries: &[Entry], items: &[LineItem]) -> Result<(), String> {
    let mut quantities: BTreeMap<&str, u64> = BTreeMap::new();
    for line in items {
        let quantity = quantities.entry(&line.item.id).or_default();
        *quantity = quantity.saturating_add(line.quantity);
    }
    if entries.len() > MAX_ITEMS || quantities.len() > MAX_ITEMS {
        return Err(format!("allows or has more than {MAX_ITEMS} different items"));
    }
    let wanted = entries.iter().map(|entry| entry.quantity).fold(0, u64::saturating_add);
    let held = quantities.values().copied().fold(0, u64::saturating_add);
    let mut assignment = Assignment { entries, quantities, taken: BTreeMap::new() };
    if wanted != held || !(0..entries.len()).all(|entry| assignment.fill(entry)) {
        return Err("has other items than the user allowed".to_owned());
    }
    Ok(())
}

/// The items that entries have taken so far.
struct Assignment<'a> {
    entries: &'a [Entry],
    /// The quantity of each item in the checkout.
    quantities: BTreeMap<&'a str, u64>,
    /// The quantity of an item that an entry has taken.
    taken: BTreeMap<(usize, &'a str), u64>,
}

/// A free item, and the entries that pass items on until the first entry has one more.
struct Path<'a> {
    /// The item that each entry takes, from the entry with the free item to the first one.
    takes: Vec<(usize, &'a str)>,
    /// The item that each entry but the first gives up.
    gives: Vec<(usize, &'a str)>,
}

impl<'a> Assignment<'a> {
    /// Takes items for an entry until it has its quantity. False if there are too few.
    fn fill(&mut self, entry: usize) -> bool {
        let mut missing = self.entries.get(entry).map_or(0, |entry| entry.quantity);
        while missing > 0 {
            let Some(path) = self.path(entry) else { return false };
            let free = path.takes.first().map_or(0, |(_, item)| self.free(item));
            let given = path.gives.iter().map(|edge| self.taken.get(edge).copied().unwrap_or_default());
            let amount = given.fold(free.min(missing), u64::min);
            for edge in path.takes {
                *self.taken.entry(edge).or_default() += amount;
            }
            for edge in path.gives {
                let taken = self.taken.entry(edge).or_default();
                *taken = taken.saturating_sub(amount);
            }
            missing -= amount;
        }
        true
    }

    /// The quantity of an item that no entry has taken.
    fn free(&self, item: &str) -> u64 {
        let taken: u64 = self.taken.iter().filter(|((_, other), _)| *other == item).map(|(_, amount)| amount).sum();
        self.quantities.get(item).copied().unwrap_or_default().saturating_sub(taken)
    }

    /// The shortest path from an entry to a free item.
    fn path(&self, first: usize) -> Option<Path<'a>> {
        // The entry that reached an item, and the item through which an entry was reached.
        let mut reached_by: BTreeMap<&'a str, usize> = BTreeMap::new();
        let mut gives: BTreeMap<usize, &'a str> = BTreeMap::new();
        let mut queue = VecDeque::from([first]);
        while let Some(entry) = queue.pop_front() {
            for acceptable in self.entries.get(entry).into_iter().flat_map(|entry| &entry.acceptable_items) {
                let Some((&item, _)) = self.quantities.get_key_value(acceptable.id.as_str()) else { continue };
                if reached_by.contains_key(item) {
                    continue;
                }
                reached_by.insert(item, entry);
                if self.free(item) > 0 {
                    return Some(Path::back(item, first, &reached_by, &gives));
                }
                for ((other, taken), amount) in &self.taken {
                    if *taken == item && *amount > 0 && *other != first && !gives.contains_key(other) {
                        gives.insert(*other, item);
                        queue.push_back(*other);
                    }
                }
            }
        }
        None
    }
}

impl<'a> Path<'a> {
    /// Walks back from a free item to the first entry.
    fn back(
        free: &'a str,
        first: usize,
        reached_by: &BTreeMap<&'a str, usize>,
        gives: &BTreeMap<usize, &'a str>,
    ) -> Self {
        let mut path = Self { takes: Vec::new(), gives: Vec::new() };
        let mut item = free;
        while let Some(entry) = reached_by.get(item).copied() {
            path.takes.push((entry, item));
            let Some(given) = gives.get(&entry).copied().filter(|_| entry != first) else { break };
            path.gives.push((entry, given));
            item = given;
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(entries: &[(&[&str], u64)], items: &[(&str, u64)]) -> bool {
        let item = |id: &str| Item { id: id.to_owned() };
        let entry = |(ids, quantity): &(&[&str], u64)| Entry {
            acceptable_items: ids.iter().map(|id| item(id)).collect(),
            quantity: *quantity,
        };
        let entries: Vec<Entry> = entries.iter().map(entry).collect();
        let line = |(id, quantity): &(&str, u64)| LineItem { item: item(id), quantity: *quantity };
        check(&entries, &items.iter().map(line).collect::<Vec<_>>()).is_ok()
    }

    #[test]
    fn each_entry_takes_its_quantity_of_what_it_accepts() {
        let shoes: (&[&str], u64) = (&["red", "blue"], 1);
        let socks: (&[&str], u64) = (&["socks"], 1);
        assert!(fits(&[shoes, socks], &[("red", 1), ("socks", 1)]));
        assert!(fits(&[shoes, socks], &[("socks", 1), ("blue", 1)]));
        for items in [&[("red", 1), ("blue", 1)][..], &[("red", 1)], &[("socks", 1)], &[("red", 2), ("socks", 1)], &[]]
        {
            assert!(!fits(&[shoes, socks], items), "{items:?}");
        }
        // An entry whose items are all withheld accepts nothing.
        assert!(!fits(&[(&[], 1)], &[("red", 1)]));
        assert!(fits(&[], &[]));
    }

    #[test]
    fn an_entry_gives_an_item_up_for_another_one() {
        let wide: (&[&str], u64) = (&["a", "b"], 3);
        let narrow: (&[&str], u64) = (&["a"], 2);
        assert!(fits(&[wide, narrow], &[("a", 3), ("b", 2)]));
        assert!(fits(&[(&["a", "b"], 1), (&["b", "c"], 1), (&["a"], 1)], &[("a", 1), ("b", 1), ("c", 1)]));
        assert!(!fits(&[wide, narrow], &[("a", 1), ("b", 4)]));
    }

    #[test]
    fn many_items_and_large_quantities_have_a_bound() {
        let ids: Vec<String> = (0..MAX_ITEMS).map(|number| format!("item-{number}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let entries: Vec<(&[&str], u64)> = (0..MAX_ITEMS).map(|_| (&*ids, 1_000_000_007)).collect();
        let items: Vec<(&str, u64)> = ids.iter().map(|id| (*id, 1_000_000_007)).collect();
        assert!(fits(&entries, &items));
        assert!(!fits(&[&entries[..], &entries[..1]].concat(), &items));
        assert!(!fits(&[(&["a"], u64::MAX), (&["b"], 1)], &[("a", u64::MAX)]));
    }
}
