//! Login with an admin token, and logout.

use askama::Template;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use super::logins::WHOLE;
use super::operator::{ConsoleState, LOGIN, Leaving, cookie_name, network_of};
use super::page::{failed, notice, public_page};
use crate::admin::access::AccessRules;
use crate::admin::error::AdminError;
use crate::admin::shared::read_raw;

/// The maximum size of the login form, in bytes. A percent sign may stand for each byte of the longest token.
const MAX_LOGIN_BYTES: usize = 4 << 10;

pub(super) fn routes() -> Router<ConsoleState> {
    Router::new().route(LOGIN, get(show).post(log_in)).route("/logout", post(log_out))
}

#[derive(Template)]
#[template(path = "login.html")]
struct LoginTemplate {
    is_wrong: bool,
}

/// The token comes only in this form. A token in a URL would be in the history of the browser and in logs of proxies.
#[derive(Deserialize)]
struct LoginForm {
    token: String,
}

async fn show(State(console): State<ConsoleState>, headers: HeaderMap) -> Response {
    match console.operator(&headers) {
        Some(_) => Redirect::to("/").into_response(),
        None => public_page(StatusCode::OK, "Log in", &LoginTemplate { is_wrong: false }),
    }
}

async fn log_in(State(console): State<ConsoleState>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts, Body::empty());
    let rules = console.admin.access.rules();
    let network = network_of(request.extensions());
    if let Err(foreign) = rules.hosts.check_page(&request) {
        console.admin.strangers.were_refused(&network, &request, StatusCode::FORBIDDEN);
        let text = format!("The login form was sent by a page of another origin ({foreign:?}).");
        return notice(StatusCode::FORBIDDEN, "Refused", &text);
    }
    let (parts, _) = request.into_parts();
    let bytes = match read_raw(body, (MAX_LOGIN_BYTES, || "the login form is too large".to_owned())).await {
        Ok(bytes) => bytes,
        Err(error) => return failed(&error),
    };
    let sent = serde_urlencoded::from_bytes::<LoginForm>(&bytes).ok();
    let Some(token) = sent.and_then(|form| rules.tokens.accepted(&form.token)) else {
        let request = Request::from_parts(parts, Body::empty());
        console.admin.strangers.were_refused(&network, &request, StatusCode::UNAUTHORIZED);
        return public_page(StatusCode::UNAUTHORIZED, "Log in", &LoginTemplate { is_wrong: true });
    };
    // A browser that logs in again has one login, not two.
    if let Some(before) = console.operator(&parts.headers) {
        console.logins.end(&before.key);
    }
    match console.logins.begin(token) {
        Ok(id) => {
            let holder = rules.tokens.holder_of_digest(&token);
            let name = holder.as_ref().map_or("", |holder| &*holder.name);
            tracing::info!(by = name, from = %network.address(), "an operator has logged in to the console");
            with_cookie(&rules, &id, WHOLE.as_secs(), Redirect::to("/").into_response())
        }
        Err(error) => failed(&AdminError::internal(&error)),
    }
}

async fn log_out(State(console): State<ConsoleState>, leaving: Leaving) -> Response {
    console.logins.end(&leaving.operator.key);
    with_cookie(&console.admin.access.rules(), "", 0, Redirect::to(LOGIN).into_response())
}

/// Sets the cookie for `seconds`. Zero seconds remove the cookie.
fn with_cookie(rules: &AccessRules, value: &str, seconds: u64, mut response: Response) -> Response {
    let secure = if rules.secure_cookies { "; Secure" } else { "" };
    let cookie =
        format!("{}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}", cookie_name(rules));
    // An id is base64, which every field may have.
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}
