//! Appends an `[[extension]]` to the text of a config. The rest of the text stays as it is.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use annex_runtime::GrantNeeded;
use annex_server::Config;
use anyhow::Context;

use crate::inspect::trial;

/// The permission bits of a mode.
const PERMISSIONS: u32 = 0o7777;

/// A config that a command changes.
pub(super) struct ConfigText {
    /// The file itself, which a symbolic link may name.
    file: PathBuf,
    text: String,
}

/// The `[[extension]]` that is appended.
pub(super) struct NewExtension<'a> {
    pub(super) component: &'a str,
    pub(super) is_required: bool,
    pub(super) grants: &'a [GrantNeeded],
}

impl ConfigText {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let file = path.canonicalize().with_context(|| format!("cannot find {shown}"))?;
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {shown}"))?;
        Ok(Self { file, text })
    }

    /// The text with the extension at its end.
    ///
    /// # Errors
    /// When this text is no valid config, which names its extensions in another way.
    pub(super) fn with(&self, extension: &NewExtension<'_>) -> anyhow::Result<String> {
        let table = extension.table();
        let text = appended(&self.text, &table);
        Config::parse(&self.file, &annex_files::without_mark(text.clone())).with_context(|| {
            let shown = self.file.display();
            format!("{shown} stays as it is, because it cannot have this at its end; write it in yourself:\n{table}")
        })?;
        Ok(text)
    }

    /// Replaces the file, and keeps its mode.
    pub(super) fn replace_by(&self, text: &str) -> anyhow::Result<()> {
        let shown = self.file.display();
        let mode = fs::metadata(&self.file).with_context(|| format!("cannot read {shown}"))?.permissions().mode();
        annex_files::replace(&self.file, text.as_bytes(), mode & PERMISSIONS)
            .with_context(|| format!("cannot write {shown}"))
    }
}

impl NewExtension<'_> {
    /// The table for the config. A grant whose values only the operator knows is a comment.
    fn table(&self) -> String {
        let mut table = format!("[[extension]]\ncomponent = {}\n", toml::Value::from(self.component));
        if self.is_required {
            table.push_str("required = true\n");
        }
        if !self.grants.is_empty() {
            table.push_str("\n[extension.grants]\n");
        }
        for line in trial::lines_of(self.grants) {
            let begin = if is_complete(&line) { "" } else { "# Name the hosts that it may call: " };
            table.push_str(&format!("{begin}{line}\n"));
        }
        table
    }

    /// The grants that the table has only as comments.
    pub(super) fn to_fill_in(&self) -> Vec<String> {
        let mut lines = trial::lines_of(self.grants);
        lines.retain(|line| !is_complete(line));
        lines
    }
}

/// True if the line of a grant has no value that the operator has to replace.
fn is_complete(line: &str) -> bool {
    !line.starts_with("http =")
}

fn appended(text: &str, table: &str) -> String {
    let before = text.trim_end();
    let between = if before.is_empty() { "" } else { "\n\n" };
    let added = format!("{between}{table}");
    let added = if text.contains("\r\n") { added.replace('\n', "\r\n") } else { added };
    format!("{before}{added}")
}

#[cfg(test)]
mod tests {
    use annex_runtime::{GrantNeeded, StateScope};

    use super::{NewExtension, appended};

    fn check(is_required: bool, grants: &[GrantNeeded], expected: &str) {
        let extension = NewExtension { component: "oci://host/name:1", is_required, grants };
        assert_eq!(extension.table(), format!("[[extension]]\ncomponent = \"oci://host/name:1\"\n{expected}"));
    }

    #[test]
    fn a_table_has_the_grants_and_no_invented_host() {
        check(false, &[], "");
        check(true, &[GrantNeeded::Clock], "required = true\n\n[extension.grants]\nclock = true\n");
        let user = GrantNeeded::Scope(StateScope::User);
        let state = "\n[extension.grants]\nsession-state = { read = true, scopes = [\"user\"] }\n";
        check(false, &[GrantNeeded::SessionState, user], state);
        let http = NewExtension { component: "c", is_required: false, grants: &[GrantNeeded::Http] };
        assert!(http.table().ends_with("\n[extension.grants]\n# Name the hosts that it may call: http = { allow = [{ methods = [\"GET\"], host = \"api.example.com\", path = \"/\" }] }\n"));
        assert_eq!(http.to_fill_in().len(), 1);
    }

    #[test]
    fn a_table_is_appended_and_the_rest_of_the_text_stays() {
        let text = "# mine\n[card]\nname = \"a\" # why\n\n";
        assert_eq!(appended(text, "[[extension]]\n"), "# mine\n[card]\nname = \"a\" # why\n\n[[extension]]\n");
        assert_eq!(appended("a = 1\r\n", "[[b]]\n"), "a = 1\r\n\r\n[[b]]\r\n");
    }
}
