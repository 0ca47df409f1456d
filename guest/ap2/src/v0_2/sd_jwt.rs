//! One SD-JWT (RFC 9901): the token of its issuer, and the disclosures that are put back into the token's claims.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::jws::{self, Token};

/// The maximum number of disclosures of one SD-JWT. A mandate discloses few of its allowed items.
const MAX_DISCLOSURES: usize = 64;

/// The maximum depth of claims with their disclosures in place.
const MAX_DEPTH: usize = 32;

/// The lists whose elements may be withheld: those of which one is chosen, and that of mandates. Without an element they allow
/// less.
const CHOICES: [&str; 3] = ["allowed", "acceptable_items", "delegate_payload"];

/// The dates of tokens and mandates.
const DATES: [&str; 3] = ["exp", "nbf", "iat"];

/// The only hash algorithm of digests that is accepted.
const SD_ALG: &str = "sha-256";

/// An SD-JWT. Its claims are untrusted until the signature of its token is verified.
pub(super) struct SdJwt<'a> {
    /// The token of the issuer, with digests in place of the disclosures.
    pub(super) token: Token<Map<String, Value>>,
    /// The key binding behind the disclosures (RFC 9901, section 4.3).
    pub(super) key_binding: Option<&'a str>,
    jwt: &'a str,
    disclosures: Vec<&'a str>,
}

/// The claims that an SD-JWT shows.
pub(super) struct ShownClaims {
    pub(super) claims: Map<String, Value>,
    /// True if nothing is withheld but elements of [`CHOICES`].
    pub(super) is_complete: bool,
    /// The name of a date that the holder could have withheld.
    pub(super) loose_date: Option<String>,
}

impl<'a> SdJwt<'a> {
    /// Parses a text of `~`-separated parts. `is_last` is false for a token before another one. The text of such a token
    /// lacks its last `~`, because `~~` separates tokens.
    ///
    /// # Errors
    /// The text is not an SD-JWT with ES256. The error says why, as a lower-case fragment.
    pub(super) fn parse(text: &'a str, is_last: bool) -> Result<Self, String> {
        let (presented, key_binding) =
            if is_last { text.rsplit_once('~').ok_or("lacks the `~` behind its last disclosure")? } else { (text, "") };
        let mut parts = presented.split('~');
        let jwt = parts.next().unwrap_or_default();
        let disclosures: Vec<&str> = parts.take(MAX_DISCLOSURES + 1).collect();
        if disclosures.len() > MAX_DISCLOSURES {
            return Err(format!("has more than {MAX_DISCLOSURES} disclosures"));
        }
        let key_binding = Some(key_binding).filter(|text| !text.is_empty());
        Ok(Self { token: Token::parse(jwt)?, key_binding, jwt, disclosures })
    }

    /// The hash of the token with its disclosures, which the claim `sd_hash` of a key binding has.
    pub(super) fn sd_hash(&self) -> String {
        let parts = std::iter::once(self.jwt).chain(self.disclosures.iter().copied());
        jws::hash(&parts.map(|part| format!("{part}~")).collect::<String>())
    }

    /// The hash of the token alone, which the claim `issuer_jwt_hash` of a delegation has.
    pub(super) fn jwt_hash(&self) -> String {
        jws::hash(self.jwt)
    }

    /// The claims with the disclosures in place of their digests (RFC 9901, section 7.1). The claims have no
    /// digests without a disclosure.
    ///
    /// # Errors
    /// A disclosure is malformed or belongs to no digest, or a digest or claim occurs twice.
    pub(super) fn claims(&self) -> Result<ShownClaims, String> {
        let mut claims = self.token.claims.clone();
        if claims.remove("_sd_alg").is_some_and(|algorithm| algorithm != SD_ALG) {
            return Err(format!("has digests of another algorithm than {SD_ALG}"));
        }
        name_digests(&mut claims);
        let mut disclosures = Disclosures::parse(&self.disclosures)?;
        let claims = disclosures.object(claims, MAX_DEPTH)?;
        if disclosures.by_digest.is_empty() {
            let Disclosures { is_complete, loose_date, .. } = disclosures;
            Ok(ShownClaims { claims, is_complete, loose_date })
        } else {
            Err("has a disclosure without a signed digest".to_owned())
        }
    }
}

/// Gives bare digests of mandates, which some wallets write, the form of RFC 9901, section 4.2.4.2.
fn name_digests(claims: &mut Map<String, Value>) {
    let Some(Value::Array(mandates)) = claims.get_mut("delegate_payload") else { return };
    for mandate in mandates {
        if let Value::String(digest) = mandate {
            let digest = Value::String(std::mem::take(digest));
            *mandate = Value::Object(Map::from_iter([("...".to_owned(), digest)]));
        }
    }
}

/// A disclosed claim or element of an array.
struct Disclosure {
    /// The name of the claim. `None` for an element of an array.
    name: Option<String>,
    value: Value,
}

/// The disclosures of one SD-JWT that no digest has referred to yet.
struct Disclosures {
    by_digest: BTreeMap<String, Disclosure>,
    digests: BTreeSet<String>,
    /// False after a digest without a disclosure outside of [`CHOICES`].
    is_complete: bool,
    loose_date: Option<String>,
}

impl Disclosures {
    fn parse(texts: &[&str]) -> Result<Self, String> {
        let mut by_digest = BTreeMap::new();
        for text in texts {
            let disclosure = Disclosure::parse(text).ok_or("has a disclosure that cannot be read")?;
            if by_digest.insert(jws::hash(text), disclosure).is_some() {
                return Err("has a disclosure twice".to_owned());
            }
        }
        Ok(Self { by_digest, digests: BTreeSet::new(), is_complete: true, loose_date: None })
    }

    /// Puts disclosures into a value. `name` is that of the claim with the value, and `None` for an element of an array. `depth`
    /// is the number of levels that the value may have.
    fn value(&mut self, name: Option<&str>, value: Value, depth: usize) -> Result<Value, String> {
        let below = depth.checked_sub(1).ok_or("is too deep with its disclosures")?;
        match value {
            Value::Object(object) => self.object(object, below).map(Value::Object),
            Value::Array(list) => {
                let is_choice = name.is_some_and(|name| CHOICES.contains(&name));
                self.list(list, is_choice, below).map(Value::Array)
            }
            other => Ok(other),
        }
    }

    fn object(&mut self, mut object: Map<String, Value>, depth: usize) -> Result<Map<String, Value>, String> {
        let digests = object.remove("_sd");
        let mut result = Map::new();
        for (name, value) in object {
            if name == "..." {
                return Err("has the digest of an element outside of an array".to_owned());
            }
            let value = self.value(Some(&name), value, depth)?;
            result.insert(name, value);
        }
        let digests: Vec<String> = digests
            .map_or(Ok(Vec::new()), serde_json::from_value)
            .map_err(|_| "has an `_sd` that is no list of digests".to_owned())?;
        for digest in digests {
            let Some(Disclosure { name, value }) = self.take(digest)? else {
                self.is_complete = false;
                continue;
            };
            let name = name.filter(|name| name != "_sd" && name != "...");
            let name = name.ok_or("has a disclosure whose name does not fit its digest")?;
            if DATES.contains(&name.as_str()) {
                self.loose_date = Some(name.clone());
            }
            let value = self.value(Some(&name), value, depth)?;
            if result.insert(name, value).is_some() {
                return Err("has a claim twice".to_owned());
            }
        }
        Ok(result)
    }

    fn list(&mut self, list: Vec<Value>, is_choice: bool, depth: usize) -> Result<Vec<Value>, String> {
        let mut result = Vec::new();
        for element in list {
            let Some(digest) = digest_of(&element) else {
                result.push(self.value(None, element, depth)?);
                continue;
            };
            match self.take(digest.to_owned())? {
                None => self.is_complete &= is_choice,
                Some(Disclosure { name: None, value }) => result.push(self.value(None, value, depth)?),
                Some(_) => return Err("has a disclosure whose name does not fit its digest".to_owned()),
            }
        }
        Ok(result)
    }

    /// The disclosure with this digest, if it was presented.
    fn take(&mut self, digest: String) -> Result<Option<Disclosure>, String> {
        let disclosure = self.by_digest.remove(&digest);
        if self.digests.insert(digest) { Ok(disclosure) } else { Err("has a digest twice".to_owned()) }
    }
}

impl Disclosure {
    fn parse(text: &str) -> Option<Self> {
        let Value::Array(parts) = jws::decoded(text)? else { return None };
        let mut parts = parts.into_iter();
        let Value::String(_salt) = parts.next()? else { return None };
        match (parts.next()?, parts.next(), parts.next()) {
            (value, None, _) => Some(Self { name: None, value }),
            (Value::String(name), Some(value), None) => Some(Self { name: Some(name), value }),
            _ => None,
        }
    }
}

/// The digest that stands for an element of an array.
fn digest_of(element: &Value) -> Option<&str> {
    let object = element.as_object().filter(|object| object.len() == 1)?;
    object.get("...")?.as_str()
}
