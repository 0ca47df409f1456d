//! The requests that an extension is active for, as the operator decides it.

use std::fmt;

use annex_protocol::{Json, JsonObject};
use serde_json::Value;

/// The claim whose text is a list of words (RFC 8693 section 4.2).
const SCOPE: &str = "scope";

/// The requests that an extension is active for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// What makes it active.
    pub activate: Activate,
    /// The callers that it is active for; `None` for all. For others it is as if it was not installed.
    pub allow: Option<Vec<AllowedCaller>>,
}

/// What makes an extension active for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activate {
    /// The client asks for it by its URI.
    #[default]
    Requested,
    /// The same, or the message bears one of its metadata keys or names its URI.
    Metadata,
    /// Every message, and every call of its methods.
    Always,
}

/// Callers that an extension is active for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedCaller {
    /// The authenticated caller with this id.
    Principal(String),
    /// The callers whose token has this claim with this value, or with a list that has it.
    Claim {
        /// The name of the claim.
        name: String,
        /// Its value, a text.
        value: String,
    },
}

impl Selection {
    /// True if the extension is active for this caller, once something makes it active. An anonymous caller has no principal
    /// and no claims.
    #[must_use]
    pub fn allows(&self, principal: &str, claims: &JsonObject) -> bool {
        self.allow.as_ref().is_none_or(|allow| allow.iter().any(|caller| caller.is(principal, claims)))
    }

    /// True if all callers of `other` are callers of this one, as far as their lists say.
    pub(crate) fn allows_all_of(&self, other: &Self) -> bool {
        match (&self.allow, &other.allow) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(others)) => others.iter().all(|caller| own.contains(caller)),
        }
    }

    /// The description of an extension with what clients need to know of its activation. Who its callers are is not for
    /// everybody who reads the card.
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
    /// The word of a config.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Metadata => "metadata",
            Self::Always => "always",
        }
    }
}

impl AllowedCaller {
    /// Reads `principal:ID` or `claim:NAME=VALUE`; `None` for anything else.
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

    fn is(&self, principal: &str, claims: &JsonObject) -> bool {
        match self {
            Self::Principal(id) => id == principal,
            Self::Claim { name, value } => claims.get(name).is_some_and(|claim| has_value(name, claim, value)),
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

fn has_value(name: &str, claim: &Json, value: &str) -> bool {
    match claim.to::<Value>() {
        Ok(Value::String(text)) => text == value || (name == SCOPE && text.split(' ').any(|word| word == value)),
        Ok(Value::Array(items)) => items.iter().any(|item| item.as_str() == Some(value)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use annex_protocol::JsonObject;

    use super::{Activate, AllowedCaller, Selection};

    fn selection(allow: &[&str]) -> Selection {
        let allow = allow.iter().map(|text| AllowedCaller::parse(text).expect("a caller")).collect();
        Selection { activate: Activate::Requested, allow: Some(allow) }
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
        assert!(selection(&["principal:bob", "claim:org=acme"]).allows("ada", &claims), "one of the list is enough");
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
