//! Names of scopes, extensions and keys as stored in a database.
//!
//! PostgreSQL text cannot contain NUL, and an index entry has at most 2,704 bytes. Tenants, principals, ids and keys
//! have at most 512 bytes. The URI of an extension may be longer.

use std::borrow::Cow;
use std::fmt::Write as _;

use annex_database::{Row, Value};
use sha2::{Digest as _, Sha256};

use crate::sql::KeyDatabase;
use crate::store::{Scope, ScopeKind, Space};

/// Extension URIs longer than this are stored as a hash.
const MAX_EXTENSION_BYTES: usize = 512;

/// The stored names of a scope or bucket.
pub(super) struct Names<'a> {
    kind: ScopeKind,
    tenant: Cow<'a, str>,
    principal: Cow<'a, str>,
    id: Cow<'a, str>,
    /// The name of the extension. Empty if the names mean all extensions of a scope.
    extension: Cow<'a, str>,
}

impl<'a> Names<'a> {
    pub(super) fn of_scope<D: KeyDatabase>(scope: &'a Scope) -> Self {
        Self {
            kind: scope.kind,
            tenant: stored::<D>(&scope.tenant),
            principal: stored::<D>(&scope.principal),
            id: stored::<D>(&scope.id),
            extension: Cow::Borrowed(""),
        }
    }

    pub(super) fn of_bucket<D: KeyDatabase>(space: &'a Space) -> Self {
        let uri = stored::<D>(space.extension.as_str());
        let is_short = !D::HAS_BOUNDED_NAMES || uri.len() <= MAX_EXTENSION_BYTES;
        // The hash cannot be reversed, but the URI is never read back.
        let extension = if is_short { uri } else { Cow::Owned(digest(&uri)) };
        Self { extension, ..Self::of_scope::<D>(&space.scope) }
    }

    /// Parameters of a statement about a scope.
    pub(super) fn in_scope(&self) -> [Value<'_>; 4] {
        let names = [self.kind.name(), &*self.tenant, &*self.principal, &*self.id];
        names.map(Value::Text)
    }

    /// Parameters of a statement about a bucket, followed by `others`.
    pub(super) fn in_bucket<'v>(&'v self, others: impl IntoIterator<Item = Value<'v>>) -> Vec<Value<'v>> {
        self.in_scope().into_iter().chain([Value::Text(&self.extension)]).chain(others).collect()
    }

    /// Parameters that select the usage of an extension.
    pub(super) fn of_usage(&self) -> [Value<'_>; 2] {
        [Value::Text(&self.tenant), Value::Text(&self.extension)]
    }

    /// The name of the lock. All buckets of a task or a conversation share a lock, because they are removed together. Lasting
    /// keys have a lock per extension.
    pub(super) fn lock(&self) -> String {
        let extension = if self.kind.ends() { "" } else { &*self.extension };
        [self.kind.name(), &*self.tenant, &*self.principal, &*self.id, extension].join("\u{1f}")
    }
}

/// Encodes a text for storage. The stored text contains no NUL if the database forbids NUL, and has the same sort
/// order.
pub(super) fn stored<D: KeyDatabase>(text: &str) -> Cow<'_, str> {
    if D::HAS_BOUNDED_NAMES && text.contains(['\0', '\u{1}']) {
        Cow::Owned(text.replace('\u{1}', "\u{1}\u{2}").replace('\0', "\u{1}\u{1}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Decodes a text from [`stored`].
pub(super) fn read<D: KeyDatabase>(stored: String) -> String {
    if D::HAS_BOUNDED_NAMES && stored.contains('\u{1}') {
        let mut characters = stored.chars();
        let next = |characters: &mut std::str::Chars<'_>| match characters.next()? {
            '\u{1}' => characters.next().map(|second| if second == '\u{1}' { '\0' } else { '\u{1}' }),
            other => Some(other),
        };
        std::iter::from_fn(|| next(&mut characters)).collect()
    } else {
        stored
    }
}

fn digest(text: &str) -> String {
    // `stored` never returns a text that begins with these two characters, so a hash cannot equal a short URI.
    let mut name = "\u{1}\u{3}sha256:".to_owned();
    for byte in Sha256::digest(text) {
        // Writing to a text does not fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// The scope of a row. `None` for a kind that only later versions know.
pub(super) fn scope_of_row<D: KeyDatabase>(row: &D::Row) -> sqlx::Result<Option<Scope>> {
    let name = row.text(0)?;
    let Some(kind) = ScopeKind::ALL.into_iter().find(|known| known.name() == name) else { return Ok(None) };
    let text = |column| row.text(column).map(read::<D>);
    Ok(Some(Scope { kind, tenant: text(1)?, principal: text(2)?, id: text(3)? }))
}

#[cfg(test)]
mod tests {
    use annex_database::PostgresDatabase;
    use annex_protocol::ExtensionUri;

    use super::{MAX_EXTENSION_BYTES, Names, digest};
    use crate::store::{Scope, Space};

    fn named(uri: &str) -> String {
        let space = Space { extension: ExtensionUri::from(uri), scope: Scope::lasting("acme") };
        Names::of_bucket::<PostgresDatabase>(&space).extension.into_owned()
    }

    #[test]
    fn no_extension_has_the_name_under_which_a_long_uri_is_stored() {
        let long = format!("https://example.com/{}", "x".repeat(MAX_EXTENSION_BYTES));
        let name = named(&long);
        assert!(name.len() < MAX_EXTENSION_BYTES, "{name}");
        assert_eq!(name, digest(&long));
        assert_ne!(name, named(&format!("{long}y")));
        // URIs that equal the stored name of the long URI, or its stored name in an earlier version.
        for uri in [name.as_str(), &name[2..], &format!("\u{1}{name}")] {
            assert_ne!(named(uri), name, "{uri:?}");
        }
        let short = "https://example.com/short";
        assert_eq!(named(short), short);
    }
}
