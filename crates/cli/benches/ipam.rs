//! What ipam costs: the planner at its full size, and the loop on an embedded API server with a cloud in memory that
//! counts its calls.
#![expect(clippy::cast_precision_loss, reason = "figures are made of counts")]

#[path = "ipam/cluster.rs"]
mod cluster;
#[path = "ipam/counted.rs"]
mod counted;
#[path = "ipam/plan.rs"]
mod plan;

use std::process::ExitCode;

use portolan_testkit::bench::Bench;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Namespaces, each with an address in each of three zones.
const NAMESPACES: usize = 5_000;
/// Nodes, each with room for 29 addresses.
const NODES: usize = 1_000;
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
/// 30 addresses on an interface.
const INSTANCE_TYPE: &str = "m5.4xlarge";

fn main() -> anyhow::Result<ExitCode> {
    let mut bench = Bench::from_arguments("ipam")?;
    plan::measure(&mut bench)?;
    cluster::measure(&mut bench)?;
    bench.finish()
}

/// The zone of a node by its number.
const fn zone(number: usize) -> &'static str {
    ZONES[number % ZONES.len()]
}

/// The subnet of a zone by its number.
fn subnet(zone: usize) -> (String, ipnet::Ipv4Net) {
    let network = std::net::Ipv4Addr::new(10, 64 + u8::try_from(zone).unwrap_or_default(), 0, 0);
    (format!("subnet-{}", ZONES[zone]), ipnet::Ipv4Net::new_assert(network, 19))
}
