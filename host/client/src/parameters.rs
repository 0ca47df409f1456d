//! Service parameters of a call: extensions to activate, and further header fields (specification section 3.2.6).

use std::fmt;

use annex_protocol::ExtensionUri;
use annex_protocol::service::{A2A_EXTENSIONS, A2A_VERSION, VERSION, format_extensions};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::StreamRoom;

/// Header fields that the bindings set themselves.
const RESERVED: [&str; 10] = [
    A2A_EXTENSIONS,
    A2A_VERSION,
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// The parameters that are sent in addition to a request. Values can be added, but not replaced or removed.
#[derive(Clone, Default)]
pub struct ServiceParameters {
    extensions: Vec<ExtensionUri>,
    fields: HeaderMap,
    /// The limit on the bytes of the call's streams; `None` without a limit.
    room: Option<StreamRoom>,
}

/// The reason why a service parameter cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// The URI does not fit into a comma-separated header field.
    #[error("{:?} is not an absolute URI without spaces and commas", .uri.as_str())]
    ExtensionUri {
        /// The URI that the caller asked for.
        uri: ExtensionUri,
    },
    /// The header field is already set, for example by an interceptor.
    #[error("the header field {name} is set twice")]
    SetTwice {
        /// The name of the header field.
        name: HeaderName,
    },
    /// The binding sets this field itself.
    #[error("the header field {name} cannot be set, the binding does that")]
    Reserved {
        /// The name of the header field.
        name: HeaderName,
    },
}

impl ServiceParameters {
    /// Requests an extension. Requesting it twice has no further effect.
    ///
    /// # Errors
    /// When `uri` is not an absolute URI of printable ASCII, or contains a comma.
    pub fn activate(&mut self, uri: ExtensionUri) -> Result<(), ParameterError> {
        let text = uri.as_str();
        // The URIs share one header field, separated by commas, so a comma inside a URI would split it.
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
        if !is_plain || !text.contains(':') {
            return Err(ParameterError::ExtensionUri { uri });
        }
        if !self.extensions.contains(&uri) {
            self.extensions.push(uri);
        }
        Ok(())
    }

    /// Adds a header field, such as a credential. gRPC sends the field as metadata.
    ///
    /// # Errors
    /// When the field is already set, or the binding sets this field itself.
    pub fn set_field(&mut self, name: HeaderName, value: HeaderValue) -> Result<(), ParameterError> {
        // gRPC keeps the names that begin with `grpc-` for itself.
        if RESERVED.contains(&name.as_str()) || name.as_str().starts_with("grpc-") {
            return Err(ParameterError::Reserved { name });
        }
        if self.fields.contains_key(&name) {
            // The losing caller would not notice, and the field may be a credential.
            return Err(ParameterError::SetTwice { name });
        }
        self.fields.insert(name, value);
        Ok(())
    }

    /// Limits the bytes of the call's streams. Without a limit a stream may have any number of bytes.
    #[must_use]
    pub fn within(self, room: StreamRoom) -> Self {
        Self { room: Some(room), ..self }
    }

    pub(crate) fn room(&self) -> Option<StreamRoom> {
        self.room.clone()
    }

    /// The requested extensions, in order.
    pub fn extensions(&self) -> &[ExtensionUri] {
        &self.extensions
    }

    /// The added header fields.
    pub fn fields(&self) -> &HeaderMap {
        &self.fields
    }

    /// Writes all parameters as header fields, and adds the protocol version.
    pub(crate) fn into_headers(self) -> HeaderMap {
        let mut headers = self.fields;
        headers.insert(A2A_VERSION, HeaderValue::from_static(VERSION));
        // `activate` accepts only URIs that a header value can carry.
        if let Ok(value) = HeaderValue::try_from(format_extensions(&self.extensions))
            && !self.extensions.is_empty()
        {
            headers.insert(A2A_EXTENSIONS, value);
        }
        headers
    }
}

/// Prints the names of the header fields only, because their values are often credentials.
impl fmt::Debug for ServiceParameters {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<&str> = self.fields.keys().map(HeaderName::as_str).collect();
        let mut debug = formatter.debug_struct("ServiceParameters");
        debug.field("extensions", &self.extensions).field("fields", &fields).finish()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::{ParameterError, ServiceParameters};

    #[test]
    fn extensions_are_a_union_in_one_field() {
        let mut parameters = ServiceParameters::default();
        for uri in ["urn:b", "urn:a", "urn:b"] {
            parameters.activate(uri.into()).unwrap();
        }
        let headers = parameters.into_headers();
        assert_eq!(headers["a2a-extensions"], "urn:b,urn:a");
        assert_eq!(headers["a2a-version"], "1.0");
        assert!(!ServiceParameters::default().into_headers().contains_key("a2a-extensions"));
    }

    #[test]
    fn what_no_field_can_carry_is_no_extension() {
        for uri in ["urn:a,urn:b", "urn:a b", "plain", "", "urn:é", "urn:a\r\nx: y"] {
            let refused = ServiceParameters::default().activate(uri.into());
            assert_eq!(refused, Err(ParameterError::ExtensionUri { uri: uri.into() }));
        }
    }

    #[test]
    fn a_field_is_set_once_and_never_in_place_of_the_bindings() {
        let mut parameters = ServiceParameters::default();
        let value = HeaderValue::from_static("v");
        let name = |name: &'static str| http::HeaderName::from_static(name);
        parameters.set_field(name("x-key"), value.clone()).unwrap();
        let twice = parameters.set_field(name("x-key"), value.clone());
        assert_eq!(twice, Err(ParameterError::SetTwice { name: name("x-key") }));
        for reserved in ["a2a-version", "a2a-extensions", "content-type", "host", "grpc-timeout"] {
            let refused = parameters.set_field(name(reserved), value.clone());
            assert_eq!(refused, Err(ParameterError::Reserved { name: name(reserved) }));
        }
        assert_eq!(parameters.fields().len(), 1);
    }

    #[test]
    fn credentials_stay_out_of_debug_output() {
        let mut parameters = ServiceParameters::default();
        parameters.set_field(http::header::AUTHORIZATION, HeaderValue::from_static("Bearer secret")).unwrap();
        let shown = format!("{parameters:?}");
        assert!(shown.contains("authorization") && !shown.contains("secret"), "{shown}");
    }
}
