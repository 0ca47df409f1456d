//! The operator of a request, and the checks before a change.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header::COOKIE;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use subtle::ConstantTimeEq;
use url::form_urlencoded;

use super::logins::{LoginKey, Logins};
use super::page::{failed, notice};
use crate::admin::Admin;
use crate::admin::access::AccessRules;
use crate::admin::caller::AdminCaller;
use crate::admin::error::AdminError;
use crate::admin::roles::{Holder, Permission};
use crate::admin::shared::{MAX_BODY_BYTES, read_raw};
use crate::connections::network::Network;
use crate::process::readiness_gate::ReadinessGate;

/// The path of the login page.
pub(super) const LOGIN: &str = "/login";
/// The maximum size of a form, in bytes.
const MAX_FORM_BYTES: usize = 1 << 20;
/// htmx sends this field with each request that refreshes a part of a page.
pub(super) const REFRESH: &str = "hx-request";
/// The field by which htmx goes to another page instead of refreshing a part.
const GO_TO: &str = "hx-redirect";

/// The parts that all pages share.
#[derive(Clone)]
pub(crate) struct ConsoleState {
    /// The parts of the admin API, with the functions that its handlers call.
    pub(crate) admin: Arc<Admin>,
    pub(crate) gate: Arc<ReadinessGate>,
    pub(super) logins: Arc<Logins>,
}

impl ConsoleState {
    pub(crate) fn new(admin: Arc<Admin>, gate: Arc<ReadinessGate>) -> Self {
        Self { admin, gate, logins: Arc::default() }
    }

    /// The operator whose login the cookie names. `None` without a login, and if the token of the login is not
    /// accepted any more.
    pub(super) fn operator(&self, headers: &HeaderMap) -> Option<Operator> {
        let rules = self.admin.access.rules();
        // A page that refreshes itself would keep the login of an absent operator alive.
        let is_use = !headers.contains_key(REFRESH);
        let (key, login) = self.logins.find(cookie(headers, cookie_name(&rules))?, is_use)?;
        let holder = rules.tokens.holder_of_digest(&login.token)?;
        Some(Operator { holder, csrf: login.csrf, key })
    }
}

/// An operator who has logged in. As an extractor of a page it redirects other visitors to the login page.
pub(crate) struct Operator {
    holder: Holder,
    csrf: Arc<str>,
    /// The login.
    pub(super) key: LoginKey,
}

impl Operator {
    /// The name of the operator's token.
    pub(crate) fn name(&self) -> &str {
        &self.holder.name
    }

    /// Checks that the operator may read pages. Pages show the whole server.
    pub(super) fn check_read(&self) -> Result<(), AdminError> {
        Ok(self.holder.check(Permission::Read, None)?)
    }

    /// Checks that the operator may send messages to the agents of the server.
    pub(crate) fn check_operate(&self) -> Result<(), AdminError> {
        Ok(self.holder.check(Permission::Operate, None)?)
    }

    /// The value of the hidden field `csrf` of each form.
    pub(crate) fn csrf(&self) -> &str {
        &self.csrf
    }
}

impl FromRequestParts<ConsoleState> for Operator {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &ConsoleState) -> Result<Self, Response> {
        let operator = console.operator(&parts.headers).ok_or_else(|| to_login(&parts.method, &parts.headers))?;
        // The functions that change something check their own permissions.
        operator.check_read().map_err(|error| failed(&error))?;
        Ok(operator)
    }
}

/// The answer to a visitor without a login: a redirect to the login page, or the refusal of a change.
fn to_login(method: &Method, headers: &HeaderMap) -> Response {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return notice(StatusCode::UNAUTHORIZED, "Not logged in", "Nothing has changed. Log in and try it again.");
    }
    if headers.contains_key(REFRESH) {
        let mut response = StatusCode::UNAUTHORIZED.into_response();
        response.headers_mut().insert(GO_TO, HeaderValue::from_static(LOGIN));
        return response;
    }
    Redirect::to(LOGIN).into_response()
}

/// A form by which an operator changes something. The extractor has checked the login, the origin of the request and
/// the CSRF token. It reads at most 1 MiB.
pub(crate) struct Change<F> {
    pub(crate) operator: Operator,
    /// The operator as the functions of the admin API log the change.
    pub(crate) caller: AdminCaller,
    pub(crate) form: F,
}

/// Like [`Change`], for a form that may have a component in base64. The operator may install extensions.
pub(crate) struct LargeChange<F> {
    pub(crate) operator: Operator,
    pub(crate) form: F,
}

/// Like [`Change`], for the form of a logout. It needs no role.
pub(super) struct Leaving {
    pub(super) operator: Operator,
}

/// A form with only the CSRF token.
#[derive(Deserialize)]
struct EmptyForm {}

impl<F: DeserializeOwned + Send> FromRequest<ConsoleState> for Change<F> {
    type Rejection = Response;

    async fn from_request(request: Request, console: &ConsoleState) -> Result<Self, Response> {
        // The answer is a page. The functions that change something check their own permissions.
        let bounds = (MAX_FORM_BYTES, Some(Permission::Read));
        let CheckedForm { operator, caller, form } = check(request, console, bounds).await?;
        Ok(Self { operator, caller, form })
    }
}

impl FromRequest<ConsoleState> for Leaving {
    type Rejection = Response;

    async fn from_request(request: Request, console: &ConsoleState) -> Result<Self, Response> {
        let checked: CheckedForm<EmptyForm> = check(request, console, (MAX_FORM_BYTES, None)).await?;
        Ok(Self { operator: checked.operator })
    }
}

impl<F: DeserializeOwned + Send> FromRequest<ConsoleState> for LargeChange<F> {
    type Rejection = Response;

    async fn from_request(request: Request, console: &ConsoleState) -> Result<Self, Response> {
        let bounds = (MAX_BODY_BYTES, Some(Permission::Install));
        let CheckedForm { operator, form, .. } = check(request, console, bounds).await?;
        Ok(Self { operator, form })
    }
}

struct CheckedForm<F> {
    operator: Operator,
    caller: AdminCaller,
    form: F,
}

/// Checks a change and reads its form, which may have `most` bytes. The body is read only for an operator who has the
/// permission `needed`.
async fn check<F: DeserializeOwned>(
    request: Request,
    console: &ConsoleState,
    (most, needed): (usize, Option<Permission>),
) -> Result<CheckedForm<F>, Response> {
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts, Body::empty());
    let network = network_of(request.extensions());
    let Some(operator) = console.operator(request.headers()) else {
        console.admin.strangers.were_refused(&network, &request, StatusCode::UNAUTHORIZED);
        return Err(to_login(request.method(), request.headers()));
    };
    let caller = AdminCaller::new(operator.holder.clone(), network.address(), &request, console.admin.audit.clone());
    let page = console.admin.access.rules().hosts.check_page(&request);
    drop(request);
    if let Err(foreign) = page {
        let reason = format!("the form was sent by a page of another origin ({foreign:?})");
        caller.has_failed(StatusCode::FORBIDDEN, Some(&reason), None).await;
        return Err(notice(StatusCode::FORBIDDEN, "Refused", &format!("Nothing has changed: {reason}.")));
    }
    let permitted = needed.map_or(Ok(()), |needed| operator.holder.check(needed, None));
    let read = match permitted {
        Ok(()) => read_raw(body, (most, || format!("a form may have {most} bytes"))).await,
        Err(missing) => Err(missing.into()),
    };
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(error) => {
            caller.has_failed(error.status(), Some(&error.reason()), None).await;
            return Err(failed(&error));
        }
    };
    if !has_csrf(&bytes, &operator) {
        caller.has_failed(StatusCode::FORBIDDEN, Some("the CSRF token is missing or wrong"), None).await;
        let text = "Nothing has changed: the form does not belong to this login. Open its page again.";
        return Err(notice(StatusCode::FORBIDDEN, "Refused", text));
    }
    match serde_urlencoded::from_bytes(&bytes) {
        Ok(form) => Ok(CheckedForm { operator, caller, form }),
        Err(error) => {
            caller.has_failed(StatusCode::BAD_REQUEST, Some("the form cannot be read"), None).await;
            let text = format!("Nothing has changed: the form cannot be read ({error}).");
            Err(notice(StatusCode::BAD_REQUEST, "Refused", &text))
        }
    }
}

/// True if the form has the CSRF token of the operator's login. The comparison takes constant time.
fn has_csrf(form: &[u8], operator: &Operator) -> bool {
    let sent = form_urlencoded::parse(form).find(|(name, _)| name == "csrf");
    sent.is_some_and(|(_, sent)| bool::from(sent.as_bytes().ct_eq(operator.csrf.as_bytes())))
}

/// The network of the client, which the listener adds to each request.
pub(super) fn network_of(extensions: &Extensions) -> Network {
    let network = extensions.get::<Network>().copied();
    network.unwrap_or_else(|| Network::of(IpAddr::V4(Ipv4Addr::UNSPECIFIED)))
}

/// The name of the cookie. With the prefix, browsers accept the cookie only over TLS and only from this host.
pub(super) fn cookie_name(rules: &AccessRules) -> &'static str {
    if rules.secure_cookies { "__Host-annex-console" } else { "annex-console" }
}

/// The value of a cookie of the request.
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
}
