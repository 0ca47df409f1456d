//! Calls of the admin API, and the arguments of the commands that make these calls.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use annex_files::Purpose;
use annex_server::admin_api::Refusal;
use anyhow::{Context, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use reqwest::header::{CONTENT_TYPE, HeaderName};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::exit::Failure;
use crate::tls::TlsArgs;
use crate::{output, progress};

/// The timeout for a call of the admin API. It is long because the server may have to compile a component.
const PATIENCE: Duration = Duration::from_secs(300);
/// The default URL of the admin API. It has the address that the config of `annex init` suggests.
const DEFAULT_URL: &str = "http://127.0.0.1:9998";
/// The maximum size of a file with a token, in bytes.
const MAX_TOKEN_FILE_BYTES: usize = 64 << 10;
/// The maximum size of an answer, in bytes. The largest answers are whole sessions.
const MAX_ANSWER_BYTES: usize = 256 << 20;
/// The maximum size of the words that an error quotes from an answer of another server, in bytes.
const MAX_WORDS: usize = 200;

/// The arguments of each command that calls the admin API: the server, the token and the form of the output.
#[derive(Args)]
pub(crate) struct Admin {
    #[command(flatten)]
    target: Target,
    /// Print the API's JSON
    #[arg(long, global = true)]
    json: bool,
}

/// The server and the token.
#[derive(Args)]
pub(crate) struct Target {
    /// The base URL of the admin API [default: that in ANNEX_ADMIN_URL, or else http://127.0.0.1:9998]
    #[arg(long, global = true, value_name = "URL")]
    admin: Option<String>,
    /// A file with the admin token
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArgs,
}

/// Whose extensions or sessions, for commands about those of one agent.
#[derive(Args)]
pub(crate) struct OfTenant {
    /// Act on this tenant; default: the agent of the server's config
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
}

impl Target {
    /// Creates a client with the token from `--token-file`. Without that option the token comes from the environment.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let token = match &self.token_file {
            Some(file) => annex_files::read_text(file, Purpose::Secret, MAX_TOKEN_FILE_BYTES)
                .with_context(|| format!("cannot read {}", file.display()))?,
            None => env::var("ANNEX_ADMIN_TOKEN").map_err(|_| {
                Failure::Usage.error("no admin token: name its file with --token-file, or set ANNEX_ADMIN_TOKEN")
            })?,
        };
        let base = self.base()?;
        let http = self.tls.client_builder()?.timeout(PATIENCE).build()?;
        // Most editors end a file with a line break, which is no part of the token.
        Ok(Client { http, base, token: token.trim().to_owned(), tenant: None })
    }

    /// The URL from `--admin`, or from the environment, or the default.
    fn base(&self) -> anyhow::Result<Url> {
        let (named_by, url) = match &self.admin {
            Some(url) => ("--admin", url.clone()),
            None => ("ANNEX_ADMIN_URL", env::var("ANNEX_ADMIN_URL").unwrap_or_else(|_| DEFAULT_URL.to_owned())),
        };
        let url = Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        url.ok_or_else(|| Failure::Usage.error(format!("{named_by} is not a URL; write it as {DEFAULT_URL}")))
    }
}

impl Admin {
    /// Creates a client with the token from `--token-file`. Without that option the token comes from the environment.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        self.target.client()
    }

    /// With `--json`, prints the answer as JSON. Otherwise parses the answer and prints the text that `text` makes of
    /// it.
    pub(crate) fn print<T: DeserializeOwned>(
        &self,
        answer: &str,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        if self.json {
            return output::json(answer);
        }
        output::show(&text(&serde_json::from_str(answer).context("the answer is none of the admin API")?))
    }
}

pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    token: String,
    tenant: Option<String>,
}

impl Client {
    /// Directs the calls of this client to one agent: the tenant of `--tenant`, or the agent of the server's config.
    pub(crate) fn on(self, of: &OfTenant) -> Self {
        Self { tenant: of.tenant.clone(), ..self }
    }

    /// Calls the API at `/v1/` followed by `path`, and returns the answer's JSON. The segments of `path` may contain
    /// any characters.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &[&str],
        body: Option<&impl Serialize>,
    ) -> anyhow::Result<String> {
        self.call_with(method, path, &[], body).await
    }

    /// Like [`Client::call`], with query parameters.
    pub(crate) async fn call_with(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<&impl Serialize>,
    ) -> anyhow::Result<String> {
        let response = self.send(self.request(method, path, query, body)?).await?;
        text(response).await
    }

    /// Like [`Client::call`], with a header field that sets a condition, such as `If-Match`.
    pub(crate) async fn call_if(
        &self,
        method: Method,
        path: &[&str],
        (field, value): (HeaderName, String),
        body: Option<&impl Serialize>,
    ) -> anyhow::Result<String> {
        let response = self.send(self.request(method, path, &[], body)?.header(field, value)).await?;
        text(response).await
    }

    /// Posts the bytes of a component to `path`, unchanged.
    pub(crate) async fn upload(&self, path: &[&str], bytes: Vec<u8>) -> anyhow::Result<String> {
        let request = self.request(Method::POST, path, &[], None::<&()>)?;
        text(self.send(request.header(CONTENT_TYPE, "application/wasm").body(bytes)).await?).await
    }

    /// Like [`Client::call`], but the caller reads the answer as it streams. The timeout for the whole answer is
    /// `within` instead of [`PATIENCE`].
    pub(crate) async fn stream(
        &self,
        method: Method,
        path: &[&str],
        body: &impl Serialize,
        within: Duration,
    ) -> anyhow::Result<Response> {
        self.send(self.request(method, path, &[], Some(body))?.timeout(within)).await
    }

    fn request(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<&impl Serialize>,
    ) -> anyhow::Result<RequestBuilder> {
        let mut url = self.base.clone();
        // A URL of http or https always has a path. `push` encodes a segment: an extension is named by its URI, which
        // has slashes.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("v1").extend(path);
        }
        if let Some(tenant) = &self.tenant {
            url.query_pairs_mut().append_pair("tenant", tenant);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request = self.http.request(method, url).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(serde_json::to_string(body)?);
        }
        Ok(request)
    }

    /// Sends a request. Returns the answer if its status is a success, otherwise an error with the API's reason.
    async fn send(&self, request: RequestBuilder) -> anyhow::Result<Response> {
        let _progress = progress::of("waiting for the admin API");
        // The error below names the API by its base URL, so that the URL need not stand there twice.
        let response = request.send().await.map_err(reqwest::Error::without_url);
        let authority = match self.base.scheme() {
            "https" => "; if a private authority has issued its certificate, name that authority's file by --ca-file",
            _ => "",
        };
        let unreachable = || {
            format!(
                "cannot reach the admin API at {}; set [admin] in the server's config, and name its listen address \
                 here by --admin or ANNEX_ADMIN_URL{authority}",
                self.base
            )
        };
        let response = response.with_context(unreachable).map_err(|error| Failure::Unreachable.of(error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = text(response).await?;
        // With any code, so that another API's reason is told too.
        match serde_json::from_str::<Refusal<IgnoredAny>>(&text) {
            Ok(Refusal { error }) => Err(Failure::Refused.error(error.message)),
            Err(_) => {
                let words = annex_text::line_within(text.trim(), MAX_WORDS);
                Err(anyhow!("{} is not the admin API: it answered {status} with \"{words}\"", self.base))
            }
        }
    }
}

async fn text(mut response: Response) -> anyhow::Result<String> {
    let body = annex_egress::whole(&mut response, MAX_ANSWER_BYTES).await?;
    String::from_utf8(body).context("the answer is not UTF-8")
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
