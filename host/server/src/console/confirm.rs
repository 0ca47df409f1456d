//! The page that explains a change before it is made, and the page of a refused change.

use askama::Template;
use axum::response::Response;

use crate::admin::error::AdminError;
use crate::console::operator::Operator;
use crate::console::page::page;
use crate::console::shown;

/// A hidden field of a form.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) value: String,
}

impl Field {
    pub(super) fn new(name: &'static str, value: &str) -> Self {
        Self { name, value: value.to_owned() }
    }
}

/// The content of a page that asks before a change.
pub(super) struct ConfirmPage {
    /// Sentences about the effects of the change and the data that it deletes.
    pub(super) sentences: Vec<String>,
    /// The path of the form.
    pub(super) action: &'static str,
    pub(super) fields: Vec<Field>,
    pub(super) button: &'static str,
    /// The page to go back to.
    pub(super) back: String,
}

#[derive(Template)]
#[template(path = "confirm.html")]
struct ConfirmTemplate {
    csrf: String,
    sentences: Vec<String>,
    action: &'static str,
    fields: Vec<Field>,
    button: &'static str,
    back: String,
}

impl ConfirmPage {
    pub(super) fn into_page(self, operator: &Operator, title: &str, active: &'static str) -> Response {
        let Self { sentences, action, fields, button, back } = self;
        let csrf = operator.csrf().to_owned();
        page(operator, title, active, &ConfirmTemplate { csrf, sentences, action, fields, button, back })
    }
}

#[derive(Template)]
#[template(path = "refused.html")]
struct RefusedTemplate {
    reason: String,
    back: String,
}

/// The page of a refused request. It has the status of the refusal.
pub(super) fn refused(operator: &Operator, active: &'static str, error: &AdminError, back: &str) -> Response {
    let refusal = RefusedTemplate { reason: shown::block(error.message()), back: back.to_owned() };
    let mut response = page(operator, "Refused", active, &refusal);
    *response.status_mut() = error.status();
    response
}
