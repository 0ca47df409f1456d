//! A schema and an instance, one after the other with a zero byte between them: validation costs no more than the bound
//! computed when the schema was accepted.
#![no_main]

use std::time::Duration;

use annex_schema::Schema;
use libfuzzer_sys::fuzz_target;

/// The sanitizer, and code that is not optimised across crates.
const SLOWER: u32 = 40;
/// Time that is not the schema's: a tick of the kernel, a page fault.
const GRACE: Duration = Duration::from_millis(50);
/// Time of a core that compiling a schema may take.
const MAX_COMPILE: Duration = Duration::from_secs(1);
/// An instance is written this often into an array, so that short inputs make long instances.
const COPIES: usize = 500;

fn cpu() -> Duration {
    let counted = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanos = counted.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.expect("nanoseconds"))
}

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Some((schema, instance)) = text.split_once('\0') else { return };
    let began = cpu();
    let compiled = Schema::compile(schema);
    let took = cpu().saturating_sub(began);
    assert!(took <= MAX_COMPILE * SLOWER + GRACE, "compiling took {took:?}");
    let Ok(compiled) = compiled else { return };
    let many = format!("[{}]", vec![instance; COPIES].join(","));
    for instance in [instance, &many] {
        let began = cpu();
        let Ok(bound) = compiled.bound(instance) else { continue };
        let parsed = cpu();
        let _ = compiled.validate(instance);
        let took = cpu().saturating_sub(parsed);
        let parsing = parsed.saturating_sub(began);
        assert!(took <= bound * SLOWER + parsing * 3 + GRACE, "{took:?} of {bound:?}");
    }
});
