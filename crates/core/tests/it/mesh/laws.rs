//! What holds for any JSON at all.

use std::sync::Arc;

use portolan_core::hash::{Maglev, Ring, Server};
use portolan_core::mesh::{
    Action, Balancer, LbPolicy, LookupError, Path, PickContext, Predicate, Rule, RuleList, WeightedEndpoint, key_text,
    lookup,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Any JSON, of few keys, so that paths find something.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c0-2/.:]{0,4}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            btree_map("[a-c0-2]{0,2}", inner, 0..5).prop_map(|map| Value::from(Map::from_iter(map))),
        ]
    })
}

fn any_path() -> impl Strategy<Value = String> {
    prop_oneof!["/?([a-c0-2]{0,2}/){0,4}[a-c0-2]{0,2}", any::<String>()]
}

/// Something that is nearly a predicate.
fn any_predicate() -> impl Strategy<Value = Value> {
    let op = prop_oneof![
        Just("test"),
        Just("in"),
        Just("contains"),
        Just("starts"),
        Just("ends"),
        Just("less"),
        Just("more"),
        Just("matches"),
        Just("defined"),
        Just("undefined"),
        Just("type"),
        Just("contained"),
        Just("intersects"),
        Just("bogus"),
    ];
    let simple = (op, any_path(), any_json(), any::<bool>()).prop_map(
        |(op, path, value, ignore_case)| json!({ "op": op, "path": path, "value": value, "ignore_case": ignore_case }),
    );
    let leaf = prop_oneof![9 => simple, 1 => any_json()];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let op = prop_oneof![Just("and"), Just("or"), Just("not")];
        (op, proptest::option::of(any_path()), vec(inner, 0..4)).prop_map(|(op, path, apply)| match path {
            Some(path) => json!({ "op": op, "path": path, "apply": apply }),
            None => json!({ "op": op, "apply": apply }),
        })
    })
}

fn any_members() -> impl Strategy<Value = Vec<WeightedEndpoint>> {
    let weight = prop_oneof![Just(0.0), Just(1.0), (0_u32..20).prop_map(f64::from), any::<f64>()];
    let member = ("[a-h]", weight).prop_map(|(address, weight)| WeightedEndpoint { address, weight });
    vec(member, 0..12)
}

fn any_policy() -> impl Strategy<Value = LbPolicy> {
    let name = prop_oneof![
        Just("Trivial"),
        Just("HashRing"),
        Just("Maglev"),
        Just("RoundRobin"),
        Just("Random2"),
        Just("LeastSessions"),
    ];
    (name, proptest::option::of(any_path()))
        .prop_map(|(name, key)| LbPolicy::parse(Some(name), key.as_deref()).expect("a known policy"))
}

/// A few words, and addresses of which some are IPv4 in IPv6 clothes.
const WORD_OR_ADDRESS: &str = "[x-z]|(::ffff:)?10\\.0\\.0\\.[12]";

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(mut data in any_json(), path in any_path(), value in any_json()) {
        let before = data.clone();
        let parsed = Path::new(&path);
        if parsed.write(&mut data, value.clone()) {
            let found = if path.is_empty() { Some(&data) } else { parsed.read(&data) };
            prop_assert_eq!(found, Some(&value), "{} in {}", path, before);
        } else {
            prop_assert_eq!(data, before, "{} was refused", path);
        }
    }

    #[test]
    fn any_predicate_answers_on_any_data(source in any_predicate(), data in any_json()) {
        let predicate = Predicate::new(Some(&source));
        let held = predicate.matches(&data);
        prop_assert!(!held || predicate.error().is_none());
        prop_assert_eq!(held, predicate.matches(&data), "the answer does not change");
    }

    #[test]
    fn not_is_the_contrary_or_never(source in any_predicate(), data in any_json()) {
        prop_assume!(source.is_object() && source.get("op").is_some());
        let (plain, not) = (Predicate::new(Some(&source)), Predicate::new(Some(&json!({ "op": "not", "apply": [source] }))));
        prop_assert_eq!(plain.error().is_some(), not.error().is_some());
        prop_assert!(plain.error().is_some() || plain.matches(&data) != not.matches(&data));
    }

    #[test]
    fn any_regular_expression_compiles_or_is_a_fault(pattern in any::<String>(), text in any::<String>()) {
        let source = json!({ "op": "matches", "path": "/a", "value": pattern });
        Predicate::new(Some(&source)).matches(&json!({ "a": text }));
    }

    #[test]
    fn a_pick_takes_sessions_and_there_is_one_if_any_does(
        policy in any_policy(),
        members in any_members(),
        data in any_json(),
        random in any::<u64>(),
        turn in any::<u64>(),
        client in proptest::option::of(any::<(u32, u16)>()),
        live in any::<[u64; 4]>(),
    ) {
        let is_open = |member: &WeightedEndpoint| member.weight.is_finite() && member.weight > 0.0;
        let client = client.map(|(address, port)| (std::net::Ipv4Addr::from(address), port).into());
        let sessions = |index: usize| live[index % 4];
        let ask = PickContext { metadata: &data, client, random, sequence: turn, sessions: &sessions };
        let balancer = Balancer::new(policy.clone(), members.clone());
        let picked = balancer.pick(&ask);
        prop_assert_eq!(picked, balancer.pick(&ask), "the same question has the same answer");
        match picked {
            Some(index) => prop_assert!(is_open(&members[index])),
            None => prop_assert!(!members.iter().any(is_open) || matches!(policy, LbPolicy::HashRing(_))),
        }
    }

    #[test]
    fn a_rebuilt_balancer_picks_like_one_built_afresh(
        policy in any_policy(),
        before in any_members(),
        after in any_members(),
        key in any_json(),
        random in any::<u64>(),
    ) {
        let data = json!({ "a": key });
        let ask = PickContext { metadata: &data, client: None, random, sequence: random, sessions: &|index| index as u64 };
        let rebuilt = Balancer::new(policy.clone(), before).rebuilt(after.clone());
        prop_assert_eq!(rebuilt.pick(&ask), Balancer::new(policy, after).pick(&ask));
    }

    #[test]
    fn an_indexed_rulelist_finds_what_trying_in_order_finds(
        rules in vec((0_usize..7, "[a-d]", WORD_OR_ADDRESS), 0..60),
        missing in proptest::option::of(0_usize..60),
        data in btree_map("[a-d]", prop_oneof![WORD_OR_ADDRESS.prop_map(Value::from), any_json()], 0..4),
    ) {
        let data = Value::from(Map::from_iter(data));
        let test = |key: &str, text: &str| json!({ "op": "test", "path": format!("/{key}"), "value": text });
        let source = |(kind, key, text): &(usize, String, String)| match kind {
            0 => json!({ "op": "contains", "path": format!("/{key}"), "value": text }),
            1 => json!({ "op": "and", "apply": [{ "op": "defined", "path": "/a" }, test(key, text)] }),
            2 => json!({ "op": "and", "path": format!("/{key}"), "apply": [test("a", text)] }),
            3 => json!({ "op": "or", "apply": [test(key, text), test("a", "y")] }),
            4 => json!({ "op": "test", "path": format!("/{key}"), "value": text.to_uppercase(), "ignore_case": true }),
            _ => test(key, text),
        };
        let compiled: Vec<Arc<Rule>> = rules.iter().enumerate().map(|(place, rule)| {
            let action = Action::Route(Vec::new(), Some("r".into()));
            Arc::new(Rule::new(place.to_string(), Some(&source(rule)), action))
        }).collect();
        let is_missing = |place: usize| missing == Some(place);
        let find = |name: &str| name.parse().ok().filter(|place| !is_missing(*place)).map(|place: usize| Arc::clone(&compiled[place]));
        let list = RuleList::new("list", (0..rules.len()).map(|place| Arc::from(place.to_string())), find);
        let wanted = (0..rules.len()).find(|place| is_missing(*place) || compiled[*place].predicate.matches(&data));
        let found = match lookup("list", |_| Some(&list), &data) {
            Ok(verdict) => Some(verdict.rule.name.to_string()),
            Err(LookupError::Rule { rule, .. }) => Some(rule.to_string()),
            Err(_) => None,
        };
        prop_assert_eq!(found, wanted.map(|place| place.to_string()));
    }

    #[test]
    fn keys_have_text_unless_they_are_null(value in any_json()) {
        prop_assert_eq!(key_text(&value).is_none(), value.is_null());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_rulelists_end_with_a_rule_or_an_error(
        applies in vec(vec((any_predicate(), 0_usize..22), 0..3), 1..20),
        data in any_json(),
    ) {
        let rule = |source: &Value, target: usize| {
            // every third leads to a route, the others on
            let action = if target.is_multiple_of(3) {
                Action::Route(Vec::new(), Some("r".into()))
            } else {
                Action::Apply(target.to_string().into())
            };
            Arc::new(Rule::new("rule", Some(source), action))
        };
        let lists: Vec<RuleList> = applies.iter().enumerate().map(|(number, rules)| {
            let names = (0..rules.len()).map(|index| Arc::from(index.to_string()));
            RuleList::new(number.to_string(), names, |index| {
                let (source, target) = &rules[index.parse::<usize>().unwrap()];
                Some(rule(source, *target))
            })
        }).collect();
        let find = |name: &str| lists.get(name.parse::<usize>().ok()?);
        if let Ok(verdict) = lookup("0", find, &data) {
            prop_assert!(verdict.rule.predicate.matches(&data));
            prop_assert!(verdict.rulelists.len() <= 17);
        }
    }

    #[test]
    fn on_the_ring_only_keys_of_the_one_who_leaves_move(
        count in 2_usize..12,
        gone in any::<prop::sample::Index>(),
        keys in vec(any::<String>(), 1..50),
    ) {
        let addresses: Vec<String> = (0..count).map(|number| format!("10.0.0.{number}")).collect();
        let mut servers: Vec<Server<'_>> = addresses.iter().map(|address| Server { address, weight: 1.0 }).collect();
        let gone = gone.index(count);
        let before = Ring::new(&servers);
        servers[gone].weight = 0.0;
        let after = before.rebuilt(&servers);
        // rounding may take one point of forty from everyone, and with it a key
        let same_points = |server: usize| {
            let of = |ring: &Ring| ring.points().iter().filter(|point| point.server as usize == server).count();
            of(&before) == of(&after)
        };
        prop_assume!((0..count).all(|server| server == gone || same_points(server)));
        for key in keys {
            let (old, new) = (before.find(key.as_bytes()), after.find(key.as_bytes()));
            prop_assert!(old == Some(gone) || old == new, "{:?}", key);
            prop_assert!(new != Some(gone));
        }
    }

    #[test]
    fn in_maglev_few_keys_move_without_need(count in 4_usize..80, gone in any::<prop::sample::Index>(), salt in any::<u32>()) {
        let addresses: Vec<String> = (0..count).map(|number| format!("{salt}.{number}")).collect();
        let mut servers: Vec<Server<'_>> = addresses.iter().map(|address| Server { address, weight: 1.0 }).collect();
        let gone = gone.index(count);
        let before = Maglev::new(&servers);
        servers[gone].weight = 0.0;
        let after = Maglev::new(&servers);
        // one hash for each slot
        let hashes = (0..65_537_u64).map(|slot| (slot * 65_535 + 65_535) << 32);
        let moved = hashes.filter(|hash| before.at(*hash) != Some(gone) && before.at(*hash) != after.at(*hash)).count();
        prop_assert!(moved * 100 < 65_537, "{} slots moved beyond need with {} servers", moved, count);
    }
}
