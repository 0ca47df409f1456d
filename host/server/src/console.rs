//! The console: web pages for operators, on the listener of the admin API.
//!
//! Operators log in with an admin token. The pages call the same functions as the handlers of the API, and never the
//! API itself. Nothing that an author, a client or a model wrote is markup: templates escape every value, and no value
//! is marked as safe. Each page module has a function `routes`, which is merged here, and an entry in `page::PAGES`.

use axum::Router;
use axum::middleware::from_fn_with_state;

mod agents;
mod assets;
mod confirm;
mod extensions;
mod guard;
mod live;
mod login;
mod logins;
pub(crate) mod operator;
mod overview;
mod page;
mod requests;
mod sessions;
mod shown;
mod tenants;
mod try_it;

use operator::ConsoleState;

/// All pages of the console. The caller merges them with the routes of the admin API, which are below `/v1`.
pub(crate) fn router(console: ConsoleState) -> Router {
    Router::new()
        .merge(login::routes())
        .merge(assets::routes())
        .merge(overview::routes())
        .merge(extensions::routes())
        .merge(sessions::routes())
        .merge(tenants::routes())
        .merge(try_it::routes())
        .merge(requests::routes())
        .merge(live::routes())
        // Only known paths have the guard of the console. All other paths have the guard of the API.
        .route_layer(from_fn_with_state(console.clone(), guard::guard))
        .with_state(console)
}
