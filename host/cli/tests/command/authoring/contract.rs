//! `annex wit`

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::{check_refused, files_below, run_in};

const CONTRACT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit/annex-extension@0.1.0");

#[test]
fn the_contract_is_written_byte_for_byte_and_never_over_files() -> Result<()> {
    let parent = tempfile::tempdir()?;
    let written = run_in(parent.path(), &["wit", "made/wit"])?;
    assert_eq!((written.code, written.out.as_str()), (Some(0), ""), "{}", written.err);
    assert!(written.err.contains("annex:extension@0.1.0 is in made/wit"), "{}", written.err);
    let folder = parent.path().join("made/wit");
    let files = files_below(&folder, &[])?;
    assert_eq!(files, files_below(Path::new(CONTRACT), &[])?);
    for file in &files {
        assert_eq!(fs::read(folder.join(file))?, fs::read(Path::new(CONTRACT).join(file))?, "{file}");
    }

    let first = files.first().map(|file| folder.join(file)).unwrap_or_default();
    fs::write(&first, "mine")?;
    check_refused(&run_in(parent.path(), &["wit", "made/wit"])?, 1, &["made/wit has files already", "not there"]);
    assert_eq!(fs::read_to_string(&first)?, "mine");
    assert_eq!(files_below(&folder, &[])?, files);
    Ok(())
}

#[test]
fn an_empty_folder_is_filled() -> Result<()> {
    let folder = tempfile::tempdir()?;
    assert_eq!(run_in(folder.path(), &["wit", "."])?.code, Some(0));
    assert_eq!(files_below(folder.path(), &[])?, files_below(Path::new(CONTRACT), &[])?);
    Ok(())
}
