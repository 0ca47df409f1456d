//! Resets the memory of a kept instance after each turn. Contains all unsafe code for keeping instances.
//!
//! The engine maps a memory privately: from its initial image, or empty. On the first write to a page, the kernel gives
//! the process its own copy of the page. So a page that still belongs to the image is unchanged. The kernel lists all
//! other pages (`PAGEMAP_SCAN`, Linux 6.7), and their bytes are copied back from the snapshot.
//!
//! The list contains pages to which the kernel has mapped its zero page. Most of these pages were only read. But some
//! were written, because the kernel replaces a page of zeros by the zero page when it splits a huge page or merges
//! equal pages.
#![expect(unsafe_code, reason = "the engine has no way to write a component's memory, and libc none to ask for pages")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::{process, ptr};

/// The address range of a linear memory in this process.
///
/// The memory belongs to one instance. A `MemoryRange` must not outlive the store of that instance.
#[derive(Debug)]
pub(super) struct MemoryRange {
    address: usize,
    length: usize,
}

impl MemoryRange {
    /// The range of `bytes`, which must be the whole memory as returned by an instance's memory function.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { address: bytes.as_ptr().expose_provenance(), length: bytes.len() }
    }

    /// Unmaps all pages that were only read. Comparing the memory with the snapshot has mapped every page, and each
    /// later scan would visit all pages. An unmapped page is mapped again, with the same bytes, on the next read.
    ///
    /// The requirements of [`MemoryRange::put_back`] apply.
    ///
    /// # Errors
    /// The kernel cannot list the pages or does not unmap them. Nothing has changed then.
    pub(super) fn let_go(&mut self) -> io::Result<()> {
        let end = self.address.saturating_add(self.length);
        let mut written = Vec::new();
        scan(self.address, end, |start, end, is_zero| {
            if !is_zero {
                written.push((start, end));
            }
            Some(())
        })?;
        let mut start = self.address;
        for (next, after) in written.into_iter().chain([(end, end)]) {
            if start < next {
                // SAFETY: no page in the range is a private copy of this process, so reading the page again gives the
                // same bytes of the image or zeros. The range lies in the memory, and no guest runs in it.
                let released = unsafe {
                    libc::madvise(ptr::with_exposed_provenance_mut(start), next - start, libc::MADV_DONTNEED)
                };
                if released != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            start = after;
        }
        Ok(())
    }

    /// Writes the bytes of `snapshot` over all pages that may have changed. The documentation of this module explains
    /// why all other pages still equal the snapshot.
    ///
    /// The caller must hold the only handle of the store that owns the memory. No guest may run in it, and the memory
    /// must not have grown since [`MemoryRange::of`].
    ///
    /// # Errors
    /// The kernel cannot list the pages. The state of the memory is unknown then.
    pub(super) fn put_back(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        if snapshot.bytes.len() != self.length {
            return Err(io::Error::other("the snapshot is of another memory"));
        }
        let write = |start: usize, from: &[u8]| {
            // SAFETY: the range lies in the memory, because it has a counterpart in the snapshot, which has the same
            // length. A memory neither moves nor shrinks while its instance lives. By the requirement above no other
            // code reads or writes the memory now, and no reference to it is alive: those that the engine gives out
            // borrow the store.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr(), ptr::with_exposed_provenance_mut(start), from.len()) };
        };
        scan(self.address, self.address.saturating_add(self.length), |start, end, is_zero| {
            let offset = start.checked_sub(self.address)?;
            let from = snapshot.bytes.get(offset..end.checked_sub(self.address)?)?;
            if !is_zero {
                write(start, from);
                return Some(());
            }
            let is_nothing = snapshot.is_nothing.get(offset / PAGE..)?;
            for ((place, page), is_nothing) in (start..end).step_by(PAGE).zip(from.chunks(PAGE)).zip(is_nothing) {
                // The page already has zeros, and writing would allocate a private page.
                if !is_nothing {
                    write(place, page);
                }
            }
            Some(())
        })?;
        debug_assert!(*self.bytes() == *snapshot.bytes, "a page that was written was not found");
        Ok(())
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: as in `put_back`, the only caller.
        unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance(self.address), self.length) }
    }
}

/// The bytes of a memory before the first turn. A reset writes them back.
pub(super) struct Snapshot {
    bytes: Box<[u8]>,
    /// For each page: true if it is all zeros.
    is_nothing: Box<[bool]>,
}

impl Snapshot {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let is_nothing = bytes.chunks(PAGE).map(|page| page.iter().all(|byte| *byte == 0)).collect();
        Self { bytes: bytes.into(), is_nothing }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Smallest page that the kernel lists, in bytes. A larger page is listed as several.
const PAGE: usize = 4 << 10;

/// The kernel's `struct pm_scan_arg`.
#[repr(C)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_length: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// The kernel's `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_PFNZERO: u64 = 1 << 5;

/// Maximum number of regions that one system call lists. More regions need more calls.
const REGIONS: usize = 64;

/// True if the kernel supports listing pages.
pub(crate) fn can_be_put_back() -> bool {
    pagemap().is_some()
}

/// The page map of this process, if the kernel can scan it.
///
/// After a fork, the open file still refers to the parent process and says nothing about this one.
fn pagemap() -> Option<&'static File> {
    static PAGEMAP: OnceLock<Option<(u32, File)>> = OnceLock::new();
    let open = || {
        let file = File::open("/proc/self/pagemap").ok()?;
        // An empty range tests whether the kernel supports the call.
        scan_once(&file, 0, 0, &mut [Region { start: 0, end: 0, categories: 0 }]).ok().map(|_| (process::id(), file))
    };
    let (owner, file) = PAGEMAP.get_or_init(open).as_ref()?;
    (*owner == process::id()).then_some(file)
}

/// Calls `found` for each run of pages that are not part of the image. The arguments are the address of the first byte,
/// the address after the last byte, and whether the run maps the zero page.
fn scan(mut start: usize, end: usize, mut found: impl FnMut(usize, usize, bool) -> Option<()>) -> io::Result<()> {
    let unknown = || io::Error::other("the kernel lists pages that were not asked for");
    let file = pagemap().ok_or_else(|| io::Error::other("the kernel lists no pages"))?;
    let mut regions = [Region { start: 0, end: 0, categories: 0 }; REGIONS];
    while start < end {
        let (count, walked) = scan_once(file, start, end, &mut regions)?;
        for region in regions.iter().take(count) {
            let first = usize::try_from(region.start).map_err(io::Error::other)?;
            let after = usize::try_from(region.end).map_err(io::Error::other)?;
            found(first, after, region.categories & PAGE_IS_PFNZERO != 0).ok_or_else(unknown)?;
        }
        if walked <= start || walked > end {
            return Err(unknown());
        }
        start = walked;
    }
    Ok(())
}

/// Makes one system call. Returns the number of regions and the address up to which the kernel has scanned.
fn scan_once(file: &File, start: usize, end: usize, regions: &mut [Region]) -> io::Result<(usize, usize)> {
    let wide = |number: usize| u64::try_from(number).map_err(io::Error::other);
    let mut argument = ScanArgument {
        size: wide(size_of::<ScanArgument>())?,
        flags: 0,
        start: wide(start)?,
        end: wide(end)?,
        walk_end: 0,
        regions: wide(regions.as_mut_ptr().expose_provenance())?,
        regions_length: wide(regions.len())?,
        max_pages: 0,
        // A page of a file belongs to the image and was not written.
        category_inverted: PAGE_IS_FILE,
        category_mask: PAGE_IS_FILE,
        category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
        return_mask: PAGE_IS_PFNZERO,
    };
    let request = rustix::ioctl::opcode::read_write::<ScanArgument>(b'f', 16);
    // SAFETY: the request is PAGEMAP_SCAN, whose argument is this struct. The kernel writes to it and to at most
    // `regions_length` regions, which are borrowed for the whole call. Without flags it changes no page.
    let count = unsafe { libc::ioctl(file.as_raw_fd(), request as _, &raw mut argument) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    let walked = usize::try_from(argument.walk_end).map_err(io::Error::other)?;
    Ok((count.min(regions.len()), walked))
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::{MemoryRange, PAGE, Snapshot, scan};

    const PAGES: usize = 300;

    /// Memory as the engine maps it: private and empty.
    fn mapped() -> &'static mut [u8] {
        let length = PAGES * PAGE;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, which nobody else knows and which is never unmapped.
        unsafe {
            let address = libc::mmap(ptr::null_mut(), length, prot, flags, -1, 0);
            assert_ne!(address, libc::MAP_FAILED);
            std::slice::from_raw_parts_mut(address.cast(), length)
        }
    }

    /// The test writes every second page. This makes more runs than one system call lists.
    #[test]
    fn every_page_that_was_written_is_put_back() {
        let memory = mapped();
        memory[7] = 1;
        let snapshot = Snapshot::of(memory);
        for page in (0..PAGES).step_by(2) {
            memory[page * PAGE + page] = 0xaa;
        }
        let mut place = MemoryRange::of(memory);
        place.put_back(&snapshot).expect("the kernel lists pages");
        assert!(place.bytes() == snapshot.bytes());
    }

    /// Splitting a huge page replaces pages of zeros by the zero page, although they were written.
    #[test]
    fn a_page_that_was_written_with_zeros_is_put_back_after_a_huge_page_was_split() {
        const HUGE: usize = 2 << 20;
        // SAFETY: a new mapping, which nobody else knows and which is never unmapped.
        let memory = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let address = libc::mmap(ptr::null_mut(), 2 * HUGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(address, libc::MAP_FAILED);
            let aligned = address.cast::<u8>().add(address.cast::<u8>().align_offset(HUGE));
            // Where the kernel gives no huge pages the test holds all the same.
            libc::madvise(aligned.cast(), HUGE, libc::MADV_HUGEPAGE);
            std::slice::from_raw_parts_mut(aligned, HUGE)
        };
        memory.fill(0x55);
        let snapshot = Snapshot::of(memory);
        for page in [7, 100] {
            memory[page * PAGE..(page + 1) * PAGE].fill(0);
        }
        // SAFETY: the advice is about a page of the mapping, and changes nothing that can be read.
        unsafe { libc::madvise(memory[300 * PAGE..].as_mut_ptr().cast(), PAGE, libc::MADV_COLD) };
        let mut place = MemoryRange::of(memory);
        place.put_back(&snapshot).expect("the kernel lists pages");
        assert!(place.bytes() == snapshot.bytes());
    }

    #[test]
    fn pages_that_were_only_read_are_not_listed_as_written() {
        let memory = mapped();
        memory[20 * PAGE] = 1;
        assert_eq!(memory[40 * PAGE], 0);
        let start = memory.as_ptr().addr();
        let mut listed = Vec::new();
        scan(start, start + PAGES * PAGE, |first, after, is_zero| {
            listed.push(((first - start) / PAGE, (after - start) / PAGE, is_zero));
            Some(())
        })
        .expect("the kernel lists pages");
        assert_eq!(listed, [(20, 21, false), (40, 41, true)]);
    }

    #[test]
    fn unmapped_pages_have_the_same_bytes_when_read_again() {
        let memory = mapped();
        memory[20 * PAGE] = 1;
        memory[99 * PAGE + 7] = 2;
        let before = memory.to_vec();
        let mut place = MemoryRange::of(memory);
        place.let_go().expect("the kernel lists pages");
        assert!(place.bytes() == before);
    }

    #[test]
    fn a_snapshot_of_another_size_is_refused() {
        let memory = mapped();
        assert!(MemoryRange::of(memory).put_back(&Snapshot::of(&[0; PAGE])).is_err());
    }
}
