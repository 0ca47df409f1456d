//! The allocator of a component: a heap inside the initial memory.
//!
//! An instance lives for one turn. Growing its memory costs the host two changes of page protection, which is more than
//! many hooks cost. The default allocator grows the memory at the first allocation. This allocator begins with an arena
//! inside the initial memory, and grows the memory only after the arena is used up.

use core::alloc::Layout;
use core::arch::wasm32::memory_grow;
use core::mem::MaybeUninit;

use talc::base::Talc;
use talc::base::binning::Binning;
use talc::cell::TalcSyncCell;
use talc::source::Source;
use talc::wasm::WasmBinning;

/// The size of the arena. It can be large, because untouched pages cost nothing.
const ARENA_BYTES: usize = 192 << 10;
const PAGE_BYTES: usize = 64 << 10;
/// The bytes that the allocator may need in addition to an allocation.
const OVERHEAD_BYTES: usize = 256;

// Uninitialized, so that it adds no data to the component.
static mut ARENA: [MaybeUninit<u8>; ARENA_BYTES] = [MaybeUninit::uninit(); ARENA_BYTES];

#[global_allocator]
static ALLOCATOR: TalcSyncCell<ArenaThenGrow, WasmBinning> = TalcSyncCell::new_wasm(ArenaThenGrow { arena: true });

/// Provides the arena first, then whole pages.
#[derive(Debug)]
struct ArenaThenGrow {
    /// True until the arena has been provided.
    arena: bool,
}

// SAFETY: the function allocates nothing, and uses the allocator only through its argument.
unsafe impl Source for ArenaThenGrow {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        let (base, bytes) = if core::mem::take(&mut talc.source.arena) {
            ((&raw mut ARENA).cast::<u8>(), ARENA_BYTES)
        } else {
            let pages = (layout.size() + layout.align() + OVERHEAD_BYTES).div_ceil(PAGE_BYTES);
            match memory_grow::<0>(pages) {
                // The host's limit on memory refuses the growth.
                usize::MAX => return Err(()),
                // `memory.grow` answers with the size before, in pages, which is where the new ones begin.
                end => ((end * PAGE_BYTES) as *mut u8, pages * PAGE_BYTES),
            }
        };
        // SAFETY: the arena is provided once and has no other user; grown pages are new.
        unsafe { talc.claim(base, bytes) }.map(drop).ok_or(())
    }
}
