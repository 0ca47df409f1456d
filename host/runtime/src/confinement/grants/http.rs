//! The grant `http`: the requests that an extension may send.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use annex_egress::AllowedDestination;
use http::Method;
use url::{Host, Url};

/// The grant `http`: the requests that an extension may send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpGrant {
    /// A request must match one of these rules.
    pub allow: Vec<HttpRule>,
    /// Maximum size of a response body in bytes. A larger body is an error for the extension.
    pub max_response_bytes: usize,
    /// Timeout of a request, from name resolution to the end of the response.
    pub timeout: Duration,
    /// Hosts and addresses that may be called although they are not public.
    pub allow_private: Vec<AllowedDestination>,
}

impl HttpGrant {
    /// Default for [`max_response_bytes`](Self::max_response_bytes).
    pub const MAX_RESPONSE_BYTES: usize = 1 << 20;
    /// Default for [`timeout`](Self::timeout).
    pub const TIMEOUT: Duration = Duration::from_secs(5);

    /// True if a rule matches the request. `url` must be normalised, as [`Url`] is.
    pub(crate) fn covers(&self, method: &Method, url: &Url) -> bool {
        self.allow.iter().any(|rule| rule.covers(method, url))
    }
}

/// A kind of request that may be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRule {
    /// Allowed methods.
    pub methods: Vec<Method>,
    /// Allowed scheme.
    pub scheme: HttpScheme,
    /// Allowed hosts.
    pub host: HostPattern,
    /// Allowed port.
    pub port: u16,
    /// Allowed path, beginning with `/`, including paths below it. For example, `/v1` and `/v1/` allow `/v1/users`
    /// but not `/v10`.
    pub path: String,
}

/// Scheme of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpScheme {
    /// HTTPS, which is encrypted.
    Https,
    /// HTTP, which is not encrypted.
    Http,
}

impl HttpScheme {
    /// The scheme as it stands in a URL.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }

    /// Default port of the scheme.
    #[must_use]
    pub const fn port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }
}

impl HttpRule {
    fn covers(&self, method: &Method, url: &Url) -> bool {
        self.methods.contains(method)
            && url.scheme() == self.scheme.name()
            // `Url` omits the default port, so `https://a:443/` and `https://a/` match alike.
            && url.port_or_known_default() == Some(self.port)
            && url.host().is_some_and(|host| self.host.covers(&host))
            && self.covers_path(url.path())
    }

    fn covers_path(&self, path: &str) -> bool {
        let below = self.path.trim_end_matches('/');
        // A rule for all paths needs no check for ambiguous ones.
        if below.is_empty() {
            return true;
        }
        let rest = path.strip_prefix(below);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) && !is_ambiguous(path)
    }
}

/// True if some servers may resolve the path to one outside of its folder. Some servers treat an encoded slash as a
/// separator (`/v1/..%2fadmin`), some decode more than once (`/v1/%252e%252e/admin`), and some drop parameters after a
/// semicolon (`/v1/..;/admin`). The check takes time in proportion to the length of the path.
fn is_ambiguous(path: &str) -> bool {
    let decoded = fully_decoded(path);
    let slashes = |text: &[u8]| text.iter().filter(|byte| **byte == b'/').count();
    // Bytes 0xc0 and 0xc1 are invalid in UTF-8. Decoders that accept them read `c0 ae` as a dot.
    let hidden = |byte: &u8| matches!(byte, b'\\' | 0 | 0xc0 | 0xc1);
    let mut segments = decoded.split(|byte| *byte == b'/');
    slashes(&decoded) != slashes(path.as_bytes()) || decoded.iter().any(hidden) || segments.any(is_dots)
}

/// True if some server treats the segment as `.` or `..`, including variants with parameters or blanks.
fn is_dots(segment: &[u8]) -> bool {
    let name = segment.split(|byte| *byte == b';').next().unwrap_or_default();
    matches!(name.trim_ascii(), b"." | b"..")
}

/// Decodes the path until no escape is left: `%`, `%25` and `%2525` all become `%`. Escapes do not overlap, so the
/// order does not matter.
fn fully_decoded(path: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    for byte in path.bytes() {
        decoded.push(byte);
        while let Some(escaped) = decoded.last_chunk().and_then(unescaped) {
            decoded.truncate(decoded.len().saturating_sub(3));
            decoded.push(escaped);
        }
    }
    decoded
}

fn unescaped(escape: &[u8; 3]) -> Option<u8> {
    let [b'%', high, low] = *escape else { return None };
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// The hosts of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// One name or address.
    Exactly(Host),
    /// All names below this name, at any depth, without the name itself. Written `*.example.com`.
    Below(String),
}

impl HostPattern {
    /// True if the pattern matches the host of the URL.
    #[must_use]
    pub fn is_of(&self, url: &str) -> bool {
        Url::parse(url).is_ok_and(|url| url.host().is_some_and(|host| self.covers(&host)))
    }

    /// The address, if the pattern is one.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Exactly(Host::Ipv4(address)) => Some((*address).into()),
            Self::Exactly(Host::Ipv6(address)) => Some((*address).into()),
            Self::Exactly(Host::Domain(_)) | Self::Below(_) => None,
        }
    }

    fn covers(&self, host: &Host<&str>) -> bool {
        match (self, host) {
            // `host.` and `host` are the same name in DNS, and `Url` keeps the dot.
            (Self::Exactly(Host::Domain(name)), Host::Domain(host)) => without_final_dot(host) == name,
            (Self::Exactly(address), host) => address == host,
            // The dot prevents `evil-example.com` from matching `example.com`.
            (Self::Below(name), Host::Domain(host)) => without_final_dot(host)
                .strip_suffix(name.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            (Self::Below(_), Host::Ipv4(_) | Host::Ipv6(_)) => false,
        }
    }
}

fn without_final_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// The text is not a host pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is neither a host name nor an address nor `*.` and a name")]
pub struct InvalidHost {
    /// The invalid text.
    pub text: String,
}

impl FromStr for HostPattern {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidHost { text: text.to_owned() };
        let (name, below) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        match Host::parse(without_final_dot(name)).map_err(|_| invalid())? {
            // The URL standard allows `*` in a name. Here it would look like a pattern and match nothing.
            Host::Domain(name) if name.contains('*') => Err(invalid()),
            Host::Domain(name) if below => Ok(Self::Below(name)),
            _ if below => Err(invalid()),
            host => Ok(Self::Exactly(host)),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(host) => write!(formatter, "{host}"),
            Self::Below(name) => write!(formatter, "*.{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use url::Url;

    use super::{HostPattern, HttpRule, HttpScheme};

    fn rule(host: &str, path: &str) -> HttpRule {
        HttpRule {
            methods: vec![Method::GET],
            scheme: HttpScheme::Https,
            host: host.parse().expect("a host"),
            port: 443,
            path: path.to_owned(),
        }
    }

    #[track_caller]
    fn check(rule: &HttpRule, expected: bool, urls: &[&str]) {
        for url in urls {
            let url = Url::parse(url).expect("a URL");
            assert_eq!(rule.covers(&Method::GET, &url), expected, "{url}");
        }
    }

    #[test]
    fn a_host_is_covered_by_its_own_name_alone() {
        let rule = rule("api.example.com", "/");
        check(&rule, true, &["https://api.example.com/", "https://API.example.com./x", "https://api.example.com:443/"]);
        check(
            &rule,
            false,
            &["https://example.com/", "https://evil.api.example.com/", "https://api.example.com.evil/"],
        );
        check(&rule, false, &["http://api.example.com/", "https://api.example.com:8443/", "https://127.0.0.1/"]);
        check(&rule, false, &["https://api.example.com@evil.example/", "https://evil.example#api.example.com"]);
    }

    #[test]
    fn a_wildcard_matches_subdomains_and_not_the_name_itself() {
        let rule = rule("*.example.com", "/");
        check(&rule, true, &["https://a.example.com/", "https://a.b.example.com/"]);
        check(&rule, false, &["https://example.com/", "https://badexample.com/", "https://a.example.com.evil/"]);
    }

    #[test]
    fn an_address_matches_in_every_notation() {
        check(&rule("10.0.0.7", "/"), true, &["https://10.0.0.7/", "https://0x0a000007/"]);
        check(&rule("[::1]", "/"), true, &["https://[0:0:0:0:0:0:0:1]/"]);
        check(&rule("10.0.0.7", "/"), false, &["https://10.0.0.8/", "https://[::ffff:10.0.0.7]/"]);
    }

    #[test]
    fn a_path_cannot_be_left() {
        for prefix in ["/v1", "/v1/"] {
            let rule = rule("a.example", prefix);
            check(&rule, true, &["https://a.example/v1", "https://a.example/v1/", "https://a.example/v1/x?y=/../z"]);
            check(&rule, false, &["https://a.example/", "https://a.example/v10", "https://a.example/V1/"]);
            check(&rule, false, &["https://a.example/v1/../admin", "https://a.example/v1/%2e%2E/admin"]);
            check(&rule, false, &["https://a.example/v1/..%2fadmin", "https://a.example/v1/..%5Cadmin"]);
            check(&rule, false, &["https://a.example/v1/..\\admin", "https://a.example//v1/x"]);
        }
    }

    #[test]
    fn a_path_that_servers_read_differently_is_not_covered() {
        let whole = rule("a.example", "/");
        let rule = rule("a.example", "/ok");
        let ambiguous = [
            "..;/secret",
            "%252e%252e/secret",
            "..;a=b/secret",
            ".;/secret",
            "%2e%2e;/secret",
            "..%3b/secret",
            "..%3B",
            "%252e%252e",
            "%25252e.",
            "%2525252e%252E/secret",
            ".%252e/secret",
            "..%252fsecret",
            "..%25252Fsecret",
            "x%252fy",
            "..%255csecret",
            "..%5c..%5csecret",
            "%25%32%65%25%32%65/secret",
            "%%32%65%%32%65/secret",
            "%252%65./secret",
            "..%00/secret",
            "x%2500",
            "..%20/secret",
            "..%09;x/secret",
            "%c0%ae%c0%ae/secret",
            "..%c0%afsecret",
        ];
        for path in ambiguous {
            check(&rule, false, &[&format!("https://a.example/ok/{path}")]);
        }
        let plain = [
            "100%25",
            "%2541",
            "%25zz",
            "%2525",
            "%25252",
            "a%20b",
            "a;v=1/b;w=2",
            ";",
            "..a/b",
            "a..",
            "...",
            "a..;b",
            "%",
            "%2",
            "%zz",
            "%C3%A4",
            "x?y=..;/&z=%252e%252e/%2f",
        ];
        for path in plain {
            check(&rule, true, &[&format!("https://a.example/ok/{path}")]);
        }
        // A rule for the whole host has nothing that a path could leave.
        check(&whole, true, &["https://a.example/..;/x", "https://a.example/%252e%252e/x"]);
    }

    #[test]
    fn a_path_of_nested_escapes_is_read_in_one_pass() {
        let nested = format!("/ok/%{}2e", "25".repeat(500_000));
        assert_eq!(super::fully_decoded(&nested), b"/ok/.");
    }

    #[test]
    fn other_methods_are_not_covered() {
        let url = Url::parse("https://a.example/").expect("a URL");
        assert!(!rule("a.example", "/").covers(&Method::POST, &url));
    }

    #[test]
    fn hosts_are_read_strictly() {
        for text in ["", "*", "*.", "a.*.example", "*.10.0.0.1", "https://a.example", "a.example/x", "a b"] {
            assert!(text.parse::<HostPattern>().is_err(), "{text}");
        }
        assert_eq!("*.Example.COM.".parse::<HostPattern>().expect("a pattern").to_string(), "*.example.com");
    }
}
