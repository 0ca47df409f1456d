//! CORS: the response fields that let web pages of other origins call the server (Fetch Standard, "CORS protocol").
//!
//! All answers of the A2A listener have the fields, including errors and the card, because a page cannot read an answer
//! without them. The admin API sends none.

use std::convert::Infallible;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use annex_auth::ApiKeyHeaderConfig;
use annex_protocol::service::{A2A_EXTENSIONS, A2A_VERSION};
use annex_protocol::v0_3::X_A2A_EXTENSIONS;
use axum::http::header::{
    ACCESS_CONTROL_REQUEST_METHOD, ALLOW, AUTHORIZATION, CONTENT_TYPE, ETAG, HeaderName, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE,
};
use axum::http::{Method, Request};
use axum::response::Response;
use tower::{Layer, ServiceExt, service_fn};
use tower_http::cors::{AllowOrigin, Any, CorsLayer, Vary};

use crate::config::{AgentConfig, Config, CorsOrigins};

/// The time for which a browser may cache the answer to a preflight request.
const MAX_AGE: Duration = Duration::from_secs(3_600);

/// The allowed web pages. A reload of the config replaces them.
#[derive(Default)]
pub(crate) struct CrossOrigin {
    /// The allowed pages. `None` if the config allows no page of another origin.
    pages: RwLock<Option<Arc<Pages>>>,
}

/// The allowed origins and the layer that adds the response fields.
pub(crate) struct Pages {
    origins: CorsOrigins,
    layer: CorsLayer,
}

impl CrossOrigin {
    pub(crate) fn new(config: &Config) -> Arc<Self> {
        let pages = Self::default();
        pages.set(config);
        Arc::new(pages)
    }

    /// Replaces the allowed pages by the pages that this config allows.
    pub(crate) fn set(&self, config: &Config) {
        *self.pages.write().unwrap_or_else(PoisonError::into_inner) = Pages::of(config);
    }

    pub(crate) fn pages(&self) -> Option<Arc<Pages>> {
        self.pages.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Pages {
    fn of(config: &Config) -> Option<Arc<Self>> {
        let origins = config.server.cors_origins.clone();
        let layer = CorsLayer::new()
            .allow_methods([Method::GET, Method::POST, Method::DELETE])
            .allow_headers(accepted(config))
            .expose_headers(exposed())
            .max_age(MAX_AGE);
        let layer = match &origins {
            CorsOrigins::Any => layer.allow_origin(Any).vary(Vary::list([])),
            CorsOrigins::Listed(listed) if listed.is_empty() => return None,
            // `Vary` keeps a cache from serving the answer for one origin to a page of another.
            CorsOrigins::Listed(listed) => layer.allow_origin(AllowOrigin::list(listed.iter().cloned())).vary([ORIGIN]),
        };
        Some(Arc::new(Self { origins, layer }))
    }

    /// True if the request comes from an allowed page.
    pub(crate) fn allow<B>(&self, request: &Request<B>) -> bool {
        let mut sent = request.headers().get_all(ORIGIN).iter();
        match (&self.origins, sent.next(), sent.next()) {
            (CorsOrigins::Any, _, _) => true,
            (CorsOrigins::Listed(listed), Some(origin), None) => listed.contains(origin),
            (CorsOrigins::Listed(_), _, _) => false,
        }
    }

    /// Answers a request. A preflight request is answered here. Any other request goes to `answer`, and its response
    /// gets the fields for browsers.
    pub(crate) async fn answer<B, F>(&self, request: Request<B>, answer: impl FnMut(Request<B>) -> F) -> Response
    where
        F: Future<Output = Result<Response, Infallible>>,
    {
        let Ok(response) = self.layer.layer(service_fn(answer)).oneshot(request).await;
        response
    }
}

/// True for a preflight request. A browser sends a preflight request before a request from a page of another origin.
pub(crate) fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The request fields that a page may send. Browsers allow further fields by themselves.
fn accepted(config: &Config) -> Vec<HeaderName> {
    let own = ["last-event-id", A2A_VERSION, A2A_EXTENSIONS, X_A2A_EXTENSIONS];
    let ApiKeyHeaderConfig { name: key } =
        config.auth.as_ref().map(|auth| auth.api_key_header.clone()).unwrap_or_default();
    // A page must be able to send the fields that the server forwards to an upstream agent.
    let forwarded = match &config.agent {
        Some(AgentConfig::Upstream { upstream, .. }) => upstream.headers_forward.as_slice(),
        _ => &[],
    };
    // So must it the fields that extensions may see.
    let grants = config.extensions.iter().filter_map(|extension| extension.grants.caller.as_ref());
    let shown = grants.flat_map(|caller| &caller.headers);
    let named = own.into_iter().chain([key.as_str()]).chain(forwarded.iter().chain(shown).map(String::as_str));
    // All names were checked with the config.
    let named = named.filter_map(|name| HeaderName::try_from(name).ok());
    let mut accepted = vec![CONTENT_TYPE, AUTHORIZATION, IF_NONE_MATCH, IF_MODIFIED_SINCE];
    for name in named {
        if !accepted.contains(&name) {
            accepted.push(name);
        }
    }
    accepted
}

/// The response fields that a page may read. Browsers expose further fields by themselves.
fn exposed() -> Vec<HeaderName> {
    // The star stands for all other fields, such as `Annex-…`. Old browsers do not support it.
    let own = [A2A_EXTENSIONS, X_A2A_EXTENSIONS, "*"].into_iter().filter_map(|name| HeaderName::try_from(name).ok());
    own.chain([WWW_AUTHENTICATE, RETRY_AFTER, ALLOW, ETAG]).collect()
}
