//! A process that uses up memory bandwidth on one core. It walks through more memory than any cache holds.

use std::env;
use std::hint::black_box;
use std::io::{self, Read};
use std::process::{Child, Stdio};
use std::thread;

use crate::process::this_program;

/// The bytes that the process walks through: several times the last-level cache of any common server.
const BUFFER: usize = 512 << 20;
/// The number of `u64` words in a cache line.
const LINE: usize = 8;

/// The running process, which is killed on drop.
pub(crate) struct Burner(Child);

impl Burner {
    /// Starts the process on the last core. The scheduler then gives each server the same share of all cores.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let cores = thread::available_parallelism()?.get();
        let mut command = this_program(Some(cores - 1))?;
        Ok(Self(command.arg("--burn").stdin(Stdio::piped()).spawn()?))
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tells whether this process was started to use up memory bandwidth.
pub(crate) fn is_asked_for() -> bool {
    env::args().nth(1).is_some_and(|argument| argument == "--burn")
}

/// Reads and writes each cache line of the buffer, again and again, until the harness ends.
pub(crate) fn burn() -> ! {
    thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let mut buffer = vec![1_u64; BUFFER / size_of::<u64>()];
    loop {
        for word in buffer.iter_mut().step_by(LINE) {
            *word = word.wrapping_add(1);
        }
        black_box(&mut buffer);
    }
}
