//! The page that sends a message as a client would, and shows the request and the response as they are on the wire.

use std::sync::Arc;

use annex_protocol::{AgentExtension, TaskId};
use askama::Template;
use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Query, State};
use axum::http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};

use crate::admin::error::AdminError;
use crate::admin::shared::Admin;
use crate::connections::peer::Peer;
use crate::console::agents::{Choice, OfAgent, choices, of};
use crate::console::confirm::refused;
use crate::console::operator::{Change, ConsoleState, Operator};
use crate::console::page::page;
use crate::console::shown::{block_within, line};
use crate::paths::{JSONRPC_PATH, REST_PATH};
use crate::process::routes::Routes;

mod answer;
mod form;

use form::FormField;

const ACTIVE: &str = "try";
const PATH: &str = "/try";
/// The maximum number of extensions on the page.
const MAX_EXTENSIONS: usize = 30;
/// The maximum size of the shown request, in bytes.
const MAX_SHOWN: usize = 64 << 10;

pub(crate) fn routes() -> Router<ConsoleState> {
    Router::new().route(PATH, get(show).post(send))
}

/// The values of a sent form. The names of the fields depend on the card.
struct SentForm(Vec<(String, String)>);

impl SentForm {
    fn value(&self, name: &str) -> String {
        self.0.iter().find(|(field, _)| field == name).map_or_else(String::new, |(_, value)| value.clone())
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(field, _)| field == name)
    }
}

/// An extension of the card on the page.
struct ExtensionView {
    /// The name of the check box.
    field: String,
    uri: String,
    label: String,
    is_required: bool,
    is_active: bool,
    state: Vec<FormField>,
    /// The key of the metadata that takes the state.
    key: Option<String>,
}

#[derive(Template)]
#[template(path = "try_it.html")]
struct TryTemplate {
    csrf: String,
    choices: Vec<Choice>,
    tenant: String,
    text: String,
    context: String,
    credential_name: String,
    is_rest: bool,
    streams: bool,
    extensions: Vec<ExtensionView>,
    problem: Option<String>,
    exchange: Option<Exchange>,
}

/// A request and its response as text.
struct Exchange {
    request: String,
    response: String,
    note: Option<&'static str>,
}

async fn show(State(console): State<ConsoleState>, operator: Operator, Query(query): Query<OfAgent>) -> Response {
    let empty = SentForm(Vec::new());
    match try_page(&console.admin, &operator, &query.tenant, &empty).await {
        Ok(template) => page(&operator, "Try it", ACTIVE, &template),
        Err(error) => refused(&operator, ACTIVE, &error, PATH),
    }
}

async fn try_page(
    admin: &Admin,
    operator: &Operator,
    tenant: &str,
    sent: &SentForm,
) -> Result<TryTemplate, AdminError> {
    let mut extensions = Vec::new();
    for (number, entry) in admin.card_entries(&of(tenant)).await?.into_iter().take(MAX_EXTENSIONS).enumerate() {
        extensions.push(view(admin, tenant, number, &entry, sent).await);
    }
    let name = sent.value("credential-name");
    Ok(TryTemplate {
        csrf: operator.csrf().to_owned(),
        choices: choices(PATH, &admin.tenant_names(), tenant),
        tenant: tenant.to_owned(),
        text: sent.value("text"),
        context: sent.value("context"),
        credential_name: if name.is_empty() { "authorization".to_owned() } else { name },
        is_rest: sent.value("binding") == "rest",
        streams: sent.has("stream"),
        extensions,
        problem: None,
        exchange: None,
    })
}

async fn view(admin: &Admin, tenant: &str, number: usize, entry: &AgentExtension, sent: &SentForm) -> ExtensionView {
    let field = format!("x{number}");
    let uri = entry.uri.as_str();
    let details = admin.extension(&of(tenant), uri).await.ok();
    let keys = details.as_ref().map(|details| details.metadata_keys.as_slice()).unwrap_or_default();
    let key = keys.iter().find(|key| key.ends_with("/state")).or_else(|| keys.first()).cloned();
    let schema = entry.params.as_ref().and_then(|params| params.get("state_schema"));
    let schema = schema.and_then(|schema| serde_json::from_str::<Value>(schema.get()).ok());
    let state = schema
        .filter(|_| key.is_some())
        .map(|schema| form::fields(&schema, &format!("s{number}"), &|name| sent.value(name)));
    ExtensionView {
        is_active: if sent.0.is_empty() { entry.required } else { sent.value(&field) == uri },
        field,
        label: line(uri),
        uri: uri.to_owned(),
        is_required: entry.required,
        state: state.unwrap_or_default(),
        key,
    }
}

async fn send(
    State(console): State<ConsoleState>,
    Extension(peer): Extension<Peer>,
    change: Change<Vec<(String, String)>>,
) -> Response {
    let Change { operator, form, .. } = change;
    if let Err(error) = operator.check_operate() {
        return refused(&operator, ACTIVE, &error, PATH);
    }
    let sent = SentForm(form);
    let tenant = sent.value("tenant");
    let mut template = match try_page(&console.admin, &operator, &tenant, &sent).await {
        Ok(template) => template,
        Err(error) => return refused(&operator, ACTIVE, &error, PATH),
    };
    // The operator's certificate is that of the admin listener, and clients of the agent have others.
    let peer = Peer { network: peer.network, certificate: None };
    match message(&template, &sent) {
        Ok(message) => {
            let shown = message.shown();
            // The routes of the A2A listener, without its connections.
            let routes = Routes::new(Arc::clone(&console.gate));
            let answer = routes.answer_operator(message.into_request(), peer).await;
            let (response, note) = answer::read(answer).await;
            template.exchange = Some(Exchange { request: shown, response, note });
        }
        Err(problem) => template.problem = Some(problem),
    }
    let is_refused = template.problem.is_some();
    let mut response = page(&operator, "Try it", ACTIVE, &template);
    if is_refused {
        *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
    }
    response
}

/// A request before it is sent.
struct Message {
    path: String,
    /// The header fields. `true` marks the field with the caller's credentials, which is not shown.
    headers: Vec<(HeaderName, HeaderValue, bool)>,
    body: Value,
}

/// The message of a form.
///
/// # Errors
/// The field that cannot be used, with the reason.
fn message(page: &TryTemplate, sent: &SentForm) -> Result<Message, String> {
    let mut metadata = serde_json::Map::new();
    let active: Vec<&ExtensionView> = page.extensions.iter().filter(|extension| extension.is_active).collect();
    for extension in &active {
        if let (Some(key), Some(state)) = (&extension.key, form::state(&extension.state)?) {
            metadata.insert(key.clone(), state);
        }
    }
    // Any new id is an id of a message.
    let id = TaskId::generate().to_string();
    let mut message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": page.text}]});
    if let Some(fields) = message.as_object_mut() {
        if !page.context.is_empty() {
            fields.insert("contextId".to_owned(), page.context.as_str().into());
        }
        if !metadata.is_empty() {
            fields.insert("metadata".to_owned(), metadata.into());
        }
    }
    let params = match page.tenant.as_str() {
        "" => json!({"message": message}),
        tenant => json!({"tenant": tenant, "message": message}),
    };
    let (path, body) = match (page.is_rest, page.streams) {
        (true, false) => (format!("{REST_PATH}/message:send"), params),
        (true, true) => (format!("{REST_PATH}/message:stream"), params),
        (false, streams) => {
            let method = if streams { "SendStreamingMessage" } else { "SendMessage" };
            (JSONRPC_PATH.to_owned(), json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
        }
    };
    Ok(Message { path, headers: headers(page, &active, &sent.value("credential"))?, body })
}

fn headers(
    page: &TryTemplate,
    active: &[&ExtensionView],
    credential: &str,
) -> Result<Vec<(HeaderName, HeaderValue, bool)>, String> {
    let plain = |name, value| (HeaderName::from_static(name), HeaderValue::from_static(value), false);
    let mut headers = vec![plain("content-type", "application/json"), plain("a2a-version", "1.0")];
    if page.streams {
        headers.push(plain("accept", "text/event-stream"));
    }
    if !active.is_empty() {
        let uris: Vec<&str> = active.iter().map(|extension| extension.uri.as_str()).collect();
        let value =
            HeaderValue::try_from(uris.join(", ")).map_err(|_| "a URI cannot be sent in a header".to_owned())?;
        headers.push((HeaderName::from_static("a2a-extensions"), value, false));
    }
    if !credential.is_empty() {
        let name = HeaderName::try_from(page.credential_name.trim());
        let name = name.map_err(|_| format!("{} is no name of a header", line(&page.credential_name)))?;
        let value = HeaderValue::try_from(credential.trim());
        let value = value.map_err(|_| "the credentials cannot be sent in a header".to_owned())?;
        headers.push((name, value, true));
    }
    Ok(headers)
}

impl Message {
    /// The request as text, without the caller's credentials.
    fn shown(&self) -> String {
        let mut text = format!("POST {} HTTP/1.1\n", self.path);
        for (name, value, is_secret) in &self.headers {
            let value = if *is_secret { "[hidden]".into() } else { String::from_utf8_lossy(value.as_bytes()) };
            text.push_str(&format!("{name}: {value}\n"));
        }
        let body = serde_json::to_string_pretty(&self.body).unwrap_or_default();
        block_within(&format!("{text}\n{body}"), MAX_SHOWN)
    }

    fn into_request(self) -> Request<Body> {
        let mut request = Request::new(Body::from(self.body.to_string()));
        *request.method_mut() = Method::POST;
        // The path is one of the constants, so it is a URI.
        *request.uri_mut() = self.path.parse().unwrap_or_default();
        for (name, value, _) in self.headers {
            request.headers_mut().append(name, value);
        }
        request
    }
}
