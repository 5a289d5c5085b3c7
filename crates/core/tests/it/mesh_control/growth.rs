//! What one change costs must not grow with the number of objects around it.

use std::sync::Arc;

use portolan_core::mesh::control::types::MeshKind;
use portolan_core::mesh::control::*;
use serde_json::{Value, json};

use super::build::{Builder, name};

/// A gateway with many phone calls, each a VirtualService and a Target of its own, and as many that share one.
fn calls(count: usize) -> World {
    let mut builder = Builder::default()
        .service("gw", "gateway", &[("UDP", 1)])
        .service("w", "worker", &[("UDP", 19000)])
        .proxy("g0", "gateway", "10.1.0.1")
        .naked("w0", "worker", "10.1.0.5")
        .slices();
    for call in 0..count {
        let [target, service] = call_of(call, 1);
        builder = builder.object("Target", &format!("t{call}"), target);
        builder = builder.object("VirtualService", &format!("v{call}"), service);
    }
    builder.world
}

fn call_of(call: usize, session: usize) -> [Value; 2] {
    let to = if call.is_multiple_of(2) { format!("t{call}") } else { "w".to_owned() };
    [
        json!({"selector": {"matchService": "gw"}, "cluster": {"spec": {"protocol": "UDP", "port": 19000},
            "endpoints": [{"selector": {"matchLabels": {"app": "worker"}}}]}}),
        json!({"selector": {"matchService": "gw"}, "listener": {"protocol": "UDP", "port": 2000 + call},
            "rules": [{"action": {"rewrite": [{"path": "/labels/session", "value": session}], "route": {"destination": to}}}]}),
    ]
}

/// Nodes evaluated and things touched by making, editing and ending a call.
fn cost_of_a_call(world: World) -> (u64, usize) {
    let mut resolver = Resolver::new(world);
    let before = resolver.evaluations();
    let mut touched = 0;
    for call in [50_000, 50_001] {
        let object =
            |spec: Value| Some(MeshObject { created: 1_000_000, spec: Arc::new(spec), ..MeshObject::default() });
        let (t, v) = (name(&format!("t{call}")), name(&format!("v{call}")));
        let [target, service] = call_of(call, 1);
        let [_, edited] = call_of(call, 2);
        for change in [
            Change::Object(MeshKind::Target, t.clone(), object(target)),
            Change::Object(MeshKind::VirtualService, v.clone(), object(service)),
            Change::Object(MeshKind::VirtualService, v.clone(), object(edited)),
            Change::Object(MeshKind::VirtualService, v, None),
            Change::Object(MeshKind::Target, t, None),
        ] {
            let told = resolver.change(change);
            touched += told.objects.len() + told.generated.len();
            for (pod, names) in &told.pods {
                let config = resolver.desired_of(pod, names);
                touched += names.len() + config.clusters.len() + config.rules.len();
            }
        }
    }
    (resolver.evaluations() - before, touched)
}

#[test]
fn a_phone_call_costs_the_same_among_ten_thousand_as_among_a_hundred() {
    let few = cost_of_a_call(calls(100));
    assert_eq!(cost_of_a_call(calls(10_000)), few);
    assert!(few.0 <= 12, "{few:?}: every object is evaluated once per change");
}

#[test]
fn a_worker_that_comes_touches_one_cluster_however_many_share_it() {
    let world = {
        let mut builder = Builder::of(calls(0));
        for call in 0..1000 {
            let [_, service] = call_of(2 * call + 1, 1);
            builder = builder.object("VirtualService", &format!("v{call}"), service);
        }
        builder.world
    };
    let mut slice = world.slices[&name("w-1")].clone();
    let endpoint = SliceEndpoint { address: "10.1.0.6".parse().unwrap(), pod: None, ..slice.endpoints[0].clone() };
    slice.endpoints.push(endpoint);
    let mut resolver = Resolver::new(world);
    let before = resolver.evaluations();
    let touched = resolver.change(Change::Slice(name("w-1"), Some(slice)));
    assert_eq!(touched.pods[&name("g0")].len(), 1);
    assert!(resolver.evaluations() - before <= 3, "nobody who shares it is looked at again");
}
