//! Checks that no other user can read or write a file or folder. One rule covers all files that the host executes,
//! obeys or keeps secret.
//!
//! A file is opened once, and the check uses its descriptor, so that nothing can change between checking and reading.
//! The text of a refusal contains the path, the mode and the command that fixes the mode. A warning about tolerated
//! permissions is logged once per path.

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
