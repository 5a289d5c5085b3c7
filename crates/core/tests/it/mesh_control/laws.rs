//! The laws of the resolver, over random worlds and random sequences of changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use portolan_core::mesh::control::wire::{ConfigKind, ProxyConfig};
use portolan_core::mesh::control::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::worlds;

/// Worlds, each planned by itself.
const WORLDS: u32 = 1_500;
/// Worlds that go through up to ten changes, each of which is a world planned again.
const SEQUENCES: u32 = 800;

/// Every run sees the same worlds; another seed is a soak.
const SEED: u8 = 1;

pub(super) fn runner(cases: u32) -> TestRunner {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[SEED; 32]))
}

pub(super) fn tape(length: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..length)
}

#[test]
fn every_plan_keeps_every_law() {
    let outcome = runner(WORLDS).run(&tape(200), |bytes| {
        let world = worlds::world(&mut worlds::Tape::new(&bytes));
        let found = plan(&world);
        for (law, holds) in LAWS {
            prop_assert!(holds(&world, &found), "broken: {law}\n{found:#?}");
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn every_change_gives_what_planning_anew_would_give() {
    let outcome = runner(SEQUENCES).run(&tape(400), |bytes| {
        let mut tape = worlds::Tape::new(&bytes);
        let mut resolver = Resolver::new(worlds::world(&mut tape));
        for _ in 0..10 {
            if tape.is_done() {
                break;
            }
            let before = resolver.plan();
            let change = worlds::change(&mut tape, resolver.world());
            let touched = resolver.change(change.clone());
            let after = resolver.plan();
            let anew = plan(resolver.world());
            prop_assert_eq!(&after, &anew, "after {:?}", change);
            prop_assert!(tells_all(&before, &after, &touched), "{:?} touched only {:#?}", change, touched);
            for (pod, names) in &touched.pods {
                let whole = after.desired.get(pod).cloned().unwrap_or_default();
                prop_assert_eq!(resolver.desired_of(pod, names), part_of(&whole, names));
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

type Law = fn(&World, &Plan) -> bool;

const LAWS: [(&str, Law); 8] = [
    ("the same input gives the same bytes", |world, found| plan(world) == *found),
    ("only marked pods get configuration", only_marked_pods),
    ("every name on a proxy is ours", every_name_is_ours),
    ("what refers to something finds it there", references_are_whole),
    ("no endpoint is of the machinery", no_forbidden_endpoint),
    ("nothing is generated over a user's object", generated_are_not_users),
    ("one port has one listener on a proxy", ports_are_unique),
    ("who is refused has nothing on a proxy", refused_have_nothing),
];

fn only_marked_pods(world: &World, plan: &Plan) -> bool {
    plan.desired.keys().all(|pod| matches!(world.pods[pod].proxy_role(), ProxyRole::Proxy(_)) && !world.pods[pod].ended)
}

fn names(config: &ProxyConfig) -> BTreeSet<(ConfigKind, Arc<str>)> {
    let mut names = BTreeSet::new();
    names.extend(config.clusters.keys().map(|name| (ConfigKind::Cluster, Arc::clone(name))));
    names.extend(config.routes.keys().map(|name| (ConfigKind::Route, Arc::clone(name))));
    names.extend(config.rules.keys().map(|name| (ConfigKind::Rule, Arc::clone(name))));
    names.extend(config.rulelists.keys().map(|name| (ConfigKind::RuleList, Arc::clone(name))));
    names.extend(config.listeners.keys().map(|name| (ConfigKind::Listener, Arc::clone(name))));
    names
}

fn every_name_is_ours(_: &World, plan: &Plan) -> bool {
    let domain = ClusterDomain::default();
    plan.desired.values().all(|config| {
        let endpoints = config.clusters.values().flat_map(|cluster| &cluster.endpoints);
        names(config).iter().all(|(_, name)| domain.is_ours(name, false))
            && endpoints.into_iter().all(|endpoint| domain.is_ours(&endpoint.name, false))
    })
}

fn references_are_whole(_: &World, plan: &Plan) -> bool {
    plan.desired.values().all(|config| {
        let clusters = |names: &[Arc<str>]| names.iter().all(|name| config.clusters.contains_key(name));
        config.routes.values().all(|route| {
            config.clusters.contains_key(&route.destination) && clusters(&route.ingress) && clusters(&route.egress)
        }) && config.rules.values().all(|rule| rule.route.iter().all(|route| config.routes.contains_key(route)))
            && config.rulelists.values().flatten().all(|rule| config.rules.contains_key(rule))
            && config
                .listeners
                .values()
                .all(|listener| config.rulelists.contains_key(&listener.rules) || &*listener.rules == "static")
    })
}

fn no_forbidden_endpoint(world: &World, plan: &Plan) -> bool {
    plan.desired.iter().all(|(pod, config)| {
        let endpoints = config.clusters.values().flat_map(|cluster| &cluster.endpoints);
        endpoints.into_iter().all(|endpoint| {
            let address = endpoint.spec["address"].as_str().unwrap_or_default();
            let own = world.pods[pod].host_network && address.starts_with("127.");
            !own && !address.starts_with("169.254.")
        })
    })
}

fn generated_are_not_users(_: &World, plan: &Plan) -> bool {
    plan.generated.keys().all(|key| !plan.statuses.contains_key(key))
}

fn ports_are_unique(_: &World, plan: &Plan) -> bool {
    plan.desired.values().all(|config| {
        let mut seen = BTreeSet::new();
        let sockets = config.listeners.values().filter_map(|listener| {
            let opened = listener.spec.get("transport").unwrap_or(&listener.spec);
            let transport = if opened["protocol"] == "UDP" { "UDP" } else { "TCP" };
            let address = opened.get("address").and_then(serde_json::Value::as_str).unwrap_or("");
            Some((transport, opened.get("port")?.as_u64()?, address.to_owned()))
        });
        sockets.into_iter().all(|socket| seen.insert(socket))
    })
}

fn refused_have_nothing(world: &World, plan: &Plan) -> bool {
    plan.statuses.iter().all(|((kind, name), verdict)| {
        let full = world.settings.domain.full(*kind, name);
        let is_there = |config: &ProxyConfig| config.listeners.contains_key(&full);
        let whole = verdict.refused.as_ref().is_some_and(|note| note.reason != Reason::PortConflict);
        !whole || !plan.desired.values().any(is_there)
    })
}

/// Whether everything that is different was told.
fn tells_all(before: &Plan, after: &Plan, touched: &Affected) -> bool {
    let pods: BTreeSet<_> = before.desired.keys().chain(after.desired.keys()).collect();
    let none = ProxyConfig::default();
    let pods = pods.into_iter().all(|pod| {
        let (old, new) = (before.desired.get(pod).unwrap_or(&none), after.desired.get(pod).unwrap_or(&none));
        let told = touched.pods.get(pod).cloned().unwrap_or_default();
        let all: BTreeSet<_> = names(old).union(&names(new)).cloned().collect();
        let silent: BTreeSet<_> = all.difference(&told).cloned().collect();
        part_of(old, &silent) == part_of(new, &silent)
    });
    let generated: BTreeSet<_> = before.generated.keys().chain(after.generated.keys()).collect();
    let generated = generated
        .into_iter()
        .all(|key| touched.generated.contains(key) || before.generated.get(key) == after.generated.get(key));
    let said = |plan: &Plan, key: &(types::MeshKind, types::ObjectName)| {
        plan.statuses
            .get(key)
            .map(|verdict| (verdict.refused.clone(), verdict.unmet.clone(), verdict.diagnostics.clone()))
    };
    let verdicts = before.statuses.keys().chain(after.statuses.keys());
    let verdicts =
        verdicts.into_iter().all(|key| touched.objects.contains(key) || said(before, key) == said(after, key));
    pods && generated && verdicts
}

fn part_of(config: &ProxyConfig, names: &BTreeSet<(ConfigKind, Arc<str>)>) -> ProxyConfig {
    let mut part = config.clone();
    part.clusters.retain(|name, _| names.contains(&(ConfigKind::Cluster, Arc::clone(name))));
    part.routes.retain(|name, _| names.contains(&(ConfigKind::Route, Arc::clone(name))));
    part.rules.retain(|name, _| names.contains(&(ConfigKind::Rule, Arc::clone(name))));
    part.insertions.retain(|name, _| names.contains(&(ConfigKind::Rule, Arc::clone(name))));
    part.rulelists.retain(|name, _| names.contains(&(ConfigKind::RuleList, Arc::clone(name))));
    part.listeners.retain(|name, _| names.contains(&(ConfigKind::Listener, Arc::clone(name))));
    part
}
