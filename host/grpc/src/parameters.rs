//! The service parameters of a call, carried as gRPC metadata (specification section 10.2).

use annex_protocol::ExtensionUri;
use annex_protocol::service::{A2A_EXTENSIONS, A2A_VERSION, format_extensions, parse_extensions};
use annex_protocol::v0_3::X_A2A_EXTENSIONS;
use http::{Extensions, HeaderName};
use tonic::metadata::MetadataMap;

use crate::{CallParameters, ServiceVersion};

/// The suffix of metadata names whose values are binary.
const BINARY_SUFFIX: &str = "-bin";

pub(crate) fn read(service: ServiceVersion, metadata: MetadataMap, context: Extensions) -> CallParameters {
    let mut headers = metadata.into_headers();
    let is_binary = |name: &&HeaderName| name.as_str().ends_with(BINARY_SUFFIX);
    let binary: Vec<HeaderName> = headers.keys().filter(is_binary).cloned().collect();
    for name in binary {
        // Their values are base64 of bytes. A2A has no binary headers, and the operations do not read any.
        headers.remove(name);
    }
    // A value that is not text is made text, so that the version check refuses it. Left out, it would count as missing.
    let version = headers.get(A2A_VERSION).map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned());
    // 0.3 names the field with `X-`. The name of 1.0 is accepted as well, as on the other bindings of 0.3.
    let names: &[&str] = match service {
        ServiceVersion::V1_0 => &[A2A_EXTENSIONS],
        ServiceVersion::V0_3 => &[X_A2A_EXTENSIONS, A2A_EXTENSIONS],
    };
    let values = names.iter().flat_map(|name| headers.get_all(*name));
    let extensions = values.filter_map(|value| value.to_str().ok());
    CallParameters {
        service,
        version: version.filter(|version| !version.is_empty()),
        extensions: parse_extensions(extensions),
        headers,
        context,
    }
}

/// Adds the URIs of the active extensions to the metadata of a response. Adds nothing if no extension was active, or if
/// a URI has characters that metadata cannot carry.
pub(crate) fn write(service: ServiceVersion, active: &[ExtensionUri], metadata: &mut MetadataMap) {
    if active.is_empty() {
        return;
    }
    if let Ok(value) = format_extensions(active).parse() {
        // One entry for all, as in the header of the other bindings.
        let name = match service {
            ServiceVersion::V1_0 => A2A_EXTENSIONS,
            ServiceVersion::V0_3 => X_A2A_EXTENSIONS,
        };
        metadata.insert(name, value);
    }
}
