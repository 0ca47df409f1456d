//! Text of a config into its reader: either a config or an error of one readable text, never a panic or a hang. Files
//! that the config names are not opened.

#![no_main]

use std::path::Path;

use annex_server::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(error) = Config::parse(Path::new("fuzz.toml"), text) {
        assert!(error.to_string().starts_with("fuzz.toml: "), "{error}");
    }
});
