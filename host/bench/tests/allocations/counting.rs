//! An allocator that counts, on all threads but those that say that they are not meant.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

static COUNTS: AtomicBool = AtomicBool::new(false);
static SHOWS: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static PLACES: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

thread_local! {
    static IS_MEANT: Cell<bool> = const { Cell::new(true) };
}

/// The system's allocator, with a count of what it gives.
pub(crate) struct Counting;

impl Counting {
    fn count() {
        if !COUNTS.load(Ordering::Relaxed) || !IS_MEANT.try_with(Cell::get).unwrap_or(false) {
            return;
        }
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        if SHOWS.load(Ordering::Relaxed) {
            // What the search for the place allocates does not count.
            IS_MEANT.set(false);
            let place = place(&Backtrace::force_capture().to_string());
            *PLACES.lock().unwrap_or_else(PoisonError::into_inner).entry(place).or_default() += 1;
            IS_MEANT.set(true);
        }
    }
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count();
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the same.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::count();
        // SAFETY: the caller's promise is the same.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Leaves the allocations of this thread out.
pub(crate) fn leave_this_thread_out() {
    IS_MEANT.set(false);
}

/// Begins to count, with the places of all allocations if `shows`.
pub(crate) fn begin(shows: bool) {
    ALLOCATIONS.store(0, Ordering::Relaxed);
    SHOWS.store(shows, Ordering::Relaxed);
    COUNTS.store(true, Ordering::Relaxed);
}

/// Ends the count, and returns it with the places, the most frequent first.
pub(crate) fn end() -> (u64, Vec<(u64, String)>) {
    COUNTS.store(false, Ordering::Relaxed);
    let places = std::mem::take(&mut *PLACES.lock().unwrap_or_else(PoisonError::into_inner));
    let mut places: Vec<(u64, String)> = places.into_iter().map(|(place, count)| (count, place)).collect();
    places.sort_by(|one, other| other.cmp(one));
    (ALLOCATIONS.load(Ordering::Relaxed), places)
}

/// The functions of this project in a stack, from the innermost on.
fn place(stack: &str) -> String {
    let mut functions = Vec::new();
    let mut lines = stack.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        let Some((_, name)) = line.split_once(": ") else { continue };
        let at = lines.peek().filter(|next| next.starts_with("at ")).copied().unwrap_or_default();
        let is_ours = name.contains("annex_") && !name.contains("counting") && at.contains("host/");
        if is_ours && functions.len() < 4 {
            let file = at.rsplit_once("host/").map_or("", |(_, file)| file);
            functions.push(format!("{} ({file})", name.replace("::{{closure}}", "")));
        }
    }
    if functions.is_empty() { "elsewhere".to_owned() } else { functions.join(" < ") }
}
