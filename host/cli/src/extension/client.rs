//! Calls of the admin API.

use std::path::Path;
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, Url};
use serde::{Deserialize, Serialize};

/// A component may have to be compiled.
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) struct Client {
    http: reqwest::Client,
    base: Url,
    token: String,
    tenant: Option<String>,
}

#[derive(Deserialize)]
struct Refusal {
    error: Reason,
}

#[derive(Deserialize)]
struct Reason {
    message: String,
}

impl Client {
    /// The token is in the file, or in the environment.
    pub(super) fn new(base: &str, token_file: Option<&Path>, tenant: Option<&str>) -> anyhow::Result<Self> {
        let token = match token_file {
            Some(file) => fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?,
            None => env::var("ANNEX_ADMIN_TOKEN")
                .context("no admin token: name its file with --token-file, or set ANNEX_ADMIN_TOKEN")?,
        };
        let base = Url::parse(base).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let base = base.context("--admin is not a URL; write it as http://127.0.0.1:9998")?;
        let http = reqwest::Client::builder().timeout(PATIENCE).build()?;
        Ok(Self { http, base, token: token.trim().to_owned(), tenant: tenant.map(str::to_owned) })
    }

    /// Calls `/v1/` and `path`, whose segments may have any characters, and returns the answer's JSON.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &[&str],
        body: Option<&impl Serialize>,
    ) -> anyhow::Result<String> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("v1").extend(path);
        }
        if let Some(tenant) = &self.tenant {
            url.query_pairs_mut().append_pair("tenant", tenant);
        }
        let mut request = self.http.request(method, url).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(serde_json::to_string(body)?);
        }
        let response = request.send().await.map_err(reqwest::Error::without_url);
        let unreachable =
            || format!("cannot reach the admin API at {}; does the server's config have [admin]?", self.base);
        let response = response.with_context(unreachable)?;
        let status = response.status();
        let text = response.text().await.context("the answer broke off")?;
        if status.is_success() {
            return Ok(text);
        }
        match serde_json::from_str(&text) {
            Ok(Refusal { error }) => bail!(error.message),
            Err(_) => bail!("{} answered {status}, which is not the admin API", self.base),
        }
    }
}

pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
