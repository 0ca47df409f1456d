//! The user's authorization of a payment: an SD-JWT with key binding (RFC 9901), in the form that this extension
//! defines.
//!
//! A known issuer vouches for the user's key, and that key signs the hashes of cart and payment. Other disclosed claims
//! of the credential are ignored.

use serde::Deserialize;
use serde_json::Value;

use crate::dates::{duration, seconds_now};
use crate::jws::{self, Jwk, Token, Trust};
use crate::memory::Cart;
use crate::parameters::{Issuer, Parameters};

/// The type of a key binding (RFC 9901, section 4.3).
const KEY_BINDING: &str = "kb+jwt";

#[derive(Deserialize)]
struct Credential {
    cnf: Confirmation,
    nbf: Option<f64>,
    exp: Option<f64>,
}

#[derive(Deserialize)]
struct Confirmation {
    jwk: Jwk,
}

#[derive(Deserialize)]
struct IssuerClaim {
    iss: String,
}

#[derive(Deserialize)]
struct Binding {
    iat: f64,
    nbf: Option<f64>,
    exp: Option<f64>,
    aud: Value,
    nonce: String,
    sd_hash: String,
    transaction_data: Vec<String>,
}

/// Verifies a `user_authorization`: it must authorize the payment with this hash, and this cart.
///
/// # Errors
/// The authorization has a fault. The error names the fault, as a lower-case fragment.
pub fn verify(
    parameters: &Parameters,
    authorization: Option<&str>,
    payment_hash: &str,
    cart: Option<&Cart>,
) -> Result<Trust<()>, String> {
    let Some(text) = authorization else { return Ok(Trust::Unverified("is required")) };
    let text = jws::unwrapped(text);
    // v0.1 allows any verifiable presentation, so another form is not wrong, but cannot be verified here.
    let (Some((presented, binding)), Some((credential, _))) = (text.rsplit_once('~'), text.split_once('~')) else {
        return Ok(Trust::Unverified("cannot be verified: it is not an SD-JWT with key binding"));
    };
    let iss = jws::unverified_claims::<IssuerClaim>(credential).map(|claim| claim.iss);
    let named = |issuer: &&Issuer| Some(&issuer.iss) == iss.as_ref();
    let Some(issuer) = parameters.issuers.iter().find(named) else {
        return Ok(Trust::Unverified("cannot be verified: its issuer is not known here"));
    };
    let credential: Token<Credential> = within("the credential", Token::parse(credential))?;
    if !credential.is_signed_by_one_of(&issuer.keys) {
        return Err("has a credential whose signature does not verify".to_owned());
    }
    let Credential { cnf, nbf, exp } = credential.claims;
    if !is_valid_now(parameters, nbf, exp) {
        return Err("has a credential that is not valid now".to_owned());
    }
    let binding: Token<Binding> = within("the key binding", Token::parse(binding))?;
    if binding.header.typ.as_deref() != Some(KEY_BINDING) {
        return Err(format!("has a key binding of another type than {KEY_BINDING}"));
    }
    let key = within("the credential's key", cnf.jwk.verifying_key())?;
    if !binding.is_signed_by(&key) {
        return Err("has a key binding whose signature does not verify".to_owned());
    }
    let sd_hash = jws::hash(&format!("{presented}~"));
    check_binding(parameters, &binding.claims, &sd_hash)?;
    check_transaction(&binding.claims.transaction_data, payment_hash, cart)?;
    Ok(Trust::Verified(()))
}

fn is_valid_now(parameters: &Parameters, nbf: Option<f64>, exp: Option<f64>) -> bool {
    let now = seconds_now();
    let skew = duration(parameters.clock_skew_seconds);
    nbf.is_none_or(|nbf| nbf <= now + skew) && exp.is_none_or(|exp| exp + skew > now)
}

fn within<T>(what: &str, result: Result<T, String>) -> Result<T, String> {
    result.map_err(|error| format!("cannot be taken: {what} {error}"))
}

fn check_binding(parameters: &Parameters, binding: &Binding, sd_hash: &str) -> Result<(), String> {
    let now = seconds_now();
    let skew = duration(parameters.clock_skew_seconds);
    let fault = if binding.sd_hash != sd_hash {
        "has a key binding of another credential: `sd_hash`"
    } else if binding.iat > now + skew {
        "is from the future: `iat`"
    } else if binding.iat + duration(parameters.max_payment_seconds) + skew < now {
        "is too old: `iat`"
    } else if !is_valid_now(parameters, binding.nbf, binding.exp) {
        "has a key binding that is not valid now"
    } else if !parameters.is_audience(&jws::names(&binding.aud)) {
        "is not for this agent: `aud`"
    } else if binding.nonce.is_empty() {
        "has an empty `nonce`"
    } else {
        return Ok(());
    };
    Err(fault.to_owned())
}

fn check_transaction(data: &[String], payment_hash: &str, cart: Option<&Cart>) -> Result<(), String> {
    if !data.iter().any(|hash| hash == payment_hash) {
        return Err("authorizes another payment: `transaction_data` lacks its hash".to_owned());
    }
    // A hash of the whole mandate covers the cart as well, and also the merchant's signature.
    if cart.is_some_and(|cart| !data.iter().any(|hash| cart.hashes.contains(hash))) {
        return Err("authorizes another cart: `transaction_data` lacks its hash".to_owned());
    }
    Ok(())
}
