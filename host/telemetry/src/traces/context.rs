//! The context of a trace in header fields (W3C Trace Context, level 1).

use std::collections::HashSet;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// The header field with the ids of the trace and of the calling span.
pub const TRACEPARENT: &str = "traceparent";
/// The header field with the data that tracing systems add to a trace.
pub const TRACESTATE: &str = "tracestate";

/// The maximum size of `tracestate`, in bytes. A longer one is dropped.
const MAX_STATE: usize = 512;
/// The maximum number of members of `tracestate`. A list with more members is dropped.
const MAX_MEMBERS: usize = 32;

/// The context of a span as the values of the fields [`TRACEPARENT`] and [`TRACESTATE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceFields {
    /// The value of `traceparent`.
    pub parent: String,
    /// The value of `tracestate`; `None` if there is none.
    pub state: Option<String>,
}

impl TraceFields {
    pub(crate) fn of(context: &SpanContext) -> Self {
        let flags = u8::from(context.is_sampled());
        let parent = format!("00-{}-{}-{flags:02x}", context.trace_id(), context.span_id());
        let state = Some(context.trace_state().header()).filter(|state| !state.is_empty());
        Self { parent, state }
    }

    /// Sets both fields. Fields that `headers` has already are replaced.
    pub fn insert_into(&self, headers: &mut HeaderMap) {
        let fields = [(TRACEPARENT, Some(&self.parent)), (TRACESTATE, self.state.as_ref())];
        for (name, value) in fields {
            let name = HeaderName::from_static(name);
            headers.remove(&name);
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                headers.insert(name, value);
            }
        }
    }
}

/// The context in the header fields of a request. `None` if `traceparent` is missing, invalid, or there twice.
#[must_use]
pub fn parent_in(headers: &HeaderMap) -> Option<SpanContext> {
    let mut parents = headers.get_all(TRACEPARENT).into_iter();
    let parent = parents.next()?.to_str().ok()?;
    if parents.next().is_some() {
        return None;
    }
    // Several lines are one list (RFC 9110 section 5.3). A line that is not ASCII makes the list invalid.
    let lines: Option<Vec<&str>> = headers.get_all(TRACESTATE).into_iter().map(|line| line.to_str().ok()).collect();
    let state = lines.unwrap_or_default().join(",");
    parent_of(parent, Some(&state))
}

/// The context that the values of `traceparent` and `tracestate` describe. `None` if `traceparent` is invalid. An
/// invalid `tracestate` is dropped.
#[must_use]
pub fn parent_of(parent: &str, state: Option<&str>) -> Option<SpanContext> {
    let mut fields = parent.splitn(5, '-');
    let version = hexadecimal(fields.next()?, 2)?;
    let trace_id = hexadecimal(fields.next()?, 32)?;
    let span_id = u64::try_from(hexadecimal(fields.next()?, 16)?).ok()?;
    let flags = hexadecimal(fields.next()?, 2)?;
    // Later versions may add fields. Version ff is invalid.
    let is_known = match version {
        0 => fields.next().is_none(),
        0xff => false,
        _ => true,
    };
    if !is_known || trace_id == 0 || span_id == 0 {
        return None;
    }
    // Only the lowest flag is defined. The others are not passed on.
    let flags = if flags & 1 == 1 { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
    let state = state.map(read_state).unwrap_or_default();
    Some(SpanContext::new(TraceId::from(trace_id), SpanId::from(span_id), flags, true, state))
}

/// Reads exactly `length` hexadecimal digits in lower case.
fn hexadecimal(digits: &str, length: usize) -> Option<u128> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_fit = digits.len() == length && digits.bytes().all(is_digit);
    if is_fit { u128::from_str_radix(digits, 16).ok() } else { None }
}

fn read_state(text: &str) -> TraceState {
    let is_printable = text.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte));
    if text.len() > MAX_STATE || !is_printable {
        return TraceState::NONE;
    }
    let members = text.split(',').filter(|member| !member.trim().is_empty());
    if members.count() > MAX_MEMBERS {
        return TraceState::NONE;
    }
    text.parse::<TraceState>().ok().filter(has_sound_members).unwrap_or(TraceState::NONE)
}

/// True if each member has a key of its own and a value. The parser has checked their characters.
fn has_sound_members(state: &TraceState) -> bool {
    let mut keys = HashSet::new();
    state.into_iter().all(|(key, value)| !key.is_empty() && !value.is_empty() && keys.insert(key))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::{TRACEPARENT, TRACESTATE, TraceFields, parent_in, parent_of};

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_trace_parent_is_read_by_the_rules_of_w3c() {
        let read = parent_of(PARENT, Some("vendor=a,other=b")).expect("valid");
        assert_eq!(read.trace_id().to_string(), TRACE);
        assert!(read.is_sampled() && read.is_remote());
        let fields = TraceFields { parent: PARENT.to_owned(), state: Some("vendor=a,other=b".to_owned()) };
        assert_eq!(TraceFields::of(&read), fields);
        for valid in [
            format!("00-{TRACE}-b7ad6b7169203331-00"),
            format!("00-{TRACE}-b7ad6b7169203331-03"),
            format!("01-{TRACE}-b7ad6b7169203331-01"),
            format!("cc-{TRACE}-b7ad6b7169203331-01-what-the-future-brings"),
        ] {
            assert!(parent_of(&valid, None).is_some(), "{valid}");
        }
        for invalid in [
            String::new(),
            "00".to_owned(),
            format!("ff-{TRACE}-b7ad6b7169203331-01"),
            format!("00-{TRACE}-b7ad6b7169203331-01-more"),
            format!("00-{TRACE}-b7ad6b7169203331-01-"),
            format!("00-{TRACE}-b7ad6b7169203331"),
            format!("00-{TRACE}-b7ad6b7169203331-1"),
            format!("00-{TRACE}-b7ad6b7169203331-0x"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
            format!("00-{}-b7ad6b7169203331-01", TRACE.to_uppercase()),
            format!(" 00-{TRACE}-b7ad6b7169203331-01"),
            format!("00-+{}-b7ad6b7169203331-01", TRACE.get(1..).expect("digits")),
            "00-ä".to_owned(),
        ] {
            assert!(parent_of(&invalid, None).is_none(), "{invalid:?}");
        }
    }

    #[test]
    fn a_trace_state_that_is_invalid_or_too_long_is_dropped_and_the_parent_stays() {
        let state = |text: &str| parent_of(PARENT, Some(text)).expect("valid").trace_state().header();
        assert_eq!(state("a=1, b=2 ,,c=3"), "a=1,b=2,c=3");
        let most = (0..32).map(|number| format!("k{number}=v")).collect::<Vec<_>>().join(",");
        assert_eq!(state(&most), most);
        let too_many = format!("{most},k32=v");
        let too_long = format!("a={}", "x".repeat(511));
        for dropped in
            [too_many.as_str(), &too_long, "a", "=1", "a=", "A=1", "a=1,a=2", "a=b=c", "a=\u{e9}", "a=1\nb=2"]
        {
            assert_eq!(state(dropped), "", "{dropped:?}");
        }
    }

    #[test]
    fn a_request_with_two_trace_parents_has_none() {
        let mut headers = HeaderMap::new();
        headers.append(TRACEPARENT, HeaderValue::from_static(PARENT));
        headers.append(TRACESTATE, HeaderValue::from_static("a=1"));
        headers.append(TRACESTATE, HeaderValue::from_static("b=2"));
        assert_eq!(parent_in(&headers).expect("valid").trace_state().header(), "a=1,b=2");
        headers.append(TRACEPARENT, HeaderValue::from_static(PARENT));
        assert!(parent_in(&headers).is_none());
    }

    #[test]
    fn the_fields_of_a_context_replace_those_that_are_there() {
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, HeaderValue::from_static("forged"));
        headers.insert(TRACESTATE, HeaderValue::from_static("forged=1"));
        TraceFields { parent: PARENT.to_owned(), state: None }.insert_into(&mut headers);
        assert_eq!(headers.get(TRACEPARENT).map(HeaderValue::as_bytes), Some(PARENT.as_bytes()));
        assert!(!headers.contains_key(TRACESTATE));
    }
}
