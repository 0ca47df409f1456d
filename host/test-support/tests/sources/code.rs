//! Finds the paths in a Rust file by reading its tokens. The code must be formatted by `rustfmt`.

/// A path in the code of a file, such as `crate::a::b`.
pub(crate) struct NamedPath {
    /// The inline modules around the path, the outermost first.
    pub(crate) inside: Vec<String>,
    /// The segments of the path, including `crate` and `super`.
    pub(crate) segments: Vec<String>,
    /// True if the path is part of a `pub use` or `pub(…) use`.
    pub(crate) is_re_export: bool,
}

/// The paths in a file: every path in a `use` line, and every other path that begins with `crate`, `super`, `self` or a
/// name in `children`. `children` are the child modules of the file.
///
/// Inline modules called `tests` are skipped. `$crate` is skipped too, because it belongs to the code that calls a
/// macro.
pub(crate) fn paths(source: &str, children: &[String]) -> Vec<NamedPath> {
    let mut reader = Reader { tokens: tokens(source), at: 0, inside: Vec::new(), depth: 0, found: Vec::new() };
    while reader.at < reader.tokens.len() {
        reader.step(children);
    }
    reader.found
}

/// The tokens of a file: identifiers, `::` and single characters. Comments, strings and character literals are left
/// away.
fn tokens(source: &str) -> Vec<String> {
    let text: Vec<char> = source.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(rest @ [first, ..]) = text.get(at..) {
        let first = *first;
        if rest.starts_with(&['/', '/']) {
            at += length_to(rest, &['\n']);
        } else if rest.starts_with(&['/', '*']) {
            at += length_to(rest, &['*', '/']);
        } else if let Some(length) = raw_string(rest) {
            at += length;
        } else if first == '"' {
            at += quoted(rest, '"');
        } else if first == '\'' {
            // A lifetime has no closing quote after its first character.
            let is_character = rest.get(1) == Some(&'\\') || rest.get(2) == Some(&'\'');
            at += if is_character { quoted(rest, '\'') } else { 1 };
        } else if first.is_alphanumeric() || first == '_' {
            let word: String = rest.iter().take_while(|next| next.is_alphanumeric() || **next == '_').collect();
            at += word.chars().count();
            tokens.push(word);
        } else if rest.starts_with(&[':', ':']) {
            tokens.push("::".to_owned());
            at += 2;
        } else {
            if !first.is_whitespace() {
                tokens.push(first.to_string());
            }
            at += 1;
        }
    }
    tokens
}

/// The number of characters up to and including `end`. If `end` does not occur, the number of all characters.
fn length_to(text: &[char], end: &[char]) -> usize {
    text.windows(end.len()).position(|window| window == end).map_or(text.len(), |place| place + end.len())
}

fn quoted(text: &[char], quote: char) -> usize {
    let mut at = 1;
    while let Some(&next) = text.get(at) {
        at += if next == '\\' { 2 } else { 1 };
        if next == quote {
            break;
        }
    }
    at
}

/// The number of characters of the raw string at the beginning of `text`, such as `r#"…"#`. `None` if `text` begins
/// with something else.
fn raw_string(text: &[char]) -> Option<usize> {
    let text_after = text.strip_prefix(&['r'])?;
    let hashes = text_after.iter().take_while(|next| **next == '#').count();
    let body = text_after.get(hashes..)?.strip_prefix(&['"'])?;
    let mut end = vec!['"'];
    end.extend(vec!['#'; hashes]);
    Some(2 + hashes + length_to(body, &end))
}

struct Reader {
    tokens: Vec<String>,
    at: usize,
    /// The open inline modules, each with the depth of braces inside it.
    inside: Vec<(String, usize)>,
    depth: usize,
    found: Vec<NamedPath>,
}

impl Reader {
    fn token(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", String::as_str)
    }

    fn before(&self) -> &str {
        self.at.checked_sub(1).and_then(|before| self.tokens.get(before)).map_or("", String::as_str)
    }

    fn step(&mut self, children: &[String]) {
        match self.token(0) {
            "use" => self.read_use(),
            "mod" if self.token(2) == "{" => self.open_module(),
            "{" => {
                self.depth += 1;
                self.at += 1;
            }
            "}" => {
                self.inside.pop_if(|(_, depth)| *depth == self.depth);
                self.depth = self.depth.saturating_sub(1);
                self.at += 1;
            }
            first
                if self.token(1) == "::"
                    && !["::", "in", "$"].contains(&self.before())
                    && is_start(first, children) =>
            {
                let segments = self.read_path();
                self.keep(segments, false);
            }
            _ => self.at += 1,
        }
    }

    fn open_module(&mut self) {
        let name = self.token(1).to_owned();
        self.at += 3;
        self.depth += 1;
        if name != "tests" {
            self.inside.push((name, self.depth));
            return;
        }
        let end = self.depth;
        while self.depth >= end && self.at < self.tokens.len() {
            self.depth = match self.token(0) {
                "{" => self.depth + 1,
                "}" => self.depth - 1,
                _ => self.depth,
            };
            self.at += 1;
        }
    }

    fn read_path(&mut self) -> Vec<String> {
        let mut segments = vec![self.token(0).to_owned()];
        self.at += 1;
        while self.token(0) == "::" && self.token(1).starts_with(|first: char| first.is_alphabetic() || first == '_') {
            segments.push(self.token(1).to_owned());
            self.at += 2;
        }
        segments
    }

    fn read_use(&mut self) {
        let is_re_export = ["pub", ")"].contains(&self.before());
        self.at += 1;
        self.read_tree(&[], is_re_export);
    }

    /// Reads one branch of a `use`, such as `a::{b, c::d as e}`.
    fn read_tree(&mut self, prefix: &[String], is_re_export: bool) {
        let mut segments = prefix.to_vec();
        loop {
            match self.token(0) {
                "::" => self.at += 1,
                "as" => self.at += 2,
                "{" => {
                    self.at += 1;
                    while !matches!(self.token(0), "}" | "") {
                        self.read_tree(&segments, is_re_export);
                        self.at += usize::from(self.token(0) == ",");
                    }
                    self.at += 1;
                    return;
                }
                "," | "}" | ";" | "" => break,
                segment => {
                    segments.push(segment.to_owned());
                    self.at += 1;
                }
            }
        }
        self.keep(segments, is_re_export);
    }

    fn keep(&mut self, segments: Vec<String>, is_re_export: bool) {
        let inside = self.inside.iter().map(|(name, _)| name.clone()).collect();
        self.found.push(NamedPath { inside, segments, is_re_export });
    }
}

fn is_start(word: &str, children: &[String]) -> bool {
    ["crate", "super", "self"].contains(&word) || children.iter().any(|child| child == word)
}

#[test]
fn paths_are_read_from_use_lines_and_code_and_from_nothing_else() {
    let source = r##"
        //! crate::comment
        pub(crate) use child::{Item, deep::{self, Other as Name}};
        use crate::a::b;
        pub(in crate::hidden) fn call<'a>(text: &'a str) { super::up::call("crate::string", r#"crate::raw"#, 'c'); }
        mod inline { use super::sibling; }
        fn child_call() { child::run::<crate::Type>(); other::child::no() }
        mod tests { use crate::test; }
    "##;
    let found: Vec<String> = paths(source, &["child".to_owned()])
        .iter()
        .map(|path| format!("{}{}", path.inside.join("::"), [" ", &path.segments.join("::")].concat()))
        .collect();
    let expected = [
        " child::Item",
        " child::deep::self",
        " child::deep::Other",
        " crate::a::b",
        " super::up::call",
        "inline super::sibling",
        " child::run",
        " crate::Type",
    ];
    assert_eq!(found, expected);
}
