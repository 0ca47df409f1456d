//! Breaks long lines at spaces for a terminal. The continuation of a line is indented below the line's text.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

/// The least number of columns after the indent. If the terminal has fewer, this program leaves it to the terminal to
/// break lines.
const LEAST_ROOM: usize = 20;

/// The number of columns of the terminal. `None` if the stream is not a terminal, or the terminal reports no size.
pub(crate) fn columns(stream: &(impl AsFd + IsTerminal)) -> Option<usize> {
    let size = stream.is_terminal().then(|| tcgetwinsize(stream).ok()).flatten()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Breaks lines at spaces so that each line has at most `columns` columns. The continuation of a broken line is
/// indented by `indent` columns more than the line itself. Without `columns` the text is returned unchanged.
pub(crate) fn hanging(text: &str, indent: usize, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return text.to_owned() };
    text.split_inclusive('\n').map(|line| broken(line, indent, columns)).collect()
}

fn broken(line: &str, indent: usize, columns: usize) -> String {
    let indent = line.len() - line.trim_start_matches(' ').len() + indent;
    if indent + LEAST_ROOM > columns || line.trim_end().chars().count() <= columns {
        return line.to_owned();
    }
    let mut broken = String::with_capacity(line.len() * 2);
    let mut column = 0;
    for word in words(line) {
        if column > indent && column + word.trim_end().chars().count() > columns {
            broken.truncate(broken.trim_end().len());
            broken.push('\n');
            broken.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        }
        broken.push_str(word);
        column += word.chars().count();
    }
    broken
}

/// The words of a line, each with the spaces behind it. An option and its value are one word, because people copy them
/// together.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let (mut begin, mut end) = (0, 0);
    for piece in line.split_inclusive(' ') {
        end += piece.len();
        let is_option = piece.len() > 2 && piece.starts_with("--") && piece.trim_end().ends_with(char::is_alphanumeric);
        if !is_option {
            words.extend(line.get(begin..end));
            begin = end;
        }
    }
    words.extend(line.get(begin..end).filter(|rest| !rest.is_empty()));
    words
}

#[cfg(test)]
mod tests {
    use super::hanging;

    #[test]
    fn an_option_and_its_value_stay_in_one_line() {
        let hint =
            "error: add to this command:\n  --extension https://example.com/a/long/uri --state JSON (an example)";
        let expected =
            "error: add to this command:\n  --extension https://example.com/a/long/uri\n    --state JSON (an example)";
        assert_eq!(hanging(hint, 2, Some(32)), expected);
        assert_eq!(hanging("name the one with --extension URI", 2, Some(32)), "name the one with\n  --extension URI");
        assert_eq!(hanging("drop --stream, which is a word", 2, Some(24)), "drop --stream, which is\n  a word");
    }

    #[test]
    fn further_lines_begin_below_the_text_and_no_line_is_longer_than_the_terminal() {
        let row = "ok       clock        one two three four five six\n";
        let expected = "ok       clock        one two three four\n                      five six\n";
        assert_eq!(hanging(row, 22, Some(42)), expected);
        assert_eq!(hanging(row, 22, None), row);
        assert_eq!(hanging(row, 22, Some(49)), row);
        assert_eq!(hanging(row, 22, Some(41)), row, "there is no room behind the indent");
    }

    #[test]
    fn each_line_keeps_its_own_indent_and_long_words_stay_whole() {
        let list = "error: 2 errors in the config\n  a.toml:1:1: a: unknown key, and so on\n  b";
        let expected = "error: 2 errors in the\n  config\n  a.toml:1:1: a: unknown\n    key, and so on\n  b";
        assert_eq!(hanging(list, 2, Some(24)), expected);
        let path = format!("row: {} b", "x".repeat(40));
        assert_eq!(hanging(&path, 2, Some(30)), format!("row:\n  {}\n  b", "x".repeat(40)));
    }
}
