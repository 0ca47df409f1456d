//! Queries of URLs.

/// Encodes a query or a form.
#[must_use]
pub fn encode(fields: &[(&str, &str)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    fields.join("&")
}

/// The text with all characters escaped but the unreserved ones (RFC 3986, section 2.3).
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// The decoded value of the first field `name` in the query of a URL.
#[must_use]
pub fn field(url: &str, name: &str) -> Option<String> {
    let (_, query) = url.split_once('?')?;
    let query = query.split('#').next().unwrap_or_default();
    let mut fields = query.split('&').filter_map(|field| field.split_once('='));
    fields.find(|(found, _)| *found == name).and_then(|(_, value)| decoded(value))
}

/// `None` if the text is no UTF-8 or has an escape that is none.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => digit(rest.next()?)? << 4 | digit(rest.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}
