//! Checks the content of CartMandates, and the signatures of merchants.

use annex_sdk::{Violation, clock, schema};
use serde::Deserialize;
use serde_json::Value;

use crate::dates::{duration, seconds, seconds_now};
use crate::jws::{self, Token, Trust};
use crate::memory::{Cart, Method, Money, Origin, SingleUse};
use crate::parameters::{Merchant, Parameters};
use crate::schemas;

#[derive(Deserialize)]
struct Mandate {
    contents: Contents,
    merchant_authorization: Option<String>,
}

#[derive(Deserialize)]
struct Contents {
    payment_request: Request,
    cart_expiry: String,
    merchant_name: String,
}

#[derive(Deserialize)]
struct Request {
    method_data: Vec<MethodData>,
    details: Details,
}

#[derive(Deserialize)]
struct MethodData {
    supported_methods: String,
}

#[derive(Deserialize)]
struct Details {
    id: String,
    total: Item,
    modifiers: Option<Vec<Modifier>>,
}

#[derive(Deserialize)]
struct Modifier {
    supported_methods: String,
    total: Option<Item>,
}

/// A line of a cart, with its amount.
#[derive(Deserialize)]
pub(crate) struct Item {
    amount: Amount,
}

#[derive(Deserialize)]
struct Amount {
    currency: String,
    value: f64,
}

impl Item {
    /// The amount in a form for comparisons.
    pub(crate) fn money(&self) -> Money {
        // Two texts are equal if and only if the numbers are: `120`, `120.0` and `1.2e2` are all `120`.
        let value = serde_json_canonicalizer::to_string(&self.amount.value).unwrap_or_default();
        Money { currency: self.amount.currency.clone(), value }
    }
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Value,
    iat: f64,
    exp: f64,
    nbf: Option<f64>,
    jti: String,
    cart_hash: String,
}

#[derive(Deserialize)]
struct Issuer {
    iss: String,
}

/// A checked cart and its token.
#[derive(Debug)]
pub struct CheckedCart {
    /// The cart as the mandate describes it.
    pub cart: Cart,
    /// The merchant's token on the cart, which may be used only once. `None` without a verified token, and for a cart
    /// of this agent.
    pub token: Option<SingleUse>,
}

/// Checks a CartMandate at `pointer`. `is_own` is true for a cart that this agent sends. Other agents use the token of
/// such a cart, so the token is not recorded as used.
///
/// # Errors
/// The mandate has faults. Each violation names one fault.
pub fn check(
    parameters: &Parameters,
    pointer: &str,
    mandate: &str,
    is_own: bool,
) -> Result<CheckedCart, Vec<Violation>> {
    let at = |place: &str, message: String| vec![Violation::new(format!("{pointer}{place}"), message)];
    fits(schemas::CART, pointer, mandate)?;
    let unread = |error: serde_json::Error| at("", format!("cannot be read: {error}"));
    let value: Value = serde_json::from_str(mandate).map_err(unread)?;
    let hash = |value: &Value| jws::canonical_hash(value).map_err(|message| at("", message));
    let hashes = [hash(value.get("contents").unwrap_or(&Value::Null))?, hash(&value)?];
    let Mandate { contents, merchant_authorization } = serde_json::from_value(value).map_err(unread)?;
    let expiry = clock::parse(&contents.cart_expiry)
        .ok_or_else(|| at("/contents/cart_expiry", "is not an ISO 8601 time with an offset".to_owned()))?;
    if expiry <= clock::now_millis() {
        return Err(at("/contents/cart_expiry", "is over".to_owned()));
    }
    let place = "/merchant_authorization";
    let look = CartVerification { parameters, contents: &contents, cart_hash: &hashes[0], is_own };
    let trust = look.verify(merchant_authorization.as_deref()).map_err(|message| at(place, message))?;
    let (merchant, token) = match trust {
        Trust::Verified((merchant, claims)) => (Some(merchant), Some(claims)),
        Trust::Unverified(why) if parameters.require_signatures => return Err(at(place, why.to_owned())),
        Trust::Unverified(_) => (None, None),
    };
    let origin = match merchant {
        _ if is_own => Origin::Own,
        Some(_) => Origin::Verified,
        None => Origin::Unverified,
    };
    let token = token.filter(|_| !is_own).map(|claims| {
        let until = seconds(claims.exp).saturating_add(parameters.clock_skew_seconds);
        SingleUse::new(format!("{pointer}{place}"), until, ["jti", &claims.iss, &claims.jti])
    });
    let merchant_agent = merchant.and_then(|merchant| merchant.agent.clone());
    let methods = methods(&contents.payment_request);
    let details_id = contents.payment_request.details.id;
    Ok(CheckedCart { cart: Cart { details_id, hashes, methods, expiry, merchant_agent, origin }, token })
}

/// The payment methods with their totals. A modifier of a method may change the total for that method, as in W3C's
/// Payment Request.
fn methods(request: &Request) -> Vec<Method> {
    let total = |name: &str| {
        let modifiers = request.details.modifiers.iter().flatten();
        let modified = modifiers.filter(|modifier| modifier.supported_methods == name);
        modified.filter_map(|modifier| modifier.total.as_ref()).next_back().unwrap_or(&request.details.total).money()
    };
    let names = request.method_data.iter().map(|method| &method.supported_methods);
    names.map(|name| Method { name: name.clone(), total: total(name) }).collect()
}

/// Validates a mandate against the schema `of`. The violations have pointers into the request, below `pointer`.
pub(crate) fn fits(of: &str, pointer: &str, mandate: &str) -> Result<(), Vec<Violation>> {
    let found = schema::validate(of, mandate)
        .map_err(|error| vec![Violation::new(pointer, format!("cannot be validated: {error}"))])?;
    if found.is_empty() {
        return Ok(());
    }
    Err(found.into_iter().map(|one| Violation::new(format!("{pointer}{}", one.pointer), one.message)).collect())
}

/// A cart whose signature is being verified.
struct CartVerification<'a> {
    parameters: &'a Parameters,
    contents: &'a Contents,
    cart_hash: &'a str,
    is_own: bool,
}

impl<'a> CartVerification<'a> {
    fn verify(&self, authorization: Option<&str>) -> Result<Trust<(&'a Merchant, Claims)>, String> {
        let Some(text) = authorization else { return Ok(Trust::Unverified("is required")) };
        let text = jws::unwrapped(text);
        let iss = jws::unverified_claims::<Issuer>(&text).map(|issuer| issuer.iss);
        let named = |merchant: &&Merchant| Some(&merchant.iss) == iss.as_ref();
        let Some(merchant) = self.parameters.merchants.iter().find(named) else {
            return Ok(Trust::Unverified("cannot be verified: its issuer is not known here"));
        };
        let token: Token<Claims> = Token::parse(&text)?;
        if !token.is_signed_by_one_of(&merchant.keys) {
            return Err("has a signature that does not verify".to_owned());
        }
        self.check_claims(merchant, &token.claims)?;
        Ok(Trust::Verified((merchant, token.claims)))
    }

    fn check_claims(&self, merchant: &Merchant, claims: &Claims) -> Result<(), String> {
        let now = seconds_now();
        let skew = duration(self.parameters.clock_skew_seconds);
        let fault = if claims.cart_hash != self.cart_hash {
            "signs another cart: `cart_hash` is not that of `contents`"
        } else if merchant.name.as_ref().is_some_and(|name| *name != self.contents.merchant_name) {
            "is of another merchant than `merchant_name`"
        } else if claims.iat > now + skew {
            "is from the future: `iat`"
        } else if claims.nbf.is_some_and(|nbf| nbf > now + skew) {
            "is not valid yet: `nbf`"
        } else if claims.exp + skew <= now {
            "is over: `exp`"
        } else if claims.exp - claims.iat > duration(self.parameters.max_token_seconds()) {
            "lasts longer than is allowed here: from `iat` to `exp`"
        } else if !self.is_own && !self.parameters.is_audience(&jws::names(&claims.aud)) {
            "is not for this agent: `aud`"
        } else if claims.jti.is_empty() {
            "has an empty `jti`"
        } else {
            return Ok(());
        };
        Err(fault.to_owned())
    }
}
