//! The memory images of a component: files without a name that hold the initial memory of its instances.

use std::io::{self, ErrorKind};
use std::thread;
use std::time::Duration;

use wasmtime::component::Component;

/// The maximum number of attempts. One attempt lets the kernel wait for about 150 ms.
const ATTEMPTS: u32 = 8;

/// The pause after the first failure. Each further pause is longer by this time.
const PAUSE: Duration = Duration::from_millis(50);

/// Makes the memory images of the component now instead of at its first instance. Blocks for at most three seconds.
pub(super) fn make(component: Component) -> wasmtime::Result<Component> {
    repeat_while_busy(PAUSE, || component.initialize_copy_on_write_image())?;
    Ok(component)
}

/// Repeats `seal` while the kernel reports EBUSY. wasmtime seals each image against changes, and the kernel refuses
/// that as long as anything else, such as a migration of memory, holds one of the image's pages.
fn repeat_while_busy(pause: Duration, mut seal: impl FnMut() -> wasmtime::Result<()>) -> wasmtime::Result<()> {
    for attempt in 1..ATTEMPTS {
        match seal() {
            Err(error) if is_busy(&error) => thread::sleep(pause * attempt),
            result => return result,
        }
    }
    seal()
}

fn is_busy(error: &wasmtime::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|cause| cause.kind() == ErrorKind::ResourceBusy)
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};
    use std::time::Duration;

    use super::{ATTEMPTS, repeat_while_busy};

    /// Counts the attempts at an image that fails `failures` times with an error of this kind.
    fn attempts(failures: u32, kind: ErrorKind) -> (u32, bool) {
        let mut attempts = 0;
        let result = repeat_while_busy(Duration::ZERO, || {
            attempts += 1;
            if attempts > failures { Ok(()) } else { Err(io::Error::from(kind).into()) }
        });
        (attempts, result.is_ok())
    }

    #[test]
    fn an_image_whose_pages_are_held_for_a_moment_is_sealed_again() {
        assert_eq!(attempts(0, ErrorKind::ResourceBusy), (1, true));
        assert_eq!(attempts(3, ErrorKind::ResourceBusy), (4, true));
        assert_eq!(attempts(u32::MAX, ErrorKind::ResourceBusy), (ATTEMPTS, false));
        assert_eq!(attempts(3, ErrorKind::OutOfMemory), (1, false), "only a busy page is worth another attempt");
    }
}
