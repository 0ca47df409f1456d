//! The agents that a page can show: the agent of the config itself, and one for each tenant.

use std::iter;

use serde::Deserialize;

use crate::admin::shared::OfTenant;
use crate::console::shown::{address, line};

/// The tenant of a form or a query. An empty name stands for the agent of the config itself.
pub(super) fn of(tenant: &str) -> OfTenant {
    OfTenant { tenant: Some(tenant.to_owned()).filter(|tenant| !tenant.is_empty()) }
}

/// A page of one agent. An empty name stands for the agent of the config itself.
pub(super) fn page_of(path: &str, tenant: &str) -> String {
    address(path, &[("tenant", of(tenant).tenant.as_deref())])
}

/// The query or the form that names an agent. An empty name stands for the agent of the config itself.
#[derive(Deserialize)]
pub(super) struct OfAgent {
    #[serde(default)]
    pub(super) tenant: String,
}

/// An agent that the page can show.
pub(super) struct Choice {
    pub(super) name: String,
    pub(super) link: String,
    pub(super) is_current: bool,
}

/// The choices of a page: the agent of the config itself, then the tenants.
pub(super) fn choices(path: &str, tenants: &[String], current: &str) -> Vec<Choice> {
    let names = iter::once("").chain(tenants.iter().map(String::as_str));
    let choice = |name: &str| Choice {
        name: if name.is_empty() { "Own agent".to_owned() } else { line(name) },
        link: page_of(path, name),
        is_current: name == current,
    };
    names.map(choice).collect()
}
