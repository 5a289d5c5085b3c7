use proptest::prelude::*;

use super::super::ports::Protocol;
use super::super::prefix::PrefixText;
use super::*;

fn at(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn pool(range: &str) -> Pool {
    let text = PrefixText { subnet: "192.0.2.0/24", pool: range, ..PrefixText::default() };
    Pool { prefix: Some(Prefix::parse(text).unwrap()), fence: Fence(None) }
}

fn world(range: &str) -> Addresses<'static> {
    Addresses {
        pools: BTreeMap::from([("default".into(), pool(range))]),
        now: 1_000_000,
        quarantine: 60_000,
        ..Addresses::default()
    }
}

fn request(account: &str, name: &str) -> Request {
    Request {
        uid: format!("{account}/{name}").into(),
        account: account.into(),
        name: name.into(),
        pool: Some("default".into()),
        address: None,
        is_allocated: false,
        sharing_key: None,
        ports: ports(&[80]),
    }
}

fn ports(numbers: &[u16]) -> BTreeSet<PortNumber> {
    numbers.iter().map(|port| PortNumber { protocol: Protocol::Tcp, port: *port }).collect()
}

fn sharing(mut request: Request, numbers: &[u16]) -> Request {
    request.sharing_key = Some("one".into());
    request.ports = ports(numbers);
    request
}

/// Decides until nothing changes: claims are written, then load balancers carry their addresses.
fn settle(world: &mut Addresses<'_>) -> Decided {
    for _ in 0..3 {
        let decided = assign(world);
        world.claims = Cow::Owned(decided.claims.clone());
        for request in &mut world.requests {
            if let Some(address) = decided.held.get(&request.uid) {
                (request.address, request.is_allocated) = (Some(*address), true);
            }
        }
    }
    assign(world)
}

fn reason(decided: &Decided, uid: &str) -> &'static str {
    decided.unmet.get(uid).map_or("none", Unmet::reason)
}

#[test]
fn an_address_is_claimed_first_and_carried_once_the_claim_is_written() {
    let mut world = world("192.0.2.10-192.0.2.12");
    world.requests = vec![request("a", "web")];
    let first = assign(&world);
    assert!(first.held.is_empty() && first.claims.contains_key(&at(10)));
    world.claims = Cow::Owned(first.claims.clone());
    let second = assign(&world);
    assert_eq!(second.held.get("a/web"), Some(&at(10)), "also if we crashed before it was carried");
    assert_eq!(second.claims, first.claims);
}

#[test]
fn same_name_two_accounts_two_addresses() {
    let mut world = world("192.0.2.10-192.0.2.12");
    world.requests = vec![request("a", "web"), request("b", "web")];
    let decided = settle(&mut world);
    assert_eq!(decided.held, BTreeMap::from([("a/web".into(), at(10)), ("b/web".into(), at(11))]));
}

#[test]
fn pool_is_the_groups() {
    let mut world = world("192.0.2.10-192.0.2.12");
    world.pools.insert("other".into(), pool("192.0.2.77"));
    world.requests = vec![Request { pool: Some("other".into()), ..request("a", "web") }];
    assert_eq!(settle(&mut world).held.get("a/web"), Some(&at(77)));
}

#[test]
fn address_returns_on_delete() {
    let mut world = world("192.0.2.10");
    world.requests = vec![request("a", "web")];
    settle(&mut world);
    world.requests = vec![request("b", "next")];
    let decided = settle(&mut world);
    assert_eq!(decided.claims[&at(10)].released_at, Some(1_000_000));
    assert_eq!(decided.next, Some(1_060_000));
    let message = decided.unmet["b/next"].to_string();
    assert!(message.starts_with("pool `default` has no free address (0 of 1 in use, 1 in quarantine)"), "{message}");
    world.now = 1_060_000;
    assert_eq!(settle(&mut world).held.get("b/next"), Some(&at(10)));
}

#[test]
fn release_keeps_other_sharers() {
    let mut world = world("192.0.2.10-192.0.2.12");
    world.requests = vec![sharing(request("a", "web"), &[80]), sharing(request("a", "tls"), &[443])];
    assert_eq!(settle(&mut world).claims[&at(10)].holders.len(), 2);
    world.requests.remove(0);
    let decided = settle(&mut world);
    let left: Vec<&str> = decided.claims[&at(10)].holders.keys().map(|uid| &**uid).collect();
    assert_eq!(left, ["a/tls"]);
    assert_eq!(decided.claims[&at(10)].released_at, None);
}

#[test]
fn an_address_is_shared_within_an_account_and_by_different_ports_only() {
    let mut world = world("192.0.2.10-192.0.2.20");
    world.requests = vec![
        sharing(request("a", "first"), &[80]),
        sharing(request("a", "same-port"), &[80, 81]),
        sharing(request("b", "other-account"), &[443]),
        request("a", "without-key"),
    ];
    let decided = settle(&mut world);
    let addresses: BTreeSet<&IpAddr> = decided.held.values().collect();
    assert_eq!(addresses.len(), 4, "{:?}", decided.held);
}

#[test]
fn an_address_that_is_asked_for_must_be_of_the_pool_and_free() {
    let mut world = world("192.0.2.10-192.0.2.12");
    let asks = |account, name, last| Request { address: Some(at(last)), ..request(account, name) };
    world.other_use.to_mut().insert(at(12));
    world.requests = vec![
        asks("a", "fits", 11),
        asks("b", "foreign", 11),
        asks("a", "own", 11),
        asks("a", "outside", 99),
        asks("a", "egress", 12),
    ];
    let decided = settle(&mut world);
    assert_eq!(decided.held, BTreeMap::from([("a/fits".into(), at(11))]));
    assert!(!decided.unmet["b/foreign"].to_string().contains("fits"), "the holder is another tenant's");
    assert!(decided.unmet["a/own"].to_string().contains("`fits`"));
    assert_eq!(reason(&decided, "a/outside"), "AddressNotAllowed");
    assert_eq!(reason(&decided, "a/egress"), "AddressInUse");
}

#[test]
fn who_has_an_address_keeps_it_when_its_pool_shrinks_is_fenced_or_goes() {
    let mut world = world("192.0.2.10-192.0.2.12");
    world.requests = vec![request("a", "web")];
    settle(&mut world);
    let changed: [(&str, Option<Pool>, Outside); 3] = [
        ("shrinks", Some(pool("192.0.2.12")), Outside::OutsidePool),
        (
            "is fenced",
            Some(Pool { fence: Fence(Some(BTreeSet::new())), ..pool("192.0.2.10") }),
            Outside::PrefixNotAllowed,
        ),
        ("goes", None, Outside::PrefixMissing),
    ];
    for (what, pool, outside) in changed {
        let mut world = world.clone();
        world.pools = pool.map(|pool| ("default".into(), pool)).into_iter().collect();
        let decided = settle(&mut world);
        assert_eq!(decided.held.get("a/web"), Some(&at(10)), "{what}");
        assert_eq!(decided.outside.get("a/web"), Some(&outside), "{what}");
        world.requests = vec![request("a", "next")];
        assert_ne!(settle(&mut world).held.get("a/next"), Some(&at(10)), "{what}");
    }
}

#[test]
fn quota_checked_before_taking() {
    let mut world = world("192.0.2.10-192.0.2.20");
    world.quota.insert("a".into(), 1);
    world.requests =
        vec![sharing(request("a", "one"), &[80]), request("a", "two"), sharing(request("a", "three"), &[443])];
    let decided = settle(&mut world);
    assert_eq!(decided.claims.len(), 1, "nothing is claimed for it");
    assert_eq!(reason(&decided, "a/two"), "QuotaExceeded");
    assert_eq!(decided.held.get("a/three"), Some(&at(10)), "a shared address counts once");
}

#[test]
fn a_claim_that_was_deleted_by_hand_is_claimed_again_by_its_holder_first() {
    let mut world = world("192.0.2.10-192.0.2.12");
    world.requests = vec![request("a", "web")];
    settle(&mut world);
    world.claims.to_mut().clear();
    world.requests.insert(0, request("b", "older"));
    let decided = settle(&mut world);
    assert_eq!(decided.held, BTreeMap::from([("a/web".into(), at(10)), ("b/older".into(), at(11))]));
}

fn worlds() -> impl Strategy<Value = Addresses<'static>> {
    let one = (
        0u8..3,
        0u8..6,
        prop::option::of(9u8..16),
        prop::option::of(0u8..2),
        prop::collection::btree_set(80u16..83, 1..3),
        0u8..4,
    );
    let rest = (prop::collection::btree_set(9u8..16, 0..3), 0u32..4, 0u64..100);
    (prop::collection::vec(one, 0..10), rest).prop_map(|(requests, (other_use, quota, age))| {
        let mut world = world("192.0.2.10-192.0.2.14");
        world.quota.insert("a0".into(), quota);
        world.other_use = Cow::Owned(other_use.into_iter().map(at).collect());
        for (number, (account, pool, address, key, ports, state)) in requests.into_iter().enumerate() {
            let mut request = request(&format!("a{account}"), &format!("lb{number}"));
            request.pool = (pool > 0).then(|| "default".into());
            request.address = address.map(at);
            request.sharing_key = key.map(|key| format!("key{key}").into());
            request.ports = ports.into_iter().map(|port| PortNumber { protocol: Protocol::Tcp, port }).collect();
            request.is_allocated = state == 0 && request.address.is_some();
            // some claims name load balancers that do not carry the address, or do not exist
            if let Some(address) = request.address.filter(|address| state < 3 && !world.other_use.contains(address)) {
                let holding = Holding {
                    account: Arc::clone(&request.account),
                    name: Arc::clone(&request.name),
                    ports: request.ports.clone(),
                };
                let claim = world.claims.to_mut().entry(address).or_insert_with(|| Claim {
                    pool: "default".into(),
                    sharing_key: request.sharing_key.clone(),
                    released_at: (state == 2).then_some(1_000_000 - age * 1_000),
                    ..Claim::default()
                });
                if claim.released_at.is_none() && obstacle(claim, &request).is_none() {
                    claim.holders.insert(Arc::clone(&request.uid), holding);
                }
                if state == 1 {
                    continue;
                }
            }
            world.requests.push(request);
        }
        world
    })
}

fn holders_are_compatible(decided: &Decided) -> bool {
    decided.claims.values().all(|claim| {
        let holders: Vec<&Holding> = claim.holders.values().collect();
        holders.iter().enumerate().all(|(place, holder)| {
            holders[..place].iter().all(|other| {
                claim.sharing_key.is_some()
                    && holder.account == other.account
                    && in_common(&holder.ports, &other.ports).is_none()
            })
        })
    })
}

fn everyone_is_answered(world: &Addresses<'_>, decided: &Decided) -> bool {
    let has = |uid: &Arc<str>| decided.claims.values().filter(|claim| claim.holders.contains_key(uid)).count();
    world.requests.iter().all(|request| has(&request.uid) == usize::from(!decided.unmet.contains_key(&request.uid)))
}

fn claims_have_an_end(world: &Addresses<'_>, decided: &Decided) -> bool {
    let lives = |uid: &Arc<str>| world.requests.iter().any(|request| request.uid == *uid);
    decided
        .claims
        .values()
        .all(|claim| claim.holders.keys().all(lives) && claim.holders.is_empty() == claim.released_at.is_some())
}

fn other_uses_are_left_alone(world: &Addresses<'_>, decided: &Decided) -> bool {
    decided.claims.keys().all(|address| !world.other_use.contains(address))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_decision_keeps_every_law(mut world in worlds()) {
        let decided = assign(&world);
        for (law, holds) in [
            ("holders of an address share it rightly", holders_are_compatible(&decided)),
            ("everyone has one address or a reason", everyone_is_answered(&world, &decided)),
            ("no claim outlives its holders but for its quarantine", claims_have_an_end(&world, &decided)),
            ("addresses with another use are left alone", other_uses_are_left_alone(&world, &decided)),
        ] {
            prop_assert!(holds, "broken: {law}\n{world:#?}\n{decided:#?}");
        }
        let settled = settle(&mut world);
        prop_assert_eq!(&settled.claims, &*world.claims, "what is settled stays");
        prop_assert_eq!(settled.held.len() + settled.unmet.len(), world.requests.len());
    }
}
