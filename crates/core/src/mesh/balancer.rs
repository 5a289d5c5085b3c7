//! Which endpoint of a cluster a session gets.
//!
//! A [`Balancer`] is a value: built from the endpoints when they change, away from the data path, then shared by
//! all workers and only read. What changes from session to session comes with the question ([`PickContext`]): the
//! metadata, a random number, the worker's own turn, the counts of live sessions.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;

use super::path::Path;
use super::value::key_text;
use crate::hash::{Maglev, Ring, Server, SplitMix, hash64};

/// Turns in one cycle of the weighted round robin, at most.
const LONGEST_CYCLE: f64 = 65_536.0;

/// How an endpoint is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LbPolicy {
    /// The first endpoint that takes sessions.
    Trivial,
    /// A consistent hash ring over addresses; without a key each session is placed at random.
    HashRing(Option<Path>),
    /// A Maglev table over addresses; without a key the client's address and port is it.
    Maglev(Option<Path>),
    /// One after the other, each as often as its weight.
    RoundRobin,
    /// Of two at random, the one with fewer sessions for its weight.
    Random2,
    /// The one with the fewest sessions for its weight.
    LeastSessions,
}

/// Why a policy cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LbPolicyError {
    /// No policy of this name is known.
    #[error("LoadBalancer.create: TODO: Policy \"{0}\" unimplemented")]
    Unknown(String),
    /// There is a load balancer without a policy.
    #[error("LoadBalancer.create: TODO: Policy undefined")]
    Undefined,
}

/// An endpoint, as far as the choice is concerned.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedEndpoint {
    /// Its address; hashing policies know endpoints by this alone.
    pub address: String,
    /// Its share; without a positive, finite one it gets no session. Endpoints that drain have 0.
    pub weight: f64,
}

/// What a session brings to the choice.
#[derive(Clone, Copy)]
pub struct PickContext<'a> {
    /// The session's metadata, rewrites done.
    pub metadata: &'a Value,
    /// The client, where it has an address.
    pub client: Option<SocketAddr>,
    /// A random number, a different one for each session.
    pub random: u64,
    /// How many sessions the caller has asked for before.
    pub sequence: u64,
    /// Live sessions of the member with an index.
    pub sessions: &'a dyn Fn(usize) -> u64,
}

/// The choice among the endpoints of one cluster; copies share what was worked out.
#[derive(Debug, Clone)]
pub struct Balancer {
    policy: LbPolicy,
    members: Arc<[WeightedEndpoint]>,
    open: Arc<[Open]>,
    table: Arc<Table>,
}

/// A member that takes sessions.
#[derive(Debug, Clone, Copy)]
struct Open {
    index: usize,
    weight: f64,
    /// The weights up to and with this one.
    reach: f64,
}

#[derive(Debug, Clone)]
enum Table {
    None,
    Ring(Ring),
    Maglev(Maglev),
    /// Places in `open`, in the order of the turns.
    Cycle(Vec<u32>),
}

impl LbPolicy {
    /// The names that a `loadbalancer` object of a Target may have.
    pub const NAMES: [&str; 7] =
        ["Trivial", "ConsistentHash", "HashRing", "RoundRobin", "Random2", "LeastSessions", "Maglev"];

    /// How a hash ring without a key is shown.
    pub const NO_KEY: &str = "<RANDOM>";

    /// The policy of a `loadbalancer` object; the names under which the API shows a policy are known too.
    pub fn parse(policy: Option<&str>, key: Option<&str>) -> Result<Self, LbPolicyError> {
        let key = || key.filter(|key| *key != Self::NO_KEY).map(Path::new);
        Ok(match policy.ok_or(LbPolicyError::Undefined)? {
            "Trivial" | "None" => Self::Trivial,
            "ConsistentHash" | "HashRing" => Self::HashRing(key()),
            "Maglev" => Self::Maglev(key()),
            "RoundRobin" => Self::RoundRobin,
            "Random2" => Self::Random2,
            "LeastSessions" => Self::LeastSessions,
            unknown => return Err(LbPolicyError::Unknown(unknown.to_owned())),
        })
    }

    /// The policy's name in dumps.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Trivial => "Trivial",
            Self::HashRing(_) => "HashRing",
            Self::Maglev(_) => "Maglev",
            Self::RoundRobin => "RoundRobin",
            Self::Random2 => "Random2",
            Self::LeastSessions => "LeastSessions",
        }
    }

    /// Whether a real l7mp has it too.
    pub const fn is_of_l7mp(&self) -> bool {
        matches!(self, Self::Trivial | Self::HashRing(_))
    }

    /// Whether a key says what is hashed.
    pub const fn takes_key(&self) -> bool {
        matches!(self, Self::HashRing(_) | Self::Maglev(_))
    }

    /// The value of the metadata that is hashed.
    pub const fn key(&self) -> Option<&Path> {
        match self {
            Self::HashRing(key) | Self::Maglev(key) => key.as_ref(),
            Self::Trivial | Self::RoundRobin | Self::Random2 | Self::LeastSessions => None,
        }
    }

    /// Whether the choice depends on how many came before.
    pub const fn takes_turns(&self) -> bool {
        matches!(self, Self::RoundRobin)
    }
}

impl Balancer {
    /// Builds the choice among some members.
    pub fn new(policy: LbPolicy, members: Vec<WeightedEndpoint>) -> Self {
        let none = Self { policy, members: Arc::default(), open: Arc::default(), table: Arc::new(Table::None) };
        none.rebuilt(members)
    }

    /// Builds the choice among other members, reusing what this one has worked out.
    #[must_use]
    pub fn rebuilt(&self, members: Vec<WeightedEndpoint>) -> Self {
        if *members == *self.members {
            return self.clone();
        }
        let open = open(&members);
        let table = Arc::new(self.table(&members, &open));
        Self { policy: self.policy.clone(), members: members.into(), open: open.into(), table }
    }

    /// How the choice is made.
    pub fn policy(&self) -> &LbPolicy {
        &self.policy
    }

    /// The index of a session's member, or nothing when none takes sessions.
    pub fn pick(&self, ask: &PickContext<'_>) -> Option<usize> {
        match (&self.policy, &*self.table) {
            (LbPolicy::Trivial, _) => self.open.first().map(|open| open.index),
            (LbPolicy::HashRing(key), Table::Ring(ring)) => self.on_ring(ring, key.as_ref(), ask),
            (LbPolicy::Maglev(key), Table::Maglev(table)) => self.in_table(table, key.as_ref(), ask),
            (LbPolicy::RoundRobin, Table::Cycle(cycle)) => self.in_turn(cycle, ask.sequence),
            (LbPolicy::Random2, _) => self.better_of_two(ask),
            (LbPolicy::LeastSessions, _) => self.least_busy(ask),
            // no member takes sessions
            (LbPolicy::HashRing(_) | LbPolicy::Maglev(_) | LbPolicy::RoundRobin, _) => None,
        }
    }

    fn table(&self, members: &[WeightedEndpoint], open: &[Open]) -> Table {
        let servers = || -> Vec<Server<'_>> { members.iter().map(WeightedEndpoint::server).collect() };
        match (&self.policy, &*self.table) {
            _ if open.is_empty() => Table::None,
            (LbPolicy::HashRing(_), Table::Ring(ring)) => Table::Ring(ring.rebuilt(&servers())),
            (LbPolicy::HashRing(_), _) => Table::Ring(Ring::new(&servers())),
            (LbPolicy::Maglev(_), _) => Table::Maglev(Maglev::new(&servers())),
            (LbPolicy::RoundRobin, _) => Table::Cycle(cycle(open)),
            (LbPolicy::Trivial | LbPolicy::Random2 | LbPolicy::LeastSessions, _) => Table::None,
        }
    }

    fn on_ring(&self, ring: &Ring, key: Option<&Path>, ask: &PickContext<'_>) -> Option<usize> {
        let key = key.and_then(|key| key.read(ask.metadata)).and_then(key_text);
        match key {
            Some(key) => ring.find(key.as_bytes()),
            None => self.placed_at_random(ask.random),
        }
    }

    fn in_table(&self, table: &Maglev, key: Option<&Path>, ask: &PickContext<'_>) -> Option<usize> {
        let Some(key) = key else {
            return table.at(ask.client.map_or(ask.random, client_hash));
        };
        match key.read(ask.metadata).and_then(key_text) {
            Some(key) => table.find(key.as_bytes()),
            None => self.placed_at_random(ask.random),
        }
    }

    fn in_turn(&self, cycle: &[u32], turn: u64) -> Option<usize> {
        let place = usize::try_from(turn % cycle.len().max(1) as u64).ok()?;
        let open = usize::try_from(*cycle.get(place)?).ok()?;
        self.open.get(open).map(|open| open.index)
    }

    fn better_of_two(&self, ask: &PickContext<'_>) -> Option<usize> {
        let mut random = SplitMix::new(ask.random);
        let (one, other) = (self.at_random(&mut random)?, self.at_random(&mut random)?);
        let other = if other == one { (one + 1) % self.open.len() } else { other };
        let (one, other) = (self.open.get(one)?, self.open.get(other)?);
        let better = if other.load(ask) < one.load(ask) { other } else { one };
        Some(better.index)
    }

    /// Starts at random, so that equals share.
    fn least_busy(&self, ask: &PickContext<'_>) -> Option<usize> {
        let start = usize::try_from(ask.random % self.open.len().max(1) as u64).ok()?;
        let (before, after) = self.open.split_at_checked(start)?;
        let all = after.iter().chain(before);
        let least = all.map(|open| (open.load(ask), open.index)).min_by(|(one, _), (other, _)| one.total_cmp(other));
        least.map(|(_, index)| index)
    }

    fn placed_at_random(&self, random: u64) -> Option<usize> {
        let place = self.at_random(&mut SplitMix::new(random))?;
        self.open.get(place).map(|open| open.index)
    }

    /// The place of an open member, the heavier the likelier.
    fn at_random(&self, random: &mut SplitMix) -> Option<usize> {
        let aim = random.next_unit() * self.open.last()?.reach;
        let place = self.open.partition_point(|open| open.reach <= aim);
        Some(place.min(self.open.len() - 1))
    }
}

impl WeightedEndpoint {
    fn server(&self) -> Server<'_> {
        Server { address: &self.address, weight: self.weight }
    }
}

impl Open {
    /// Sessions for the weight, the one to come included, so that among idle members the heavier is first.
    fn load(&self, ask: &PickContext<'_>) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "counts of sessions are far below 2^52")]
        let sessions = (ask.sessions)(self.index).saturating_add(1) as f64;
        sessions / self.weight
    }
}

fn open(members: &[WeightedEndpoint]) -> Vec<Open> {
    let mut reach = 0.0;
    let takes_sessions = members.iter().enumerate().filter(|(_, member)| member.server().is_open());
    takes_sessions
        .map(|(index, member)| {
            reach += member.weight;
            Open { index, weight: member.weight, reach }
        })
        .collect()
}

/// A cycle in which each member has turns in proportion to its weight, spread as evenly as they go.
fn cycle(open: &[Open]) -> Vec<u32> {
    let turns = turns(open);
    let mut cycle = Vec::new();
    for (place, count) in (0_u32..).zip(turns) {
        cycle.extend((0..count).map(|turn| ((f64::from(turn) + 0.5) / f64::from(count), place)));
    }
    cycle.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    cycle.into_iter().map(|(_, place)| place).collect()
}

/// How many turns each member has in a cycle: its weight where that is a small whole number.
fn turns(open: &[Open]) -> Vec<u32> {
    let total = open.last().map_or(1.0, |open| open.reach);
    let lightest = open.iter().map(|open| open.weight).fold(f64::INFINITY, f64::min);
    let whole = total <= LONGEST_CYCLE && open.iter().all(|open| open.weight.fract() == 0.0);
    let scale = if whole { 1.0 } else { (10.0 / lightest).min(LONGEST_CYCLE / total) };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and the longest cycle")]
    let turns = |open: &Open| (open.weight * scale).round().clamp(1.0, LONGEST_CYCLE) as u32;
    let turns: Vec<u32> = open.iter().map(turns).collect();
    let common = turns.iter().copied().fold(0, greatest_common_divisor).max(1);
    turns.into_iter().map(|turns| turns / common).collect()
}

fn greatest_common_divisor(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

/// A client's hash, the same whether its IPv4 address came in IPv6 clothes.
fn client_hash(client: SocketAddr) -> u64 {
    let mut bytes = [0; 18];
    let (address, port) = bytes.split_at_mut(16);
    let octets = match client {
        SocketAddr::V4(v4) => v4.ip().to_ipv6_mapped().octets(),
        SocketAddr::V6(v6) => v6.ip().octets(),
    };
    address.copy_from_slice(&octets);
    port.copy_from_slice(&client.port().to_be_bytes());
    hash64(&bytes)
}
