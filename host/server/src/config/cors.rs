//! `[server] cors_origins`: the web pages whose scripts may call the server from a browser.

use axum::http::HeaderValue;
use serde::Deserialize;
use url::Url;

/// The origins of web pages that may call the A2A listener.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub enum CorsOrigins {
    /// Pages of every origin.
    Any,
    /// Pages of these origins, in the spelling of browsers.
    Listed(Vec<HeaderValue>),
}

/// By default no page of another origin may call the server.
impl Default for CorsOrigins {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl TryFrom<Vec<String>> for CorsOrigins {
    type Error = String;

    fn try_from(texts: Vec<String>) -> Result<Self, String> {
        if texts.iter().any(|text| text == "*") {
            let is_alone = texts.len() == 1;
            return if is_alone {
                Ok(Self::Any)
            } else {
                Err("\"*\" stands for every page; leave the others out".into())
            };
        }
        texts.iter().map(|text| origin(text)).collect::<Result<_, _>>().map(Self::Listed)
    }
}

/// Checks one origin. Origins are compared byte by byte with the header of a browser, so any other spelling is refused.
fn origin(text: &str) -> Result<HeaderValue, String> {
    if text.contains('*') {
        return Err(format!("{text:?} has a `*` in a name; list each origin, or only \"*\" for every page"));
    }
    let as_sent = Url::parse(text).ok().and_then(|url| as_sent(&url));
    let as_sent = as_sent.ok_or_else(|| {
        format!(
            "{text:?} is not an origin; write scheme, host and a port that is not the scheme's own, as in \
             \"https://app.example\" or \"http://localhost:3000\", or only \"*\" for every page"
        )
    })?;
    if as_sent != text {
        return Err(format!("{text:?} is not as browsers send that origin; write {as_sent:?}"));
    }
    HeaderValue::from_str(text).map_err(|_| format!("{text:?} cannot be the value of a header field"))
}

/// The origin of a URL in the spelling of browsers: without a path, and without the scheme's default port.
fn as_sent(url: &Url) -> Option<String> {
    let origin = url.origin();
    if origin.is_tuple() {
        return Some(origin.ascii_serialization());
    }
    // Browser extensions and apps have their own schemes, for which a URL parser returns an opaque origin.
    let host = url.host_str().filter(|host| !host.is_empty())?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{}://{host}{port}", url.scheme()))
}

#[cfg(test)]
mod tests {
    use super::CorsOrigins;

    fn read(texts: &[&str]) -> Result<CorsOrigins, String> {
        texts.iter().map(ToString::to_string).collect::<Vec<_>>().try_into()
    }

    #[test]
    fn origins_are_taken_as_browsers_send_them() {
        let taken = ["https://app.example", "http://localhost:3000", "http://[::1]:8080", "chrome-extension://abcdef"];
        let Ok(CorsOrigins::Listed(listed)) = read(&taken) else { panic!("refused") };
        assert_eq!(listed, taken);
        assert_eq!(read(&["*"]), Ok(CorsOrigins::Any));
        assert_eq!(read(&[]), Ok(CorsOrigins::default()));
    }

    #[test]
    fn what_no_browser_sends_is_refused_with_what_it_sends() {
        let cases = [
            (&["https://app.example/"][..], "write \"https://app.example\""),
            (&["https://app.example/chat?x=1"], "write \"https://app.example\""),
            (&["HTTPS://App.Example:443"], "write \"https://app.example\""),
            (&["https://ada:secret@app.example"], "write \"https://app.example\""),
            (&["http://localhost:80"], "write \"http://localhost\""),
            (&["app.example"], "\"app.example\" is not an origin"),
            (&["localhost:3000"], "\"http://localhost:3000\""),
            (&["null"], "is not an origin"),
            (&["file:///index.html"], "is not an origin"),
            (&[""], "is not an origin"),
            (&["https://*.app.example"], "list each origin"),
            (&["*", "https://app.example"], "leave the others out"),
        ];
        for (texts, expected) in cases {
            let refusal = read(texts).expect_err("a refusal");
            assert!(refusal.contains(expected), "{texts:?}: {refusal}");
        }
    }
}
