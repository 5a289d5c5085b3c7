//! CPU time per UDP packet, ours against a bare forwarder that does nothing else.
//!
//! Each round runs every contestant once, in random order, on the same paced load; a result is the median of the
//! rounds' ratios. CPU time is the scheduler's own account of the forwarding thread.
#![expect(
    unsafe_code,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    reason = "a benchmark: raw socket calls, and a table on stdout"
)]

mod bare;
mod load;

use bare::{Bare, Variant};
use load::{Load, Measured};
use portolan_proxy::config::json::Json;
use portolan_proxy::io::sys::{Buffers, pin_to};
use portolan_proxy::io::{DataPlane, Options};
use portolan_proxy::rest::{Access, Api, Settings};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

struct Contestant {
    name: &'static str,
    port: u16,
    thread: u32,
    costs: Vec<f64>,
    lost: Vec<f64>,
}

/// The load's shape: name, bytes, packets of a flow in a row, and whether they leave the sender as one.
const LOADS: [(&str, usize, usize, bool); 5] = [
    ("64 B single", 64, 1, false),
    ("1200 B single", 1200, 1, false),
    ("64 B bursts of 8", 64, 8, false),
    ("64 B GSO of 8", 64, 8, true),
    ("64 B GSO of 32", 64, 32, true),
];

fn main() {
    let rounds = number("--rounds", 10);
    let seconds = number("--ms", 1000);
    let flows = number("--flows", 8) as usize;
    let rate = number("--rate", 80_000);
    let only = std::env::args().skip_while(|arg| arg != "--load").nth(1);
    pin_to(0);
    let sink = load::Sink::start(true);
    let plane = Ours::start(sink.port);
    println!("{:<18} {:<14} {:>9} {:>7} {:>15} {:>7}", "load", "contestant", "ns/packet", "ratio", "min..max", "loss");
    for (name, size, burst, gso) in LOADS {
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let mut contestants = vec![contestant("bare", Bare::start(Variant::Plain, sink.port))];
        contestants.push(contestant("bare grouping", Bare::start(Variant::Grouping, sink.port)));
        contestants.push(contestant("bare GRO+GSO", Bare::start(Variant::Coalesced, sink.port)));
        contestants.push(contestant("ours", (plane.port, plane.thread)));
        let load = Load { size, burst, gso, flows, rate, time: Duration::from_millis(seconds) };
        for round in 0..rounds {
            let count = contestants.len();
            for i in 0..count {
                let at = (i * 3 + round as usize) % count;
                let Measured { cost, lost } = load.run(contestants[at].port, contestants[at].thread, &sink);
                contestants[at].costs.push(cost);
                contestants[at].lost.push(lost);
            }
        }
        report(name, &contestants);
    }
    plane.plane.stop();
}

fn contestant(name: &'static str, (port, thread): (u16, u32)) -> Contestant {
    Contestant { name, port, thread, costs: Vec::new(), lost: Vec::new() }
}

/// Each contestant against the plain bare forwarder: packets per CPU-second, so more is better.
fn report(load: &str, contestants: &[Contestant]) {
    for contestant in contestants {
        let mut ratios: Vec<f64> =
            contestants[0].costs.iter().zip(&contestant.costs).map(|(bare, own)| bare / own).collect();
        ratios.sort_by(f64::total_cmp);
        let (low, high) = (ratios[0], ratios[ratios.len() - 1]);
        let loss = median(&contestant.lost) * 100.0;
        println!(
            "{load:<18} {:<14} {:>9.0} {:>7.2} {:>15} {loss:>6.2}%",
            contestant.name,
            median(&contestant.costs),
            median(&ratios),
            format!("{low:.2}..{high:.2}")
        );
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn number(flag: &str, default: u64) -> u64 {
    let value = std::env::args().skip_while(|arg| arg != flag).nth(1);
    value.and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Our data plane with one worker on processor 1.
struct Ours {
    plane: Arc<DataPlane>,
    port: u16,
    thread: u32,
}

impl Ours {
    fn start(sink: u16) -> Self {
        let before = load::threads();
        let options = Options { workers: 1, buffers: Buffers::System, ..Options::default() };
        let plane = DataPlane::start(options).expect("workers start");
        let port = load::free_port();
        let cluster = json!({ "spec": { "protocol": "UDP", "port": sink }, "endpoints": [{ "spec": { "address": "127.0.0.1" } }] });
        let listener = json!({ "name": "l", "spec": { "protocol": "UDP", "port": port, "address": "127.0.0.1" },
            "rules": [{ "action": { "route": { "destination": cluster } } }] });
        let access = Access::new(None, false, true).expect("no files are read");
        let api = Api::new(Arc::clone(&plane) as _, access, Settings::default());
        api.load(&Json::from(&json!({ "listeners": [listener] }))).expect("a good config");
        let thread = load::thread_named(&before, "proxy-0");
        load::pin_thread(thread, 1);
        Self { plane, port, thread }
    }
}
