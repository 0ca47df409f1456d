//! The set of installed extensions, in the order in which they run.

use std::sync::Arc;

use annex_protocol::{AgentExtension, ExtensionUri};
use http::HeaderName;

use crate::card_slot::entry_bytes;
use crate::error::LoadError;
use crate::extension::Extension;
use crate::hook::Hook;
use crate::load::method::Method;
use crate::load::selection::{Readers, Selection};

/// Maximum size of the card entries of all extensions together, in bytes of JSON.
pub(crate) const MAX_CARD_ENTRIES: usize = 256 << 10;

/// The installed extensions. URIs are unique, and dependencies come before their dependents.
#[derive(Clone, Debug, Default)]
pub struct Installed {
    extensions: Vec<Arc<Extension>>,
    /// The present versions of the extensions that `extensions` contains in an older version. The present versions
    /// decide which requests an extension is active for.
    replaced: Vec<Arc<Extension>>,
    /// True if an extension hides its metadata from some readers of tasks.
    limits_readers: bool,
    /// True if an extension has the hook `reads`.
    shows_tasks: bool,
    /// True if an extension has the hook `extended-card`.
    shows_entries: bool,
    /// The header fields of requests that grants of the extensions show. Each is there once.
    shown_headers: Vec<HeaderName>,
}

impl Installed {
    /// Checks that the extensions fit together.
    ///
    /// # Errors
    /// Two extensions share a URI, a metadata key or a method. A dependency is missing, comes later, may be skipped,
    /// or has fewer callers. The card entries are too large in total.
    pub fn new(extensions: impl IntoIterator<Item = impl Into<Arc<Extension>>>) -> Result<Self, LoadError> {
        Self::fitting(extensions.into_iter().map(Into::into).collect(), Vec::new())
    }

    fn fitting(extensions: Vec<Arc<Extension>>, replaced: Vec<Arc<Extension>>) -> Result<Self, LoadError> {
        // Checked first: otherwise a circle would be reported as a wrong order.
        if let Some(uris) = Self::cycle(&extensions) {
            return Err(LoadError::Cycle { uris });
        }
        let mut installed = Self { replaced, ..Self::default() };
        for extension in extensions {
            installed.push(extension)?;
        }
        Ok(installed)
    }

    /// Appends an extension.
    ///
    /// # Errors
    /// The extension shares its URI, a metadata key or a method with another one. A dependency is missing, may be
    /// skipped, or has fewer callers. The card entries are too large in total. The set is unchanged then.
    pub fn push(&mut self, extension: Arc<Extension>) -> Result<(), LoadError> {
        if self.get(extension.uri()).is_some() {
            return Err(LoadError::Duplicate { uri: extension.uri().clone() });
        }
        if let Some(needs) = self.lacks(&extension) {
            return Err(LoadError::Dependency { uri: extension.uri().clone(), needs: needs.clone() });
        }
        if let Some(needs) = self.may_miss(&extension) {
            return Err(LoadError::SkippedDependency { uri: extension.uri().clone(), needs: needs.clone() });
        }
        if let Some(needs) = self.withheld(&extension) {
            return Err(LoadError::NarrowDependency { uri: extension.uri().clone(), needs: needs.clone() });
        }
        self.check_keys(&extension)?;
        self.check_methods(&extension)?;
        self.check_card(&extension)?;
        self.limits_readers |= self.selection_of(&extension).readers == Readers::Active;
        self.shows_tasks |= extension.hook_set.has(Hook::Reads);
        self.shows_entries |= extension.hook_set.has(Hook::ExtendedCard);
        for name in extension.grants().caller.iter().flat_map(|grant| &grant.headers) {
            if !self.shown_headers.contains(name) {
                self.shown_headers.push(name.clone());
            }
        }
        self.extensions.push(extension);
        Ok(())
    }

    /// The header fields of requests that the extensions may see.
    #[must_use]
    pub fn shown_headers(&self) -> &[HeaderName] {
        &self.shown_headers
    }

    /// The first dependency of `extension` that is not installed. `None` if all dependencies are installed.
    #[must_use]
    pub fn lacks<'a>(&self, extension: &'a Extension) -> Option<&'a ExtensionUri> {
        extension.descriptor.depends_on.iter().find(|needs| self.get(needs).is_none())
    }

    /// The first dependency of `extension` that may be skipped, if `extension` is required. `None` if no dependency may
    /// be skipped, or if `extension` is not required.
    fn may_miss<'a>(&self, extension: &'a Extension) -> Option<&'a ExtensionUri> {
        let is_skipped = |needs: &&ExtensionUri| self.get(needs).is_some_and(|needs| needs.may_be_skipped());
        extension.descriptor.depends_on.iter().find(is_skipped).filter(|_| extension.is_required())
    }

    /// The first dependency that allows fewer callers than `extension`. For callers that the dependency does not allow,
    /// `extension` would stay inactive without an error.
    fn withheld<'a>(&self, extension: &'a Extension) -> Option<&'a ExtensionUri> {
        let is_for_fewer = |needs: &&ExtensionUri| {
            let selection = self.selection_of(extension);
            self.get(needs).is_some_and(|needs| !self.selection_of(needs).allows_all_of(selection))
        };
        extension.descriptor.depends_on.iter().find(is_for_fewer)
    }

    /// Finds extensions that depend on each other in a circle: each depends on the next, and the last on the first.
    /// `None` if there is no circle.
    #[must_use]
    pub fn cycle(extensions: &[Arc<Extension>]) -> Option<Vec<ExtensionUri>> {
        let find = |uri: &ExtensionUri| extensions.iter().find(|extension| extension.uri() == uri);
        // Removes extensions without remaining dependencies until none is left. Each remaining extension depends on
        // another remaining one.
        let mut left: Vec<&Arc<Extension>> = extensions.iter().collect();
        loop {
            let uris: Vec<&ExtensionUri> = left.iter().map(|extension| extension.uri()).collect();
            let before = left.len();
            left.retain(|extension| extension.descriptor.depends_on.iter().any(|needs| uris.contains(&needs)));
            if left.len() == before {
                break;
            }
        }
        let is_left = |uri: &ExtensionUri| left.iter().any(|extension| extension.uri() == uri);
        let mut path = vec![left.first()?.uri()];
        loop {
            let last = find(path.last()?)?;
            let next = last.descriptor.depends_on.iter().find(|needs| is_left(needs))?;
            if let Some(start) = path.iter().position(|seen| *seen == next) {
                return Some(path.into_iter().skip(start).cloned().collect());
            }
            path.push(next);
        }
    }

    /// Returns this set with older versions of some extensions. An entry of `others` replaces the extension with the
    /// same URI. The selections of the present versions still apply.
    ///
    /// # Errors
    /// The versions do not fit together, see [`Installed::new`]. For example, an older version may depend on a removed
    /// extension, or own a key that another extension owns now.
    pub fn with_versions(&self, others: &[Arc<Extension>]) -> Result<Self, LoadError> {
        let version = |extension: &Arc<Extension>| {
            let other = others.iter().find(|other| other.uri() == extension.uri());
            Arc::clone(other.unwrap_or(extension))
        };
        let extensions: Vec<Arc<Extension>> = self.iter().map(version).collect();
        let is_replaced = |(present, version): &(&Arc<Extension>, &Arc<Extension>)| !Arc::ptr_eq(present, version);
        let replaced =
            self.iter().zip(&extensions).filter(is_replaced).map(|(present, _)| Arc::clone(present)).collect();
        Self::fitting(extensions, replaced)
    }

    /// The requests that an extension is active for. For an older version, these are the requests that the operator has
    /// configured for the present version.
    #[must_use]
    pub fn selection_of<'a>(&'a self, extension: &'a Extension) -> &'a Selection {
        let present = self.replaced.iter().find(|present| present.uri() == extension.uri());
        &present.map_or(extension, Arc::as_ref).selection
    }

    /// True if an extension hides its metadata from readers of tasks that it is not active for.
    #[must_use]
    pub fn limits_readers(&self) -> bool {
        self.limits_readers
    }

    /// True if an extension has the hook `reads`, which changes the tasks that readers get.
    #[must_use]
    pub fn shows_tasks(&self) -> bool {
        self.shows_tasks
    }

    /// True if an extension has the hook `extended-card`, which changes the extended card for some readers.
    #[must_use]
    pub fn shows_entries(&self) -> bool {
        self.shows_entries
    }

    /// Checks that no other extension owns a metadata key of this extension. Only the same component, installed under
    /// another URI, may own the same key, and only if the host forgets the metadata of both or of neither.
    fn check_keys(&self, extension: &Extension) -> Result<(), LoadError> {
        for key in &extension.descriptor.metadata_keys {
            let forgets = |extension: &Extension| extension.grants().forget_metadata;
            let mut others =
                self.iter().filter(|other| other.digest != extension.digest || forgets(other) != forgets(extension));
            let owner = others.find(|other| other.descriptor.metadata_keys.contains(key));
            if let Some(owner) = owner {
                let uri = extension.uri().clone();
                let other = owner.uri().clone();
                return Err(LoadError::SharedKey { uri, other, key: key.clone() });
            }
        }
        Ok(())
    }

    /// Checks that requests can tell the methods of all extensions apart: no two methods have the same name. The path
    /// of a method over HTTP contains the name of its extension, so no two extensions with methods have the same name
    /// either.
    fn check_methods(&self, extension: &Extension) -> Result<(), LoadError> {
        if extension.methods.is_empty() {
            return Ok(());
        }
        let name = &extension.descriptor.name;
        for other in self.iter().filter(|other| !other.methods.is_empty()) {
            let uri = extension.uri().clone();
            let other_uri = other.uri().clone();
            let shared = extension.methods.iter().find(|method| other.has_method(&method.name));
            if let Some(method) = shared {
                return Err(LoadError::SharedMethod { uri, other: other_uri, name: method.name.clone() });
            }
            if other.descriptor.name == *name {
                return Err(LoadError::SharedPath { uri, other: other_uri, name: name.clone() });
            }
        }
        Ok(())
    }

    fn check_card(&self, extension: &Extension) -> Result<(), LoadError> {
        // A set with older versions is on no card.
        if self.replaced.is_empty() { self.check_entries(extension.uri(), extension.card.bytes()) } else { Ok(()) }
    }

    /// Checks that the card has room for `entry` in place of the entry that its extension has now.
    ///
    /// # Errors
    /// The card entries are too large in total.
    pub fn check_entry(&self, entry: &AgentExtension) -> Result<(), LoadError> {
        self.check_entries(&entry.uri, entry_bytes(entry))
    }

    fn check_entries(&self, uri: &ExtensionUri, bytes: usize) -> Result<(), LoadError> {
        let others = self.extensions.iter().filter(|other| other.uri() != uri);
        let others = others.map(|other| (other.card.bytes(), other.uri()));
        let entries: Vec<(usize, &ExtensionUri)> = others.chain([(bytes, uri)]).collect();
        let size = entries.iter().fold(0_usize, |sum, (bytes, _)| sum.saturating_add(*bytes));
        // A quarter of the mebibyte that clients read. The rest is for skills, interfaces and signatures.
        if size <= MAX_CARD_ENTRIES {
            return Ok(());
        }
        let largest = entries.into_iter().max_by_key(|(bytes, _)| *bytes).map_or(uri, |(_, uri)| uri);
        Err(LoadError::CardEntries { uri: uri.clone(), size, limit: MAX_CARD_ENTRIES, largest: largest.clone() })
    }

    /// The method with this name, and its extension.
    #[must_use]
    pub fn method(&self, name: &str) -> Option<(&Arc<Extension>, &Method)> {
        self.iter().find_map(|extension| {
            let method = extension.methods.iter().find(|method| method.name == name)?;
            Some((extension, method))
        })
    }

    /// The extension with exactly this URI.
    #[must_use]
    pub fn get(&self, uri: &ExtensionUri) -> Option<&Arc<Extension>> {
        self.extensions.iter().find(|extension| extension.uri() == uri)
    }

    /// URIs of the extensions that are quarantined or revoked.
    pub fn quarantined(&self) -> impl Iterator<Item = &ExtensionUri> {
        self.iter().filter(|extension| extension.breaker.is_open()).map(|extension| extension.uri())
    }

    /// All extensions, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Extension>> {
        self.extensions.iter()
    }
}
