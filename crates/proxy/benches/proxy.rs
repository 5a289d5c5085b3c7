//! CPU time of the data plane against floors that do nothing else, and against nginx and Envoy.
//!
//! Everything runs on one loopback in a network namespace of its own, contestants as processes of their own on
//! processor 1. Datagrams come in volleys from a sender on the same processor, so that each contestant always has a
//! backlog; bytes of streams come from and go to processor 0. A round sends the same load through both sides in
//! random order, and a result is the median of the rounds' ratios of CPU time per packet that arrived.
#![expect(
    unsafe_code,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    reason = "a benchmark: raw system calls, programs that are started, and figures made of counts"
)]

#[path = "proxy/bare.rs"]
mod bare;
#[path = "proxy/contestant.rs"]
mod contestant;
#[path = "proxy/other_build.rs"]
mod other_build;
#[path = "proxy/place.rs"]
mod place;
#[path = "proxy/roles.rs"]
mod roles;
#[path = "proxy/round_trips.rs"]
mod round_trips;
#[path = "proxy/rows.rs"]
mod rows;
#[path = "proxy/sessions.rs"]
mod sessions;
#[path = "proxy/setting.rs"]
mod setting;
#[path = "proxy/streams.rs"]
mod streams;
#[path = "proxy/udp.rs"]
mod udp;
#[path = "proxy/websockets.rs"]
mod websockets;

use portolan_bench::Bench;
use std::process::ExitCode;

/// Rounds of each row at least.
const ROUNDS: usize = 10;

fn main() -> anyhow::Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("--role") => roles::play(&words[1..]).map(|()| ExitCode::SUCCESS),
        Some("--inside") => {
            place::own_network()?;
            rows::run(Bench::with_arguments("proxy", words.into_iter().skip(1))?.with_rounds(ROUNDS))
        }
        _ => place::run_inside("--inside"),
    }
}
