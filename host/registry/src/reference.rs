//! References to components, such as `oci://registry.example/acme/redact:1.2`.

use std::fmt;
use std::str::FromStr;

use url::Url;

use crate::digest::Digest;

const SCHEME: &str = "oci://";
/// The name of Docker Hub in references.
const DOCKER_HUB: &str = "docker.io";
/// The host that answers for Docker Hub.
const DOCKER_HUB_HOST: &str = "registry-1.docker.io";
/// The maximum length of a host with its port.
const MAX_HOST: usize = 255;
/// The maximum length of the path of a repository.
const MAX_REPOSITORY: usize = 255;
/// The maximum length of a tag (OCI distribution specification, "Pulling manifests").
const MAX_TAG: usize = 128;

/// A component in a registry: `oci://HOST[:PORT]/PATH[:TAG][@sha256:HEX]`. With a digest, the tag is only for people.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// The reasons why a text is no reference.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no reference: {reason}; write it like oci://registry.example/acme/redact:1.2")]
pub struct ReferenceError {
    text: String,
    reason: &'static str,
}

/// True if the value of `component` in a config names a component in a registry.
#[must_use]
pub fn is_reference(component: &str) -> bool {
    component.starts_with(SCHEME)
}

/// True for each name of Docker Hub.
pub(crate) fn is_docker_hub(registry: &str) -> bool {
    matches!(registry, DOCKER_HUB | DOCKER_HUB_HOST | "index.docker.io")
}

/// The host to call for a registry.
pub(crate) fn called_host(registry: &str) -> &str {
    if is_docker_hub(registry) { DOCKER_HUB_HOST } else { registry }
}

impl Reference {
    /// The host of the registry, with its port if the reference has one.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The path of the repository.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag. A reference without a tag and without a digest has the tag `latest`.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest of the manifest.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The same reference with this digest.
    #[must_use]
    pub fn with_digest(&self, digest: &Digest) -> Self {
        Self { digest: Some(digest.clone()), ..self.clone() }
    }

    /// The registry and the path, such as `registry.example/acme/redact`. Each name of Docker Hub becomes `docker.io`.
    #[must_use]
    pub fn place(&self) -> String {
        let registry = if is_docker_hub(&self.registry) { DOCKER_HUB } else { &self.registry };
        format!("{registry}/{}", self.repository)
    }

    /// The last part of the URL of the manifest: the digest, or else the tag.
    pub(crate) fn target(&self) -> &str {
        self.digest.as_ref().map_or_else(|| self.tag.as_deref().unwrap_or("latest"), Digest::as_str)
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    /// Reads a reference with or without `oci://`.
    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let wrong = |reason| ReferenceError { text: annex_text::line_within(text, MAX_REPOSITORY), reason };
        let rest = text.strip_prefix(SCHEME).unwrap_or(text);
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => {
                let digest =
                    digest.parse().map_err(|_| wrong("its digest is not sha256: and 64 hexadecimal digits"))?;
                (rest, Some(digest))
            }
            None => (rest, None),
        };
        let (registry, path) = rest.split_once('/').ok_or_else(|| wrong("it has no host and path"))?;
        if !is_host(registry) {
            return Err(wrong("its host is not a name or an address in lower case, without the port 443"));
        }
        let (repository, tag) = match path.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag.to_owned())),
            None => (path, None),
        };
        if repository.len() > MAX_REPOSITORY || !repository.split('/').all(is_component) {
            return Err(wrong("its path has other characters than a-z, 0-9 and single . _ - between them"));
        }
        if tag.as_deref().is_some_and(|tag| !is_tag(tag)) {
            return Err(wrong("its tag has other characters than letters, digits, . _ and -, or more than 128"));
        }
        let tag = tag.or_else(|| digest.is_none().then(|| "latest".to_owned()));
        Ok(Self { registry: registry.to_owned(), repository: repository.to_owned(), tag, digest })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{SCHEME}{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(formatter, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(formatter, "@{digest}"),
            None => Ok(()),
        }
    }
}

fn is_host(host: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'[' | b']');
    // One registry has one spelling, because configs, locks and rules of trust are compared with it.
    let is_alone = |url: Url| url.path() == "/" && url.port() != Some(0) && url.authority() == host;
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    host.len() <= MAX_HOST
        && host.bytes().all(is_inner)
        && !host.starts_with(['-', '.'])
        && !name.ends_with('.')
        && Url::parse(&format!("https://{host}/")).is_ok_and(is_alone)
}

/// True for a part of a repository's path (OCI distribution specification, "Pulling manifests").
fn is_component(part: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut between = String::new();
    let (Some(first), Some(last)) = (part.bytes().next(), part.bytes().last()) else { return false };
    if !is_inner(first) || !is_inner(last) {
        return false;
    }
    let is_separator = |text: &str| matches!(text, "" | "." | "_" | "__") || text.bytes().all(|byte| byte == b'-');
    for character in part.chars() {
        if u8::try_from(character).is_ok_and(is_inner) {
            if !is_separator(&between) {
                return false;
            }
            between.clear();
        } else {
            between.push(character);
        }
    }
    true
}

fn is_tag(tag: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    tag.len() <= MAX_TAG && tag.bytes().all(is_inner) && !tag.is_empty() && !tag.starts_with(['.', '-'])
}

#[cfg(test)]
mod tests {
    use super::{Reference, called_host};
    use crate::digest::Digest;

    #[test]
    fn a_reference_is_written_as_it_is_read() {
        let digest = Digest::of(b"");
        for (text, written) in [
            ("oci://registry.example/acme/redact:1.2", "oci://registry.example/acme/redact:1.2"),
            ("registry.example/redact", "oci://registry.example/redact:latest"),
            ("oci://localhost:5000/a/b/c", "oci://localhost:5000/a/b/c:latest"),
            ("oci://[::1]:5000/a", "oci://[::1]:5000/a:latest"),
            ("oci://127.0.0.1:5000/a__b.c---d:V_1", "oci://127.0.0.1:5000/a__b.c---d:V_1"),
        ] {
            assert_eq!(text.parse::<Reference>().expect(text).to_string(), written);
        }
        let pinned = format!("oci://registry.example/a@{digest}");
        let reference: Reference = pinned.parse().expect("a reference");
        assert_eq!((reference.to_string(), reference.tag(), reference.target()), (pinned, None, digest.as_str()));
    }

    #[test]
    fn docker_hub_is_one_place_and_one_host_with_three_names() {
        for name in ["docker.io", "index.docker.io", "registry-1.docker.io"] {
            let text = format!("oci://{name}/acme/redact:1");
            let reference: Reference = text.parse().expect("a reference");
            assert_eq!((reference.place().as_str(), reference.to_string()), ("docker.io/acme/redact", text));
            assert_eq!(called_host(name), "registry-1.docker.io");
        }
        let other: Reference = "oci://x.docker.io/acme/redact:1".parse().expect("a reference");
        assert_eq!((other.place().as_str(), called_host("x.docker.io")), ("x.docker.io/acme/redact", "x.docker.io"));
    }

    #[test]
    fn what_is_no_reference_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "no host"),
            ("oci://registry.example", "no host and path"),
            ("oci://registry.example/", "its path"),
            ("oci:///a", "its host"),
            ("oci://user:pw@registry.example/a", "its digest"),
            ("oci://registry.example:0/a", "its host"),
            ("oci://registry.example:99999/a", "its host"),
            ("oci://-x/a", "its host"),
            // Other spellings of one registry.
            ("oci://Registry.example/a", "its host"),
            ("oci://registry.example./a", "its host"),
            ("oci://registry.example.:5000/a", "its host"),
            ("oci://registry.example:443/a", "its host"),
            ("oci://registry.example:05000/a", "its host"),
            ("oci://registry.example:/a", "its host"),
            ("oci://127.1:5000/a", "its host"),
            ("oci://0x7f000001/a", "its host"),
            ("oci://[0:0::1]:5000/a", "its host"),
            ("oci://registry.example/../a", "its path"),
            ("oci://registry.example/A", "its path"),
            ("oci://registry.example/a//b", "its path"),
            ("oci://registry.example/a..b", "its path"),
            ("oci://registry.example/a%2f", "its path"),
            ("oci://registry.example/a?b", "its path"),
            ("oci://registry.example/a:", "its tag"),
            ("oci://registry.example/a:.x", "its tag"),
            ("oci://registry.example/a:x/y", "its tag"),
            ("oci://registry.example/a@sha256:12", "its digest"),
        ] {
            let error = text.parse::<Reference>().expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
