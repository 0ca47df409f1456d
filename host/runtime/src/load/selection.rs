//! The requests that an extension is active for, and the readers of its metadata.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use annex_protocol::{Json, JsonObject};
use serde_json::Value;

/// The claim whose value is a space-separated list (RFC 8693 section 4.2).
const SCOPE: &str = "scope";

/// The requests that an extension is active for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The condition for activating the extension.
    pub activate: Activate,
    /// The callers that the extension is active for; `None` for all. For other callers the extension does not exist.
    pub allow: Option<AllowedCallers>,
    /// The readers of tasks that see the extension's metadata.
    pub readers: Readers,
}

/// The condition for activating an extension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activate {
    /// The extension is active if the client requests its URI.
    #[default]
    Requested,
    /// The extension is active if the client requests its URI, or if the message has one of the extension's metadata
    /// keys or lists its URI.
    Metadata,
    /// The extension is active for every message, and for every call of its methods.
    Always,
}

/// The readers of tasks that see an extension's metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readers {
    /// All readers of the task.
    #[default]
    All,
    /// Readers that the extension is active for. A reader names the URI, or the extension is always active.
    Active,
}

/// The callers that an extension is active for. The sets are ordered, so that the digest of an installation is the
/// same in all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedCallers {
    principals: BTreeSet<String>,
    /// Allowed values, by name of the claim.
    claims: BTreeMap<String, BTreeSet<String>>,
}

/// An entry in a list of allowed callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedCaller {
    /// The caller with this principal id.
    Principal(String),
    /// Callers whose token has this claim with this value, or with a list that contains it.
    Claim {
        /// Name of the claim.
        name: String,
        /// Value of the claim, a string.
        value: String,
    },
}

impl Selection {
    /// True if the extension may be active for this caller. An anonymous caller has an empty principal and no claims.
    #[must_use]
    pub fn allows(&self, principal: &str, claims: &JsonObject) -> bool {
        self.allow.as_ref().is_none_or(|allow| allow.have(principal, claims))
    }

    /// True if this selection allows all callers that `other` allows. Only the entries of the two lists are compared,
    /// not the claims that callers really have.
    pub(crate) fn allows_all_of(&self, other: &Self) -> bool {
        match (&self.allow, &other.allow) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(others)) => own.have_all_of(others),
        }
    }

    /// Adds notes to the description of a card entry: when the extension is active, and that only some callers may use
    /// it. The callers are not named, because the card is public.
    pub(crate) fn described(&self, description: &str) -> String {
        let active = match self.activate {
            Activate::Requested => None,
            Activate::Metadata => Some("Active also when a message bears its metadata or names it in `extensions`."),
            Activate::Always => Some("Active for every message, whether the client asks for it or not."),
        };
        let callers = self.allow.as_ref().map(|_| "For some callers only.");
        let words = [Some(description).filter(|words| !words.is_empty()), active, callers];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

impl Activate {
    /// Name in the config.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Metadata => "metadata",
            Self::Always => "always",
        }
    }
}

impl Readers {
    /// Name in the config.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Active => "active",
        }
    }
}

impl AllowedCallers {
    /// The entries in order, principals first.
    pub fn entries(&self) -> impl Iterator<Item = AllowedCaller> {
        let principals = self.principals.iter().cloned().map(AllowedCaller::Principal);
        let claims = self.claims.iter().flat_map(|(name, values)| {
            values.iter().map(|value| AllowedCaller::Claim { name: name.clone(), value: value.clone() })
        });
        principals.chain(claims)
    }

    fn have(&self, principal: &str, claims: &JsonObject) -> bool {
        // A caller may have large claims, so each is parsed once, however many values are compared.
        let has_claim = |(name, values): (&String, &BTreeSet<String>)| {
            claims.get(name).is_some_and(|claim| has_one_of(name, claim, values))
        };
        self.principals.contains(principal) || self.claims.iter().any(has_claim)
    }

    fn have_all_of(&self, others: &Self) -> bool {
        let has_claim = |(name, values): (&String, &BTreeSet<String>)| {
            self.claims.get(name).is_some_and(|own| own.is_superset(values))
        };
        self.principals.is_superset(&others.principals) && others.claims.iter().all(has_claim)
    }
}

impl FromIterator<AllowedCaller> for AllowedCallers {
    fn from_iter<T: IntoIterator<Item = AllowedCaller>>(entries: T) -> Self {
        let mut callers = Self::default();
        for entry in entries {
            match entry {
                AllowedCaller::Principal(id) => {
                    callers.principals.insert(id);
                }
                AllowedCaller::Claim { name, value } => {
                    callers.claims.entry(name).or_default().insert(value);
                }
            }
        }
        callers
    }
}

impl AllowedCaller {
    /// Parses `principal:ID` or `claim:NAME=VALUE`. `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "principal" if !rest.is_empty() => Some(Self::Principal(rest.to_owned())),
            "claim" => {
                let (name, value) = rest.split_once('=')?;
                let is_whole = !name.is_empty() && !value.is_empty();
                is_whole.then(|| Self::Claim { name: name.to_owned(), value: value.to_owned() })
            }
            _ => None,
        }
    }
}

impl fmt::Display for AllowedCaller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Principal(id) => write!(formatter, "principal:{id}"),
            Self::Claim { name, value } => write!(formatter, "claim:{name}={value}"),
        }
    }
}

fn has_one_of(name: &str, claim: &Json, values: &BTreeSet<String>) -> bool {
    match claim.to::<Value>() {
        Ok(Value::String(text)) => {
            values.contains(&text) || (name == SCOPE && text.split(' ').any(|word| values.contains(word)))
        }
        Ok(Value::Array(items)) => items.iter().filter_map(Value::as_str).any(|item| values.contains(item)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use annex_protocol::JsonObject;

    use super::{Activate, AllowedCaller, AllowedCallers, Selection};

    fn selection(allow: &[&str]) -> Selection {
        let allow = allow.iter().map(|text| AllowedCaller::parse(text).expect("a caller")).collect();
        Selection { allow: Some(allow), ..Selection::default() }
    }

    #[test]
    fn a_caller_is_allowed_by_its_principal_or_by_a_claim() {
        let claims = r#"{"org":"acme","roles":["reader","writer"],"scope":"mail files","admin":true,"n":7}"#;
        let claims = JsonObject::parse(claims).expect("an object");
        let allows = |allow: &str| selection(&[allow]).allows("https://id.example#ada", &claims);
        for allow in [
            "principal:https://id.example#ada",
            "claim:org=acme",
            "claim:roles=writer",
            "claim:scope=mail",
            "claim:scope=mail files",
        ] {
            assert!(allows(allow), "{allow}");
        }
        for allow in [
            "principal:ada",
            "claim:org=acme2",
            "claim:org=ACME",
            "claim:roles=admin",
            "claim:roles=reader,writer",
            "claim:scope=mai",
            "claim:admin=true",
            "claim:n=7",
            "claim:team=acme",
        ] {
            assert!(!allows(allow), "{allow}");
        }
        for one in ["claim:org=acme", "claim:scope=files", "claim:roles=reader"] {
            let list = selection(&["principal:bob", "claim:org=globex", "claim:roles=admin", "claim:scope=x", one]);
            assert!(list.allows("ada", &claims), "{one}: one of the list is enough");
        }
        assert!(!selection(&["principal:ada", "claim:org=acme"]).allows("", &JsonObject::new()), "an anonymous caller");
        assert!(Selection::default().allows("", &JsonObject::new()), "no list is all callers");
    }

    #[test]
    fn callers_are_written_as_they_are_read() {
        for text in ["principal:ada", "principal:https://id.example#a=b", "claim:org=acme", "claim:https://x/org=a=b"] {
            assert_eq!(AllowedCaller::parse(text).expect("a caller").to_string(), text);
        }
        for text in
            ["", "ada", "principal:", "claim:", "claim:org", "claim:org=", "claim:=acme", "Principal:ada", "role:x"]
        {
            assert_eq!(AllowedCaller::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_list_has_all_callers_of_a_shorter_one() {
        let (ada, both) = (selection(&["principal:ada"]), selection(&["principal:ada", "claim:org=acme"]));
        let all = Selection::default();
        assert!(all.allows_all_of(&both) && all.allows_all_of(&all) && both.allows_all_of(&ada));
        assert!(!ada.allows_all_of(&both) && !both.allows_all_of(&all));
        let (one, two) = (selection(&["claim:org=acme"]), selection(&["claim:org=acme", "claim:org=globex"]));
        assert!(two.allows_all_of(&one) && both.allows_all_of(&one) && !one.allows_all_of(&two));
        assert!(!ada.allows_all_of(&one) && !one.allows_all_of(&selection(&["claim:team=acme"])));
    }

    #[test]
    fn the_order_of_a_list_makes_no_difference() {
        let texts = ["principal:ada", "principal:bob", "claim:org=acme", "claim:org=globex", "claim:team=x"];
        let backwards: Vec<&str> = texts.into_iter().rev().collect();
        let (list, reversed) = (selection(&texts), selection(&backwards));
        assert_eq!((&list, format!("{list:?}")), (&reversed, format!("{reversed:?}")));
        let shown = reversed.allow.iter().flat_map(AllowedCallers::entries).map(|caller| caller.to_string());
        assert_eq!(shown.collect::<Vec<_>>(), texts);
    }

    #[test]
    fn the_description_says_when_the_extension_is_active_and_names_no_caller() {
        let always = Selection { activate: Activate::Always, ..selection(&["principal:ada"]) };
        let words = "Active for every message, whether the client asks for it or not. For some callers only.";
        assert_eq!(always.described("Refuses."), format!("Refuses. {words}"));
        assert_eq!(always.described(""), words);
        assert_eq!(Selection::default().described("Refuses."), "Refuses.");
    }
}
