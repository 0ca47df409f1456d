//! Verifies the delegation of a mandate: an issuer signs the first SD-JWT, and the key that each SD-JWT names signs the
//! next one. The last one has the closed mandate.

use serde_json::{Map, Value};

use crate::dates::{duration, seconds, seconds_now};
use crate::jws::{self, Jwk, Token, Trust};
use crate::parameters::Parameters;
use crate::v0_2::sd_jwt::{SdJwt, ShownClaims};

/// The maximum length of a mandate, in bytes.
const MAX_BYTES: usize = 65_536;

/// The maximum number of SD-JWTs of a mandate: the user's credential, two open mandates, and the closed one.
const MAX_TOKENS: usize = 4;

/// The types of a delegation with a closed mandate. The published SDK writes the first one.
const CLOSING: [&str; 2] = ["kb+sd-jwt", "kb-sd-jwt"];

/// The types of a delegation with an open mandate, which has the key of the next token.
const DELEGATING: [&str; 2] = ["kb+sd-jwt+kb", "kb-sd-jwt+kb"];

/// The type of a key binding (RFC 9901, section 4.3).
const KEY_BINDING: &str = "kb+jwt";

/// The kind of a mandate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Checkout,
    Payment,
}

impl Kind {
    /// The `vct` of a closed mandate.
    fn closed(self) -> &'static str {
        match self {
            Self::Checkout => "mandate.checkout.1",
            Self::Payment => "mandate.payment.1",
        }
    }

    /// The claim of a closed mandate that has the hash of the checkout.
    pub(super) fn hash_name(self) -> &'static str {
        match self {
            Self::Checkout => "checkout_hash",
            Self::Payment => "transaction_id",
        }
    }

    /// The `vct` of an open mandate.
    fn open(self) -> &'static str {
        match self {
            Self::Checkout => "mandate.checkout.open.1",
            Self::Payment => "mandate.payment.open.1",
        }
    }
}

/// A token that may be used only once.
#[derive(Debug)]
pub(super) struct UsedToken {
    /// The hash of the signed text.
    pub(super) id: String,
    /// The time in seconds since 1970 from which the token is refused for its age.
    pub(super) until: u64,
}

/// An open mandate, with which the user lets an agent close mandates within constraints.
pub(super) struct OpenMandate {
    pub(super) content: Map<String, Value>,
    /// The hash of the open mandate as presented.
    pub(super) hash: String,
}

/// A verified mandate.
pub(super) struct Presentation {
    /// The content of the closed mandate.
    pub(super) closed: Map<String, Value>,
    /// The open mandates, from the user's to the last agent's. Empty if the user saw the closed mandate.
    pub(super) open: Vec<OpenMandate>,
    /// The nonce, unless an issuer has signed the closed mandate itself.
    pub(super) nonce: Option<String>,
    /// The tokens that may be used only once. The first one has the closed mandate.
    pub(super) once: Vec<UsedToken>,
}

/// Verifies a mandate.
///
/// # Errors
/// The mandate has a fault. The error names it, as a lower-case fragment.
pub(super) fn verify(parameters: &Parameters, kind: Kind, text: &str) -> Result<Trust<Presentation>, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("is longer than {MAX_BYTES} bytes"));
    }
    let texts: Vec<&str> = text.split("~~").take(MAX_TOKENS + 1).collect();
    if texts.len() > MAX_TOKENS {
        return Err(format!("has more than {MAX_TOKENS} tokens"));
    }
    let verification = Verification { parameters, kind, now: seconds_now() };
    let mut steps: Vec<Step<'_>> = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let sd_jwt = SdJwt::parse(text, number + 1 == texts.len())?;
        let step = if let Some(before) = steps.last() {
            verification.delegated(before, sd_jwt)?
        } else if verification.is_issued(&sd_jwt)? {
            Step::of(sd_jwt)?
        } else {
            return Ok(Trust::Unverified("cannot be verified: no key of its issuer is known here"));
        };
        verification.check_dates(&step)?;
        steps.push(step);
    }
    verification.close(steps).map(Trust::Verified)
}

/// A verified SD-JWT of a mandate.
struct Step<'a> {
    sd_jwt: SdJwt<'a>,
    /// The claims without the mandate.
    claims: Map<String, Value>,
    /// The content of the mandate. The first token may be a credential without a mandate.
    content: Option<Map<String, Value>>,
    /// True if nothing is withheld but choices.
    is_complete: bool,
}

impl<'a> Step<'a> {
    fn of(sd_jwt: SdJwt<'a>) -> Result<Self, String> {
        let ShownClaims { mut claims, is_complete, loose_date } = sd_jwt.claims()?;
        let content = claims.remove("delegate_payload").map(only_mandate).transpose()?;
        if let Some(name) = loose_date.filter(|_| content.is_some()) {
            // Without this date the mandate would be valid for longer than it is remembered.
            return Err(format!("has a date that could be withheld: `{name}`"));
        }
        Ok(Self { sd_jwt, claims, content, is_complete })
    }

    /// The `vct` of the mandate.
    fn mandate(&self) -> Option<&str> {
        self.content.as_ref().and_then(|content| content.get("vct")).and_then(Value::as_str)
    }

    /// The key that signs the next token.
    fn key(&self) -> Option<&Value> {
        let both = [self.content.as_ref(), Some(&self.claims)];
        both.into_iter().flatten().find_map(|claims| claims.get("cnf")?.get("jwk"))
    }

    /// True if the key that the token names has signed this other token.
    fn has_key_of<C: serde::de::DeserializeOwned>(&self, next: &Token<C>) -> Result<bool, String> {
        let jwk = self.key().ok_or("delegates to nobody: a token before the last one has no `cnf.jwk`")?;
        let jwk: Jwk = serde_json::from_value(jwk.clone()).map_err(|_| "has a `cnf.jwk` that cannot be read")?;
        Ok(next.is_signed_by(&jwk.verifying_key()?))
    }

    /// The dates with this name, in the claims and in the mandate.
    fn dates(&self, name: &str) -> Result<Vec<f64>, String> {
        let both = [Some(&self.claims), self.content.as_ref()];
        let values = both.into_iter().flatten().filter_map(|claims| claims.get(name));
        values.map(|value| value.as_f64().ok_or_else(|| format!("has a date that is no number: `{name}`"))).collect()
    }
}

/// The only mandate that a token discloses.
fn only_mandate(payload: Value) -> Result<Map<String, Value>, String> {
    let Value::Array(list) = payload else { return Err("has a `delegate_payload` that is no list".to_owned()) };
    let mut mandates = list.into_iter();
    match (mandates.next(), mandates.next()) {
        (Some(Value::Object(mandate)), None) => Ok(mandate),
        _ => Err("must disclose exactly one mandate".to_owned()),
    }
}

struct Verification<'a> {
    parameters: &'a Parameters,
    kind: Kind,
    /// Seconds since 1970.
    now: f64,
}

impl Verification<'_> {
    fn skew(&self) -> f64 {
        duration(self.parameters.clock_skew_seconds)
    }

    /// True if a known issuer has signed the token, and false if its issuer is not known.
    fn is_issued(&self, sd_jwt: &SdJwt<'_>) -> Result<bool, String> {
        let header = &sd_jwt.token.header;
        if header.typ.as_deref().is_some_and(|typ| typ.starts_with("kb")) {
            return Err("begins with a token that delegates another one".to_owned());
        }
        let iss = sd_jwt.token.claims.get("iss").and_then(Value::as_str);
        let issuers = self.parameters.issuers.iter().filter(|issuer| iss.is_none_or(|iss| iss == issuer.iss));
        // Without `iss` the name of the key alone leads to its issuer.
        let is_named = |key: &&Jwk| match (&key.kid, &header.kid) {
            (Some(own), Some(named)) => own == named,
            _ => iss.is_some(),
        };
        let keys: Vec<&Jwk> = issuers.flat_map(|issuer| &issuer.keys).filter(is_named).collect();
        if keys.is_empty() {
            return Ok(false);
        }
        if keys.iter().any(|key| key.verifying_key().is_ok_and(|key| sd_jwt.token.is_signed_by(&key))) {
            Ok(true)
        } else {
            Err("has a signature that does not verify".to_owned())
        }
    }

    /// Verifies a token that follows another one.
    fn delegated<'a>(&self, before: &Step<'_>, sd_jwt: SdJwt<'a>) -> Result<Step<'a>, String> {
        if !before.has_key_of(&sd_jwt.token)? {
            return Err("has a delegation whose signature does not verify".to_owned());
        }
        let typ = sd_jwt.token.header.typ.clone().unwrap_or_default();
        let step = Step::of(sd_jwt)?;
        let hashes = ["sd_hash", "issuer_jwt_hash"].map(|name| step.claims.get(name).map(Value::as_str));
        let is_bound = match hashes {
            [Some(hash), None] => hash == Some(before.sd_jwt.sd_hash().as_str()),
            [None, Some(hash)] => hash == Some(before.sd_jwt.jwt_hash().as_str()),
            _ => return Err("must have one of `sd_hash` and `issuer_jwt_hash`".to_owned()),
        };
        if !is_bound {
            return Err("delegates another token than the one before it: `sd_hash` or `issuer_jwt_hash`".to_owned());
        }
        if step.content.is_none() {
            return Err("must disclose exactly one mandate".to_owned());
        }
        let expected = if step.key().is_some() { DELEGATING } else { CLOSING };
        if !expected.contains(&typ.as_str()) {
            return Err(format!("has a delegation of another type than {}", expected.join(" or ")));
        }
        if !step.claims.contains_key("iat") {
            return Err("has a delegation without `iat`".to_owned());
        }
        if nonce_of(&step.claims).is_none() {
            return Err("has a delegation without `nonce`".to_owned());
        }
        Ok(step)
    }

    fn check_dates(&self, step: &Step<'_>) -> Result<(), String> {
        if step.dates("iat")?.iter().any(|iat| *iat > self.now + self.skew()) {
            return Err("is from the future: `iat`".to_owned());
        }
        if step.dates("nbf")?.iter().any(|nbf| *nbf > self.now + self.skew()) {
            return Err("is not valid yet: `nbf`".to_owned());
        }
        if step.dates("exp")?.iter().any(|exp| *exp + self.skew() <= self.now) {
            return Err("is over: `exp`".to_owned());
        }
        Ok(())
    }

    /// Checks the order of the mandates, and the closed mandate.
    fn close(&self, mut steps: Vec<Step<'_>>) -> Result<Presentation, String> {
        let last = steps.pop().ok_or("is empty")?;
        if last.mandate() != Some(self.kind.closed()) {
            return Err(format!("ends with another mandate than {}", self.kind.closed()));
        }
        let mut once = vec![UsedToken { id: last.sd_jwt.token.id(), until: self.end_of_closed(&last)? }];
        let binding = self.key_binding(&last)?;
        let is_delegated = !steps.is_empty();
        let mut open = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            if number == 0 && step.content.is_none() {
                // The credential of the user, whose key signs the mandate.
                continue;
            }
            if step.mandate() != Some(self.kind.open()) {
                return Err(format!("has another mandate than {} before its end", self.kind.open()));
            }
            if !step.is_complete {
                // An agent would leave out what the user demands.
                return Err(
                    "withholds more of an open mandate than elements of `allowed` and `acceptable_items`".to_owned()
                );
            }
            let until = step.dates("exp")?.into_iter().reduce(f64::min);
            let until = until.ok_or("has an open mandate without `exp`")?;
            once.push(UsedToken { id: step.sd_jwt.token.id(), until: self.with_skew(until) });
            let hash = step.sd_jwt.sd_hash();
            open.push(OpenMandate { content: step.content.unwrap_or_default(), hash });
        }
        let bound = binding.as_ref().or(Some(&last.claims).filter(|_| is_delegated));
        if bound.is_some_and(|claims| !self.is_for_this_agent(claims)) {
            return Err("is not for this agent: `aud`".to_owned());
        }
        let nonce = bound.and_then(nonce_of).map(str::to_owned);
        Ok(Presentation { closed: last.content.unwrap_or_default(), open, nonce, once })
    }

    fn is_for_this_agent(&self, claims: &Map<String, Value>) -> bool {
        claims.get("aud").is_some_and(|aud| self.parameters.is_audience(&jws::names(aud)))
    }

    /// The time in seconds from which the closed mandate is refused for its age.
    fn end_of_closed(&self, last: &Step<'_>) -> Result<u64, String> {
        let lasts = duration(self.parameters.max_payment_seconds);
        let ends = last.dates("exp")?.into_iter().chain(last.dates("iat")?.into_iter().map(|iat| iat + lasts));
        let end = ends.reduce(f64::min).ok_or("has neither `exp` nor `iat`")?;
        if end + self.skew() <= self.now { Err("is too old: `iat`".to_owned()) } else { Ok(self.with_skew(end)) }
    }

    fn with_skew(&self, date: f64) -> u64 {
        seconds(date).saturating_add(self.parameters.clock_skew_seconds)
    }

    /// The claims of the key binding behind the closed mandate. A mandate that names a key must have one.
    fn key_binding(&self, last: &Step<'_>) -> Result<Option<Map<String, Value>>, String> {
        let Some(text) = last.sd_jwt.key_binding else {
            let is_bound = last.key().is_some();
            return if is_bound { Err("lacks the key binding of its `cnf.jwk`".to_owned()) } else { Ok(None) };
        };
        let binding: Token<Map<String, Value>> =
            Token::parse(text).map_err(|error| format!("cannot be taken: the key binding {error}"))?;
        if binding.header.typ.as_deref() != Some(KEY_BINDING) {
            return Err(format!("has a key binding of another type than {KEY_BINDING}"));
        }
        if !last.has_key_of(&binding)? {
            return Err("has a key binding whose signature does not verify".to_owned());
        }
        let claims = binding.claims;
        if claims.get("sd_hash").and_then(Value::as_str) != Some(last.sd_jwt.sd_hash().as_str()) {
            return Err("has a key binding of another mandate: `sd_hash`".to_owned());
        }
        let iat = claims.get("iat").and_then(Value::as_f64).ok_or("has a key binding without `iat`")?;
        let lasts = duration(self.parameters.max_payment_seconds);
        if iat > self.now + self.skew() || iat + lasts + self.skew() <= self.now {
            return Err("has a key binding that is too old or from the future: `iat`".to_owned());
        }
        if nonce_of(&claims).is_none() {
            return Err("has a key binding without `nonce`".to_owned());
        }
        Ok(Some(claims))
    }
}

fn nonce_of(claims: &Map<String, Value>) -> Option<&str> {
    claims.get("nonce")?.as_str().filter(|nonce| !nonce.is_empty())
}
