//! Checks that no other user can read or write a file or folder. One rule covers all files that the host executes,
//! obeys or keeps secret.
//!
//! A file is opened once and its descriptor is checked, so that nothing can change between the check and reading. The
//! text of a refusal has the path, the mode and the command that fixes it. Tolerated permissions are logged once per
//! path.

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
