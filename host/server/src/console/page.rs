//! The frame around every page.

use askama::Template;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};

use super::assets;
use super::operator::Operator;
use crate::admin::error::AdminError;

/// The pages of the navigation: the name by which a page marks itself as active, its path and its title.
const PAGES: [(&str, &str, &str); 6] = [
    ("overview", "/", "Overview"),
    ("extensions", "/extensions", "Extensions"),
    ("requests", "/requests", "Requests"),
    ("sessions", "/sessions", "Sessions"),
    ("tenants", "/tenants", "Tenants"),
    ("try", "/try", "Try it"),
];

/// The page from its beginning to the content. `layout_end.html` has the rest. Two templates are needed because a
/// template inside of a template would have to be marked as safe.
#[derive(Template)]
#[template(path = "layout.html")]
struct Layout<'a> {
    title: &'a str,
    style: &'static str,
    scripts: &'a [&'static str],
    operator: Option<&'a Operator>,
    links: Vec<NavigationLink>,
}

/// A page in the navigation.
struct NavigationLink {
    path: &'static str,
    label: &'static str,
    is_active: bool,
}

#[derive(Template)]
#[template(path = "layout_end.html")]
struct LayoutEnd;

#[derive(Template)]
#[template(path = "notice.html")]
struct Notice<'a> {
    text: &'a str,
}

/// A page with the navigation. `active` is the name of a page in the navigation.
pub(crate) fn page(operator: &Operator, title: &str, active: &str, content: &impl Template) -> Response {
    framed(StatusCode::OK, title, Some(operator), active, content)
}

/// A page for visitors who have not logged in.
pub(super) fn public_page(status: StatusCode, title: &str, content: &impl Template) -> Response {
    framed(status, title, None, "", content)
}

/// A part of a page, without the frame.
pub(crate) fn fragment(content: &impl Template) -> Response {
    match content.render() {
        Ok(html) => Html(html).into_response(),
        Err(error) => AdminError::internal(&error).into_response(),
    }
}

/// A page that says what went wrong.
pub(super) fn notice(status: StatusCode, title: &str, text: &str) -> Response {
    public_page(status, title, &Notice { text: &annex_text::block(text) })
}

/// The page of an error of the admin API.
pub(super) fn failed(error: &AdminError) -> Response {
    notice(error.status(), "Refused", error.message())
}

fn framed(
    status: StatusCode,
    title: &str,
    operator: Option<&Operator>,
    active: &str,
    content: &impl Template,
) -> Response {
    let scripts = assets::scripts();
    let link = |&(name, path, label): &(&str, &'static str, &'static str)| NavigationLink {
        path,
        label,
        is_active: name == active,
    };
    let links = PAGES.iter().map(link).collect();
    let layout = Layout { title, style: assets::style(), scripts: &scripts, operator, links };
    let mut html = String::new();
    let written = layout
        .render_into(&mut html)
        .and_then(|()| content.render_into(&mut html))
        .and_then(|()| LayoutEnd.render_into(&mut html));
    match written {
        Ok(()) => (status, Html(html)).into_response(),
        Err(error) => AdminError::internal(&error).into_response(),
    }
}
