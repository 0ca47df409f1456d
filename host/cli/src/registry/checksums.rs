//! Lists of checksums, as `sha256sum` writes them.

use std::ffi::OsStr;
use std::path::Path;

use annex_registry::Digest;

/// The number of hexadecimal digits of a checksum.
const HEX_DIGITS: usize = 64;

/// A line of a list: a file beside the list, and its digest.
pub(super) struct Checksum {
    pub(super) digest: Digest,
    pub(super) name: String,
}

/// True if the first line of the text has a checksum.
pub(super) fn is_list(text: &str) -> bool {
    text.lines().next().and_then(split).is_some()
}

/// Reads a list.
///
/// # Errors
/// The number of the first line that is not the checksum of a file beside the list.
pub(super) fn parse(text: &str) -> Result<Vec<Checksum>, usize> {
    (1..).zip(text.lines()).map(|(number, line)| checksum(line).ok_or(number)).collect()
}

fn checksum(line: &str) -> Option<Checksum> {
    let (digest, name) = split(line)?;
    let name = name.strip_prefix("./").unwrap_or(name);
    let is_beside = Path::new(name).file_name() == Some(OsStr::new(name));
    is_beside.then(|| Checksum { digest, name: name.to_owned() })
}

/// Splits a line into its digest and its name.
fn split(line: &str) -> Option<(Digest, &str)> {
    let (hex, rest) = line.split_at_checked(HEX_DIGITS)?;
    // `sha256sum --binary` writes an asterisk in place of the second space.
    let name = rest.strip_prefix("  ").or_else(|| rest.strip_prefix(" *"))?;
    Some((format!("sha256:{hex}").parse().ok()?, name))
}

#[cfg(test)]
mod tests {
    use super::{is_list, parse};

    #[test]
    fn a_list_has_a_digest_and_a_name_on_each_line() {
        let hex = "0a".repeat(32);
        let list = parse(&format!("{hex}  a.deb\n{hex} *b c.whl\r\n{hex}  ./d\n")).expect("a list");
        let names: Vec<&str> = list.iter().map(|checksum| checksum.name.as_str()).collect();
        assert_eq!(names, ["a.deb", "b c.whl", "d"]);
        assert!(list.iter().all(|checksum| checksum.digest.hex() == hex));
        assert!(is_list(&format!("{hex}  ../a")) && !is_list("") && !is_list(&hex));
    }

    #[test]
    fn a_line_that_names_no_file_beside_the_list_is_an_error_with_its_number() {
        let hex = "0a".repeat(32);
        for line in [
            String::new(),
            hex.clone(),
            format!("{hex}  "),
            format!("{hex} a"),
            format!("{hex}\ta"),
            format!("{hex}  ."),
            format!("{hex}  .."),
            format!("{hex}  ../a"),
            format!("{hex}  /a"),
            format!("{hex}  a/"),
            format!("{hex}  a/b"),
            format!("{}  a", hex.to_uppercase()),
            format!("\\{hex}  a"),
            "é".repeat(64),
        ] {
            assert_eq!(parse(&format!("{hex}  a\n{line}\n")).err(), Some(2), "{line:?}");
        }
    }
}
