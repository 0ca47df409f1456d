//! Reads header fields `Link` (RFC 8288, section 3), by which a list says where its next page is.

use reqwest::header::{HeaderMap, LINK};

/// The target of the link to the next page. `None` on the last page.
pub(crate) fn next_target(headers: &HeaderMap) -> Option<&str> {
    headers.get_all(LINK).iter().filter_map(|field| field.to_str().ok()).find_map(next_in)
}

/// The target of the link to the next page in one field, which can have several links.
fn next_in(field: &str) -> Option<&str> {
    let mut rest = field;
    loop {
        let (target, after) = rest.trim_start_matches([' ', '\t', ',']).strip_prefix('<')?.split_once('>')?;
        let (parameters, further) = after.split_at(length_of_parameters(after));
        if parameters.split(';').any(is_next) {
            return Some(target);
        }
        rest = further;
    }
}

/// The number of bytes before the comma that ends a link. A comma in quotes belongs to a parameter.
fn length_of_parameters(text: &str) -> usize {
    let mut is_quoted = false;
    let ends = |character: char| {
        is_quoted ^= character == '"';
        character == ',' && !is_quoted
    };
    text.find(ends).unwrap_or(text.len())
}

/// True for `rel=next` and `rel="next"`, where `next` may be one of several relations.
fn is_next(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else { return false };
    let mut relations = value.trim().trim_matches('"').split_ascii_whitespace();
    name.trim().eq_ignore_ascii_case("rel") && relations.any(|relation| relation.eq_ignore_ascii_case("next"))
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderMap, HeaderValue, LINK};

    use super::next_target;

    fn check(fields: &[&str], expected: Option<&str>) {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(LINK, HeaderValue::from_str(field).unwrap());
        }
        assert_eq!(next_target(&headers), expected, "{fields:?}");
    }

    #[test]
    fn the_next_page_is_found_among_all_links_of_all_fields() {
        check(&[], None);
        check(&["</v2/a?last=1>; rel=\"next\""], Some("/v2/a?last=1"));
        check(&["</a>;rel=next"], Some("/a"));
        check(&["</a>; rel=\"prev\"", "</b>; rel=\"next\""], Some("/b"));
        check(&["</a>; title=\"x, <y>\"; rel=first, </b?c=1,2>; REL=\"last NEXT\""], Some("/b?c=1,2"));
        check(&["</next>; rel=\"prev\""], None);
        check(&["</a>; rel=\"nextpage\"; title=\"rel=next\""], None);
        check(&["/a; rel=next"], None);
        check(&["</a; rel=next"], None);
    }
}
