//! The adapter for modules of Go and C, which import WASI preview 1.
//!
//! `adapter.wat` is the source, and `world.wit` lists the allowed imports. The folder of these two files also has four
//! compiled variants, because a component requests the grants `clock` and `random` only if its world imports them.
//! `UPDATE_ADAPTER=1 cargo test adapter` compiles the variants again.

/// The module name of WASI preview 1's imports.
pub(super) const PREVIEW1: &str = "wasi_snapshot_preview1";

/// The variant of the adapter for a world with these imports. An import is a text such as
/// `wasi:clocks/wall-clock@0.2.12`. `imports` also lists the dependencies of imports, such as
/// `wasi:clocks/monotonic-clock` for `wasi:http/types`. That dependency needs no clock in the adapter.
pub(super) fn for_imports<'a>(mut imports: impl Iterator<Item = &'a str> + Clone) -> &'static [u8] {
    let has_random = imports.clone().any(|import| import.starts_with("wasi:random/random@"));
    let has_clock = imports.any(|import| import.starts_with("wasi:clocks/wall-clock@"));
    match (has_clock, has_random) {
        (false, false) => include_bytes!("../../adapter/adapter.wasm"),
        (true, false) => include_bytes!("../../adapter/adapter-clock.wasm"),
        (false, true) => include_bytes!("../../adapter/adapter-random.wasm"),
        (true, true) => include_bytes!("../../adapter/adapter-clock-random.wasm"),
    }
}

#[cfg(test)]
mod tests {
    use wit_bindgen_core::wit_parser::Resolve;
    use wit_component::{StringEncoding, embed_component_metadata};

    use super::*;

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/adapter");
    const PACKAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit/annex-extension@0.1.0/deps");

    /// The text of the variant with these features. The head of `adapter.wat` describes its `;; if` lines.
    fn variant(text: &str, features: &[&str]) -> String {
        let mut lines = String::new();
        let mut is_left_out = false;
        for line in text.lines() {
            match line.trim().strip_prefix(";; ").unwrap_or_default().split(' ').collect::<Vec<_>>()[..] {
                ["if", feature] => is_left_out = !features.contains(&feature),
                ["else"] => is_left_out = !is_left_out,
                ["end"] => is_left_out = false,
                _ if is_left_out => {}
                _ => lines += &format!("{line}\n"),
            }
        }
        lines
    }

    fn build(features: &[&str]) -> Vec<u8> {
        let text = std::fs::read_to_string(format!("{FOLDER}/adapter.wat")).expect("it works");
        let mut module = wat::parse_str(variant(&text, features)).expect("it works");
        wasmparser::validate(&module).expect("it works");
        let mut resolve = Resolve::default();
        for package in ["io", "clocks", "random"] {
            resolve.push_path(format!("{PACKAGES}/{package}.wit")).expect("a package");
        }
        resolve.push_path(format!("{FOLDER}/cli.wit")).expect("a package");
        let (package, _) = resolve.push_path(format!("{FOLDER}/world.wit")).expect("a package");
        let world = resolve.select_world(&[package], None).expect("a world");
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false).expect("a module");
        module
    }

    #[test]
    fn each_variant_is_built_from_the_source() {
        let clock = "wasi:clocks/wall-clock@0.2.12";
        let random = "wasi:random/random@0.2.12";
        for (name, features, imports) in [
            ("adapter", &[][..], &["wasi:clocks/monotonic-clock@0.2.12"][..]),
            ("adapter-clock", &["clock"], &[clock]),
            ("adapter-random", &["random"], &[random]),
            ("adapter-clock-random", &["clock", "random"], &[random, clock]),
        ] {
            let built = build(features);
            if std::env::var_os("UPDATE_ADAPTER").is_some() {
                std::fs::write(format!("{FOLDER}/{name}.wasm"), &built).expect("it is written");
                // The bytes that the test compares with were compiled in before.
                continue;
            }
            assert!(for_imports(imports.iter().copied()) == built, "{name}.wasm is not what adapter.wat says");
        }
    }
}
