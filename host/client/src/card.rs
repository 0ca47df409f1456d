//! Agent Cards: their addresses, their signatures and their lifetimes (specification sections 8.2, 8.4 and 8.6).

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use annex_auth::signature::{self, VerifiedSignature};
use annex_protocol::service::{A2A_VERSION, VERSION};
use annex_protocol::{AgentCard, lenient, portable, v0_3};
use http::StatusCode;
use http::header::{ACCEPT, CACHE_CONTROL, DATE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use lru::LruCache;
use reqwest::Url;

use crate::ClientError;
use crate::config::ClientConfig;
use crate::error::{own_words, quoted};
use crate::http::{self as transport, Http, Response};

/// The largest card, in bytes. Smaller than the limit for answers, because cards are cached.
const MAX_CARD_BYTES: usize = 1 << 20;
/// The maximum number of bytes that are read from an error response.
const MAX_REASON_BYTES: usize = 4 << 10;
const CARD_PATH: &str = "/.well-known/agent-card.json";
/// The longest time that a card is cached, regardless of the agent's `max-age`.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// A card, with its text as received.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentCardDocument {
    /// The URL from which the card was read.
    pub url: Url,
    /// The card, decoded.
    pub card: AgentCard,
    /// The text as received.
    pub text: String,
    /// The valid signature, if the client has trusted keys.
    pub verified: Option<VerifiedSignature>,
    /// The time on the agent's clock, from the `Date` of its response.
    pub date: Option<SystemTime>,
}

/// A cache of cards by URL.
pub(crate) struct Cards(Mutex<LruCache<Url, CachedCard>>);

#[derive(Clone)]
struct CachedCard {
    document: Arc<AgentCardDocument>,
    etag: Option<HeaderValue>,
    fresh_until: Instant,
}

impl Cards {
    pub(crate) fn new(capacity: NonZeroUsize) -> Self {
        Self(Mutex::new(LruCache::new(capacity)))
    }

    /// The card at `address`, from the cache or from the agent.
    pub(crate) async fn get(
        &self,
        http: &Http,
        config: &ClientConfig,
        address: &str,
    ) -> Result<Arc<AgentCardDocument>, ClientError> {
        let url = card_url(address)?;
        // The lock is released during the request, so that a slow agent delays no other call. Two callers may then both
        // send a request.
        let kept = self.kept(&url);
        if let Some(kept) = kept.as_ref().filter(|kept| Instant::now() < kept.fresh_until) {
            return Ok(Arc::clone(&kept.document));
        }
        let etag = kept.as_ref().and_then(|kept| kept.etag.as_ref());
        let response = ask(http, config, &url, etag).await?;
        let headers = response.headers().clone();
        let document = match (response.status(), kept) {
            // A 304 without a cached card confirms nothing, and ends below as an error.
            (StatusCode::NOT_MODIFIED, Some(kept)) => kept.document,
            (status, _) if status.is_success() => Arc::new(read(http, config, url, response).await?),
            (status, _) => {
                // Without the body, the status alone must explain the error.
                let body = http.text_of(response, MAX_REASON_BYTES).await.unwrap_or_default();
                let (url, words) = (url.into(), own_words(&body));
                let is_served_later = matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
                return Err(if is_served_later {
                    ClientError::NotServed { url, status, words }
                } else {
                    ClientError::NoCard { url, status, words }
                });
            }
        };
        // A card whose signature does not hold has failed above, so that no forged one is ever kept.
        self.keep(&headers, &document);
        Ok(document)
    }

    fn kept(&self, url: &Url) -> Option<CachedCard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(url).cloned()
    }

    fn keep(&self, headers: &HeaderMap, document: &Arc<AgentCardDocument>) {
        let mut cards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(age) = max_age(headers) else {
            // `no-store` holds for an older copy as well.
            cards.pop(&document.url);
            return;
        };
        // A response without an ETag either confirms the cached card or brings a new one, to which the old ETag does
        // not belong.
        let before = cards.peek(&document.url).filter(|kept| Arc::ptr_eq(&kept.document, document));
        let etag = headers.get(ETAG).cloned().or_else(|| before.and_then(|kept| kept.etag.clone()));
        let kept = CachedCard { document: Arc::clone(document), etag, fresh_until: Instant::now() + age };
        cards.put(document.url.clone(), kept);
    }
}

async fn ask(
    http: &Http,
    config: &ClientConfig,
    url: &Url,
    etag: Option<&HeaderValue>,
) -> Result<Response, ClientError> {
    http.check(url)?;
    // Official clients send the version with the request for the card too.
    let request = http.client.get(url.clone()).header(ACCEPT, "application/json").header(A2A_VERSION, VERSION);
    let request = etag.into_iter().fold(request, |request, etag| request.header(IF_NONE_MATCH, etag));
    transport::send(url.as_str(), request.timeout(config.card_timeout)).await
}

async fn read(
    http: &Http,
    config: &ClientConfig,
    url: Url,
    response: Response,
) -> Result<AgentCardDocument, ClientError> {
    let date = response.headers().get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    let text = http.text_of(response, MAX_CARD_BYTES).await?;
    let not_a_card = |source| ClientError::NotACard { url: url.to_string(), source };
    // The text is kept unchanged, because the signature covers it.
    let repaired = portable::repaired(&text);
    let (card, left_out) = lenient::reading(|| v0_3::read_card(repaired.as_deref().unwrap_or(&text)));
    let card = card.map_err(not_a_card)?;
    if !left_out.is_empty() {
        let fields = quoted(&left_out.join("; "));
        tracing::warn!(%url, fields, "fields of the agent card cannot be read and are ignored");
    }
    // The signature is checked over the text, because it covers fields that this client may not know.
    let verified = config.trusted_keys.as_ref().map(|keys| signature::verify(&text, keys)).transpose();
    let verified = verified.map_err(|source| ClientError::Untrusted { url: url.to_string(), source })?;
    Ok(AgentCardDocument { url, card, text, verified, date })
}

/// The time for which a card may be cached; `None` if it must not be. Without a `max-age` the time is zero, so that the
/// card is revalidated at each use.
fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let directives: Vec<String> =
        values.flat_map(|value| value.split(',')).map(|directive| directive.trim().to_ascii_lowercase()).collect();
    let says = |name: &str| directives.iter().any(|directive| directive == name);
    if says("no-store") {
        return None;
    }
    let seconds = directives.iter().find_map(|directive| directive.strip_prefix("max-age=")?.parse().ok());
    // `no-cache` allows caching, but requires revalidation at each use (RFC 9111, section 5.2.2.4).
    let seconds = seconds.filter(|_| !says("no-cache")).unwrap_or_default();
    Some(Duration::from_secs(seconds).min(MAX_AGE))
}

fn card_url(address: &str) -> Result<Url, ClientError> {
    let url = Url::parse(address).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let mut url = url.ok_or_else(|| ClientError::Address { address: address.to_owned() })?;
    if !url.path().ends_with(".json") {
        url.set_path(&format!("{}{CARD_PATH}", url.path().trim_end_matches('/')));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderMap;
    use http::header::{CACHE_CONTROL, HeaderValue};

    use super::{MAX_AGE, card_url, max_age};

    #[test]
    fn the_card_is_at_the_well_known_path_below_the_base_url() {
        let check = |address: &str, expected: &str| assert_eq!(card_url(address).unwrap().as_str(), expected);
        check("http://a.example", "http://a.example/.well-known/agent-card.json");
        check("https://a.example:8080/tenants/b/", "https://a.example:8080/tenants/b/.well-known/agent-card.json");
    }

    #[test]
    fn a_url_that_ends_in_json_is_the_card_itself() {
        assert_eq!(
            card_url("http://a.example/my/card.json?v=1").unwrap().as_str(),
            "http://a.example/my/card.json?v=1"
        );
    }

    #[test]
    fn an_address_without_a_scheme_is_refused_with_an_example() {
        for address in ["localhost:9999", "a.example", "", "ftp://a.example"] {
            let error = card_url(address).unwrap_err().to_string();
            assert!(error.contains("http://127.0.0.1:9999"), "{address}: {error}");
        }
    }

    #[test]
    fn an_answer_holds_as_long_as_it_says_and_a_day_at_most() {
        let check = |values: &[&'static str], expected: Option<u64>| {
            let headers: HeaderMap = HeaderMap::from_iter([]);
            let headers = values.iter().fold(headers, |mut headers, value| {
                headers.append(CACHE_CONTROL, HeaderValue::from_static(value));
                headers
            });
            assert_eq!(max_age(&headers), expected.map(Duration::from_secs), "{values:?}");
        };
        check(&[], Some(0));
        check(&["public, max-age=60"], Some(60));
        check(&["public", "Max-Age=60"], Some(60));
        check(&["max-age=60, no-cache"], Some(0));
        check(&["max-age=60, no-store"], None);
        check(&["max-age=-1"], Some(0));
        check(&["max-age=99999999999"], Some(MAX_AGE.as_secs()));
    }
}
