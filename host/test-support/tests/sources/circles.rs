//! Files of a crate that import each other in a circle can only be understood together.

use std::fs;
use std::path::Path;

use crate::graph::Graph;

/// Files that may import each other in a circle, such as a module and its two children.
const MOST: usize = 3;

/// Crates that are not there yet, with the number of files in their largest circle. A number that has become smaller is
/// to be lowered here, and a crate whose circle is small enough leaves the list.
const NOT_YET: &[(&str, usize)] = &[("tasks", 8)];

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
        let expected = NOT_YET.iter().find(|(listed, _)| *listed == name).map(|(_, size)| *size);
        let is_right = expected.map_or(circle.len() <= MOST, |expected| circle.len() == expected);
        if !is_right {
            let (found, edges) = (circle.len(), graph.edges_among(&circle));
            let expected = expected.map_or(format!("at most {MOST}"), |expected| format!("exactly {expected}"));
            complaints += &format!("{name}: a circle of {found} files, where {expected} are expected:\n{edges}");
        }
    }
    assert!(complaints.is_empty(), "{complaints}");
}
