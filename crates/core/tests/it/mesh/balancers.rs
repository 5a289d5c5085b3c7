//! Golden placements, and the policies' behaviour over many sessions.

use portolan_core::hash::{Ring, Server};
use portolan_core::mesh::{Balancer, LbPolicy, PickContext, WeightedEndpoint};
use serde::Deserialize;
use serde_json::{Value, json};

use super::table;

#[derive(Deserialize)]
struct Case {
    about: String,
    policy: String,
    #[serde(default)]
    key: Option<String>,
    /// `address` or `address:weight`, the weight behind the last `*`.
    members: Vec<String>,
    /// Metadata, asked once each.
    #[serde(default)]
    ask: Vec<Value>,
    /// How many sessions with empty metadata are asked for after those.
    #[serde(default)]
    sessions: u64,
    /// The picked members, in the order of `ask`, then of the sessions; `null` is no endpoint.
    #[serde(default)]
    picks: Option<Vec<Option<usize>>>,
    /// How many sessions each member got.
    #[serde(default)]
    shares: Option<Vec<u64>>,
    /// How far a share may be off.
    #[serde(default)]
    within: u64,
}

#[test]
fn the_table_of_balancers_holds() {
    let cases: Vec<Case> = table::read(include_str!("cases/balancers.yaml"));
    let complaints: Vec<String> = cases.iter().filter_map(complaint).collect();
    table::judge(cases.len(), 24, &complaints);
}

fn complaint(case: &Case) -> Option<String> {
    let members: Vec<WeightedEndpoint> = case.members.iter().map(|text| member(text)).collect();
    let policy = LbPolicy::parse(Some(&case.policy), case.key.as_deref()).expect("the table names known policies");
    let balancer = Balancer::new(policy, members.clone());
    let mut live = vec![0; members.len()];
    let empty = json!({});
    let asked = case.ask.iter().chain((0..case.sessions).map(|_| &empty));
    let mut picks = Vec::new();
    for (turn, metadata) in (0..).zip(asked) {
        let counts = |index: usize| live[index];
        let random = portolan_core::hash::SplitMix::new(turn).next_u64();
        let picked = balancer.pick(&PickContext { metadata, client: None, random, sequence: turn, sessions: &counts });
        picks.push(picked);
        if let Some(index) = picked {
            live[index] += 1;
        }
    }
    let picks_fit = case.picks.as_ref().is_none_or(|wanted| *wanted == picks);
    let near = |(wanted, live): (&u64, &u64)| wanted.abs_diff(*live) <= case.within;
    let shares_fit = case.shares.as_ref().is_none_or(|wanted| wanted.iter().zip(&live).all(near));
    (!picks_fit || !shares_fit).then(|| format!("{}: picks {picks:?}, shares {live:?}", case.about))
}

fn member(text: &str) -> WeightedEndpoint {
    let (address, weight) = text.rsplit_once('*').unwrap_or((text, "1"));
    WeightedEndpoint { address: address.to_owned(), weight: weight.parse().expect("a weight is a number") }
}

#[derive(Deserialize)]
struct Golden {
    members: Vec<String>,
    points: usize,
    /// Hash and member of points, by their place from the front, or from the back when negative.
    #[serde(default)]
    at: Vec<(i64, u32, u32)>,
    keys: Vec<(Value, usize)>,
}

#[test]
fn the_golden_rings_come_out() {
    let rings: Vec<Golden> = table::read(include_str!("cases/rings.yaml"));
    for Golden { members, points, at, keys } in rings {
        let list: Vec<WeightedEndpoint> = members.iter().map(|text| member(text)).collect();
        let servers: Vec<Server<'_>> =
            list.iter().map(|member| Server { address: &member.address, weight: member.weight }).collect();
        let ring = Ring::new(&servers);
        assert_eq!(ring.points().len(), points, "{members:?}");
        for (place, hash, server) in at {
            let place = usize::try_from(place).unwrap_or_else(|_| points - 1);
            let point = ring.points()[place];
            assert_eq!((point.hash, point.server), (hash, server), "{members:?}, point {place}");
        }
        let balancer = Balancer::new(LbPolicy::parse(Some("ConsistentHash"), Some("/key")).unwrap(), list);
        for (key, wanted) in keys {
            let metadata = json!({ "key": key });
            let picked = balancer.pick(&PickContext {
                metadata: &metadata,
                client: None,
                random: 0,
                sequence: 0,
                sessions: &|_| 0,
            });
            assert_eq!(picked, Some(wanted), "{members:?}, key {key}");
        }
    }
}

#[test]
fn policies_that_are_none_are_refused_as_l7mp_refuses_them() {
    let refused = |policy| LbPolicy::parse(policy, None).unwrap_err().to_string();
    assert_eq!(refused(Some("X")), r#"LoadBalancer.create: TODO: Policy "X" unimplemented"#);
    assert_eq!(refused(None), "LoadBalancer.create: TODO: Policy undefined");
}

#[test]
fn of_two_members_the_busy_one_is_never_picked() {
    let members = ["busy", "idle"].map(|address| WeightedEndpoint { address: address.to_owned(), weight: 1.0 });
    let balancer = Balancer::new(LbPolicy::Random2, members.to_vec());
    let metadata = json!({});
    for random in 0..200 {
        let sessions = |index: usize| if index == 0 { 1000 } else { 0 };
        let ask = PickContext { metadata: &metadata, client: None, random, sequence: 0, sessions: &sessions };
        assert_eq!(balancer.pick(&ask), Some(1), "random {random}");
    }
}
