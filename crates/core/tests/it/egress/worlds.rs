//! Random worlds, ledgers and changes, read from a tape of bytes: small, crowded and often contradictory. A shorter
//! tape with smaller bytes is a simpler world, so that failures shrink.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use portolan_core::egress::*;
use portolan_core::net::Pool;
use portolan_core::select::Selector;

pub(crate) struct Tape<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Tape<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::from(byte) * n / 256
    }

    /// True once in n.
    pub(crate) fn rarely(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    pub(crate) fn is_done(&self) -> bool {
        self.at >= self.bytes.len()
    }

    fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

pub(crate) fn name(prefix: &str, n: usize) -> Arc<str> {
    Arc::from(format!("{prefix}{n}"))
}

pub(crate) fn policy_name(tape: &mut Tape<'_>) -> PolicyName {
    let namespace = tape.of(&[None, Some("a"), Some("b")]).map(Arc::from);
    PolicyName { namespace, name: name("p", tape.below(4)) }
}

pub(crate) fn node(tape: &mut Tape<'_>) -> Node {
    let zone = tape.of(&["x", "y"]);
    let labels = if tape.rarely(5) { vec![("zone", zone)] } else { vec![("egress", "true"), ("zone", zone)] };
    let capacity = tape.of(&[None, None, None, Some(0), Some(1), Some(2)]);
    Node { labels: labels.into_iter().collect(), ready: !tape.rarely(5), capacity }
}

pub(crate) fn gateway(tape: &mut Tape<'_>, n: usize) -> Gateway {
    // one in eight pools stands in the first one's way
    let net = if tape.rarely(8) { 0 } else { n };
    let shape = tape.below(5);
    let mut items = |prefix: &str, plain: bool| -> Vec<String> {
        let count = if plain { 1 } else { 1 + tape.below(3) };
        let item = |tape: &mut Tape<'_>| {
            let first = tape.below(12);
            let last = first + tape.below(if plain { 6 } else { 4 });
            format!("{prefix}{first:x}-{prefix}{last:x}")
        };
        (0..count).map(|_| item(tape)).collect()
    };
    let v4 = |items: Vec<String>| -> Vec<String> {
        let decimal = |end: &str| {
            let (prefix, last) = end.rsplit_once('.').unwrap();
            format!("{prefix}.{}", u8::from_str_radix(last, 16).unwrap())
        };
        items
            .iter()
            .map(|item| item.split_once('-').unwrap())
            .map(|(a, b)| format!("{}-{}", decimal(a), decimal(b)))
            .collect()
    };
    let four = if shape == 4 { Vec::new() } else { v4(items(&format!("10.0.{net}."), shape < 2)) };
    let six = match shape {
        0 => Vec::new(),
        1 => four.iter().map(|item| item.replace("10.0.", "fd00::").replace('.', ":")).collect(),
        _ => items(&format!("fd00::{net}:"), false),
    };
    let pool = Pool::parse(&four, &six).unwrap();
    let default = match tape.below(4) {
        0 | 1 => Eip { v4: pool.v4_at(0), v6: pool.v6_at(0) },
        2 => Eip { v4: pool.v4_at(tape.below(4) as u128), v6: None },
        _ => Eip::default(),
    };
    let selector = match tape.below(4) {
        0 | 1 => Selector { labels: [("egress", "true")].into_iter().collect(), expressions: Vec::new() },
        2 => Selector { labels: [("zone", "x")].into_iter().collect(), expressions: Vec::new() },
        _ => Selector::default(),
    };
    let mode = tape.of(&[NodeMode::Average, NodeMode::FewestNodes, NodeMode::Limit(1), NodeMode::Limit(2)]);
    Gateway { uid: format!("uid-{n}").into(), pool, default, selector, mode, exclusive: tape.rarely(3) }
}

pub(crate) fn address(tape: &mut Tape<'_>, gateways: usize) -> IpAddr {
    let (net, host) = (tape.below(gateways.max(1)), tape.below(16));
    let text = if tape.below(2) == 0 { format!("10.0.{net}.{host}") } else { format!("fd00::{net}:{host:x}") };
    text.parse().unwrap()
}

fn eip(tape: &mut Tape<'_>, gateways: usize) -> Eip {
    let mut eip = Eip::default();
    for _ in 0..=tape.below(2) {
        match address(tape, gateways) {
            IpAddr::V4(v4) => eip.v4 = Some(v4),
            IpAddr::V6(v6) => eip.v6 = Some(v6),
        }
    }
    eip
}

pub(crate) fn policy(tape: &mut Tape<'_>, gateways: usize) -> Policy {
    let gateway = if tape.rarely(12) { name("g", 9) } else { name("g", tape.below(gateways.max(1))) };
    let ask = match tape.below(8) {
        0 => AddressRequest::FromPool(AllocationMode::PreferUnallocated),
        1 => AddressRequest::NodeAddress,
        2 | 3 => AddressRequest::Explicit(eip(tape, gateways)),
        4 => AddressRequest::FromPool(AllocationMode::Default),
        5 => AddressRequest::FromPool(AllocationMode::Random),
        6 => AddressRequest::FromPool(AllocationMode::Limit(1)),
        _ => AddressRequest::FromPool(AllocationMode::Limit(2)),
    };
    let uid = format!("uid-{}", tape.below(40)).into();
    Policy { uid, gateway, created: tape.below(4) as i64, request: ask, refused: tape.rarely(10) }
}

pub(crate) fn excluded_nodes(tape: &mut Tape<'_>) -> BTreeSet<NodeName> {
    (0..tape.below(4)).map(|_| name("n", tape.below(6))).collect()
}

pub(crate) fn record(tape: &mut Tape<'_>, gateways: usize) -> AddressRecord {
    AddressRecord {
        gateway: name("g", tape.below(gateways + 1)),
        pair: tape.below(2).eq(&1).then(|| address(tape, gateways)),
        slot: tape.of(&[2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 16383, 60000]),
        node: (!tape.rarely(4)).then(|| name("n", tape.below(7))),
        epoch: 1 + tape.below(4) as u64,
    }
}

pub(crate) fn binding(tape: &mut Tape<'_>, gateways: usize) -> Binding {
    let eip = if tape.rarely(4) { Eip::default() } else { eip(tape, gateways) };
    let node = (!tape.rarely(4)).then(|| name("n", tape.below(7)));
    Binding { eip, node, gateway: name("g", tape.below(gateways.max(1))) }
}

pub(crate) fn world(tape: &mut Tape<'_>) -> World {
    let gateways = 1 + tape.below(4);
    let mut world = World { seed: tape.below(9) as u64, ..World::default() };
    for n in 0..gateways {
        if !tape.rarely(12) {
            world.gateways.insert(name("g", n), gateway(tape, n));
        }
    }
    for n in 0..tape.below(7) {
        world.nodes.insert(name("n", n), node(tape));
    }
    for _ in 0..tape.below(13) {
        let policy_name = policy_name(tape);
        world.policies.insert(policy_name, policy(tape, gateways));
    }
    for _ in 0..tape.below(4) {
        world.taken.insert(address(tape, gateways));
    }
    for _ in 0..tape.below(3) {
        let nodes = excluded_nodes(tape);
        world.excluded_nodes.insert(address(tape, gateways), nodes);
    }
    world.keep_unused = tape.rarely(8);
    world
}

/// Whatever may stand in a ledger, lawful or not.
pub(crate) fn ledger(tape: &mut Tape<'_>, world: &World) -> Ledger {
    let mut ledger = Ledger::default();
    for _ in 0..tape.below(8) {
        let address = address(tape, 4);
        ledger.addresses.insert(address, record(tape, 4));
    }
    for policy in world.policies.keys() {
        if tape.rarely(3) {
            // half of the bindings name an address that is recorded
            let mut binding = binding(tape, 4);
            let recorded: Vec<(&IpAddr, &AddressRecord)> = ledger.addresses.iter().collect();
            if !recorded.is_empty() && tape.below(2) == 1 {
                let (address, record) = recorded[tape.below(recorded.len())];
                binding.gateway = record.gateway.clone();
                binding.eip = match address {
                    IpAddr::V4(v4) => Eip { v4: Some(*v4), v6: None },
                    IpAddr::V6(v6) => Eip { v4: None, v6: Some(*v6) },
                };
            }
            ledger.bindings.insert(policy.clone(), binding);
        }
    }
    ledger
}

pub(crate) fn change(tape: &mut Tape<'_>, planner: &Planner) -> Change {
    let gateways = 4;
    let known: Vec<PolicyName> = planner.world().policies.into_keys().collect();
    match tape.below(16) {
        0..=2 => Change::Policy(policy_name(tape), Some(policy(tape, gateways))),
        3 | 4 if !known.is_empty() => Change::Policy(known[tape.below(known.len())].clone(), None),
        5 if !known.is_empty() => {
            let name = known[tape.below(known.len())].clone();
            let mut changed = policy(tape, gateways);
            changed.uid = planner.policy(&name).unwrap().uid.clone();
            Change::Policy(name, Some(changed))
        }
        6 | 7 => Change::Node(name("n", tape.below(6)), Some(node(tape))),
        8 => Change::Node(name("n", tape.below(6)), None),
        9 => {
            let n = tape.below(4);
            Change::Gateway(name("g", n), (!tape.rarely(4)).then(|| gateway(tape, n)))
        }
        10 => Change::Taken(address(tape, gateways), tape.below(2) == 0),
        11 => {
            let nodes = excluded_nodes(tape);
            Change::ExcludedNodes(address(tape, gateways), nodes)
        }
        12 => Change::KeepUnused(tape.below(2) == 0),
        13 | 14 => {
            let recorded: BTreeMap<IpAddr, AddressRecord> = planner.ledger().addresses;
            let Some((address, own)) = recorded.iter().nth(tape.below(recorded.len().max(1))) else {
                return Change::ObservedRecord(address(tape, gateways), Some(record(tape, gateways)));
            };
            match tape.below(5) {
                0 | 1 => Change::ObservedRecord(*address, None),
                2 | 3 => {
                    let mut other = record(tape, gateways);
                    (other.gateway, other.pair, other.slot) = (own.gateway.clone(), own.pair, own.slot);
                    other.epoch = own.epoch + tape.below(3) as u64;
                    Change::ObservedRecord(*address, Some(other))
                }
                _ => Change::ObservedRecord(self::address(tape, gateways), Some(record(tape, gateways))),
            }
        }
        _ if !known.is_empty() => {
            let name = known[tape.below(known.len())].clone();
            let adopted = planner.ledger().bindings.into_values().nth(tape.below(6));
            let other = (!tape.rarely(4)).then(|| adopted.unwrap_or_else(|| binding(tape, gateways)));
            Change::ObservedBinding(name, other)
        }
        _ => Change::Policy(policy_name(tape), Some(policy(tape, gateways))),
    }
}
