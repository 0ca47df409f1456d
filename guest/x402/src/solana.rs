//! Finds the message of a Solana transaction, which is all that its signers sign. The facilitator reads the content.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The maximum size of a transaction on the network.
const MAX_BYTES: usize = 1_232;

const SIGNATURE_BYTES: usize = 64;
const KEY_BYTES: usize = 32;
const HEADER_BYTES: usize = 3;

/// The bit that the first byte of a message has if the message has a version.
const VERSIONED: u8 = 0x80;

/// The message of a transaction in base64. `None` if the text is no transaction, or if there is another way to write
/// the same bytes.
pub fn message(text: &str) -> Option<Vec<u8>> {
    let bytes = STANDARD.decode(text).ok().filter(|bytes| bytes.len() <= MAX_BYTES)?;
    let mut rest = Bytes(&bytes);
    rest.list(SIGNATURE_BYTES)?;
    let message = rest.0;
    let is_versioned = message.first()? & VERSIONED != 0;
    // Version 0 is the only one.
    if is_versioned && rest.byte()? != VERSIONED {
        return None;
    }
    rest.skip(HEADER_BYTES)?;
    rest.list(KEY_BYTES)?;
    // The hash of a recent block.
    rest.skip(KEY_BYTES)?;
    // The instructions: a program, its accounts, and its data.
    for _ in 0..rest.count()? {
        rest.byte()?;
        rest.list(1)?;
        rest.list(1)?;
    }
    if is_versioned {
        // Tables of addresses: the address of a table, its writable entries, and its other entries.
        for _ in 0..rest.count()? {
            rest.skip(KEY_BYTES)?;
            rest.list(1)?;
            rest.list(1)?;
        }
    }
    // Some readers ignore bytes after the message, so one transaction could be written in many ways.
    rest.0.is_empty().then(|| message.to_vec())
}

/// The bytes that are not read yet.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn skip(&mut self, count: usize) -> Option<()> {
        self.0 = self.0.get(count..)?;
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number in one or two groups of seven bits. A transaction is too short for a number that needs three.
    fn count(&mut self) -> Option<usize> {
        let low = self.byte()?;
        if low < 0x80 {
            return Some(low.into());
        }
        // A second group of zeros would be another way to write a number of one group.
        let high = self.byte().filter(|high| (1..0x80).contains(high))?;
        Some(usize::from(low & 0x7f) | usize::from(high) << 7)
    }

    /// Skips a list whose items have `size` bytes.
    fn list(&mut self, size: usize) -> Option<()> {
        let count = self.count()?;
        self.skip(count.saturating_mul(size))
    }
}
