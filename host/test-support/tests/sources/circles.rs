//! Finds circles of imports. A reader can understand the files of a circle only together.

use std::fs;
use std::path::Path;

use crate::graph::Graph;

/// The most files of a circle, such as a module and its two children.
const MOST: usize = 3;

#[test]
fn no_crate_has_more_than_three_files_that_import_each_other_in_a_circle() {
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder of crates");
    let mut complaints = String::new();
    for entry in fs::read_dir(host).expect("the folder of crates") {
        let entry = entry.expect("a crate");
        let sources = entry.path().join("src");
        if !sources.is_dir() {
            continue;
        }
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        let graph = Graph::of_crate(&sources);
        let circle = graph.largest_circle();
        if circle.len() > MOST {
            let found = circle.len();
            let edges = graph.edges_among(&circle);
            complaints += &format!("{name}: a circle of {found} files, where at most {MOST} may be:\n{edges}");
        }
    }
    assert!(complaints.is_empty(), "{complaints}");
}
