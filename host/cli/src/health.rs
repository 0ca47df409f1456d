//! `annex health`

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use annex_server::Config;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use reqwest::redirect::Policy;
use reqwest::{StatusCode, Url};

use crate::exit::{self, Failure};
use crate::output;
use crate::tls::TlsArgs;

/// The time limit for the whole question, from the connection to the end of the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The URL of a server whose config names no address.
const DEFAULT_URL: &str = "http://127.0.0.1:9999";
/// The path that answers 200 while the server takes requests.
const PATH: &str = "readyz";
/// The maximum size of the quote of an answer in an error, in bytes.
const MAX_QUOTE: usize = 500;

/// Ask a running server whether it takes requests.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  annex health\n  annex health /etc/annex/annex.toml\n  annex health https://agent.example.com --ca-file \
                        ca.pem\n\nThe exit code is 0 if /readyz answers 200 within five seconds. Otherwise the command prints the \
                        reason, and the exit code is 1. With a config the command asks the address in server.listen. It \
                        does not verify the certificate of that server, which is on the same machine, unless --ca-file is \
                        there. No proxy of the environment is used."
)]
pub(crate) struct Health {
    /// The config of a server on this machine, or the base URL of a server
    #[arg(value_name = "CONFIG|URL", default_value = DEFAULT_URL)]
    server: PathBuf,
    #[command(flatten)]
    tls: TlsArgs,
}

/// The URL to ask.
struct Question {
    url: Url,
    /// True if the certificate of the server is verified.
    verifies: bool,
}

impl Health {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Question { url, verifies } = self.question()?;
        let builder = if verifies { self.tls.client_builder()? } else { self.tls.unverified_client_builder()? };
        let client = builder.timeout(PATIENCE).redirect(Policy::none()).no_proxy().build()?;
        let answer = client.get(url.clone()).send().await;
        let mut response = answer.map_err(|error| self.explain(&url, error))?;
        let status = response.status();
        if status == StatusCode::OK {
            return output::write(&format!("{url} answers 200: the server takes requests\n"));
        }
        let body = annex_egress::beginning(&mut response, MAX_QUOTE).await;
        let quote = annex_text::line_within(String::from_utf8_lossy(&body).trim(), MAX_QUOTE);
        bail!("{url} answers {}: {quote}", status.as_u16())
    }

    fn question(&self) -> anyhow::Result<Question> {
        let url = self.server.to_str().filter(|text| text.contains("://"));
        let (url, verifies) = match url {
            Some(text) => (of_server(text)?, true),
            None => (of_config(&self.server)?, self.tls.names_authority()),
        };
        Ok(Question { url, verifies })
    }

    fn explain(&self, url: &Url, error: reqwest::Error) -> anyhow::Error {
        if error.is_timeout() {
            return anyhow!("{url} does not answer within {} seconds", PATIENCE.as_secs());
        }
        // TLS 1.3 accepts a client before it sees that the certificate of the client is missing or wrong.
        let is_broken = url.scheme() == "https" && !error.is_connect();
        let error = anyhow::Error::new(error.without_url()).context(format!("{url} does not answer"));
        match self.tls.hint(&error, is_broken) {
            Some(hint) => exit::with_hint(&error, hint),
            None => error,
        }
    }
}

/// The URL of `/readyz` below the base URL of a server.
fn of_server(base: &str) -> anyhow::Result<Url> {
    let is_plain =
        |url: &Url| matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
    let usage = || Failure::Usage.error(format!("not the base URL of a server; write it as {DEFAULT_URL}"));
    let mut url = Url::parse(base).ok().filter(is_plain).ok_or_else(usage)?;
    url.set_query(None);
    url.set_fragment(None);
    url.path_segments_mut().map_err(|()| usage())?.pop_if_empty().push(PATH);
    Ok(url)
}

/// The URL of `/readyz` of the server with this config, as seen from the same machine.
fn of_config(path: &Path) -> anyhow::Result<Url> {
    let server = Config::read(path)?.server;
    let scheme = if server.tls.is_some() { "https" } else { "http" };
    let shown = path.display();
    if server.listen.port() == 0 {
        return Err(Failure::Usage.error(format!(
            "server.listen in {shown} has port 0, so the config does not tell the port; name the URL that `annex serve` prints"
        )));
    }
    let address = SocketAddr::new(own_address(server.listen.ip()), server.listen.port());
    Url::parse(&format!("{scheme}://{address}/{PATH}")).with_context(|| format!("server.listen in {shown}"))
}

/// The address under which a process of the same machine reaches a listener.
fn own_address(listen: IpAddr) -> IpAddr {
    match listen {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::{of_server, own_address};

    #[test]
    fn a_listener_on_all_addresses_is_asked_on_loopback() {
        for (listen, asked) in
            [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.1.2.3", "10.1.2.3"), ("127.0.0.1", "127.0.0.1")]
        {
            assert_eq!(own_address(listen.parse().unwrap()).to_string(), asked, "{listen}");
        }
    }

    #[test]
    fn the_path_is_added_to_the_base_url_and_to_no_other_text() {
        for (base, asked) in [
            ("http://127.0.0.1:9999", "http://127.0.0.1:9999/readyz"),
            ("http://127.0.0.1:9999/", "http://127.0.0.1:9999/readyz"),
            ("https://example.com/agents?a=b#c", "https://example.com/agents/readyz"),
        ] {
            assert_eq!(of_server(base).unwrap().as_str(), asked);
        }
        for wrong in ["ftp://127.0.0.1", "http://", "http://user:secret@127.0.0.1"] {
            let error = of_server(wrong).unwrap_err().to_string();
            assert!(error.contains("write it as") && !error.contains("secret"), "{error}");
        }
    }
}
