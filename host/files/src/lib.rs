//! Checks that nobody else can read or write a file or a folder, by one rule for all that the host runs, obeys or keeps
//! secret.
//!
//! A file is opened once and judged by its descriptor, so nothing can change between the look and the reading. The text
//! of a refusal has the path, the mode and the command that mends it. A lapse that the rule tolerates is logged once.

mod create;
mod folder;
mod open;
mod replace;
mod rule;

pub use create::create;
pub use folder::{check_folder, create_folders, remark};
pub use open::{open, read, read_text, without_mark};
pub use replace::replace;
pub use rule::Purpose;
