//! One target under libFuzzer: `portolan-fuzz --target=NAME [libFuzzer's own words]`.
#![no_main]
#![expect(unsafe_code, reason = "libFuzzer calls by C names, which its macro exports")]

use std::sync::OnceLock;

use portolan_fuzz::{Run, find};

static TARGET: OnceLock<Run> = OnceLock::new();

libfuzzer_sys::fuzz_target!(init: {
    // libFuzzer passes over words that begin with two dashes
    let name = std::env::args().find_map(|word| word.strip_prefix("--target=").map(str::to_owned));
    let run = name.as_deref().and_then(find).expect("--target= names a target");
    TARGET.set(run).expect("libFuzzer starts once");
}, |bytes: &[u8]| TARGET.get().expect("it was set at the start")(bytes));
