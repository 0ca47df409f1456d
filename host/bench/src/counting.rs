//! An allocator that counts the program's allocations on demand.

#![expect(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

// Written twice in the life of a process, so that asking costs each thread a line that stays in its cache.
static COUNTS: AtomicBool = AtomicBool::new(false);
static SHOWS_PLACES: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static PLACES: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

thread_local! {
    static IS_COUNTED: Cell<bool> = const { Cell::new(true) };
}

/// An allocator that counts its allocations while counting is on.
#[derive(Debug)]
pub struct CountingAllocator<A>(pub A);

/// Excludes the allocations of the calling thread from the count.
pub fn leave_this_thread_out() {
    IS_COUNTED.set(false);
}

/// Starts counting from zero.
pub fn begin() {
    ALLOCATIONS.store(0, Ordering::Relaxed);
    COUNTS.store(true, Ordering::Relaxed);
}

/// From now on, records the stack of each counted allocation. This takes far longer than the allocation itself.
pub fn show_places() {
    SHOWS_PLACES.store(true, Ordering::Relaxed);
}

/// Stops counting. Returns the number of allocations since the start, in which a reallocation counts as one.
pub fn end() -> u64 {
    COUNTS.store(false, Ordering::Relaxed);
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// Returns where allocations were recorded, each with the number of allocations, the most frequent first. Clears the
/// record.
pub fn places() -> Vec<(u64, String)> {
    let places = std::mem::take(&mut *PLACES.lock().unwrap_or_else(PoisonError::into_inner));
    let mut places: Vec<(u64, String)> = places.into_iter().map(|(place, count)| (count, place)).collect();
    places.sort_by(|one, other| other.cmp(one));
    places
}

fn count() {
    if !COUNTS.load(Ordering::Relaxed) || !IS_COUNTED.try_with(Cell::get).unwrap_or(false) {
        return;
    }
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    if SHOWS_PLACES.load(Ordering::Relaxed) {
        // The search for the place allocates too.
        IS_COUNTED.set(false);
        let place = place(&Backtrace::force_capture().to_string());
        *PLACES.lock().unwrap_or_else(PoisonError::into_inner).entry(place).or_default() += 1;
        IS_COUNTED.set(true);
    }
}

/// The functions of this project in a stack, the innermost first. At most four are shown.
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

// SAFETY: every call goes to the allocator inside as it came.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.realloc(pointer, layout, size) }
    }
}
