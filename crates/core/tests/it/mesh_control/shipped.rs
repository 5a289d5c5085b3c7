//! What the operator that l7mp shipped did wrong, each by its name; those that need packets stand with the controller.

use portolan_core::mesh::control::types::MeshKind;
use portolan_core::mesh::control::*;

use super::build::{Builder, Look, addresses, name};
use super::examples::{gateway, rendezvous};
use super::proxy::Proxy;

const GATEWAY: &str = "VirtualService v: {selector: {matchLabels: {app: gateway}}, listener: {protocol: UDP, port: 9001}, rules: [{action: {route: HERE}}]}\n";

fn leading(way: &str) -> String {
    GATEWAY.replace("HERE", way)
}

fn world() -> Builder {
    Builder::default()
        .service("w", "worker", &[("UDP", 9999)])
        .proxy("g0", "gateway", "10.1.0.1")
        .naked("w0", "worker", "10.1.0.5")
        .slices()
}

/// What is there under a name is compared before anything is added: another thing is replaced, the same is left alone.
#[test]
fn already_defined_is_compared() {
    let config = world().objects(&leading("{destination: {spec: {protocol: Echo}}}")).l7mp("g0").plan().on("g0");
    let mut proxy = Proxy::with_foreign();
    let ownership = Ownership::default();
    let calls = |proxy: &Proxy| {
        diff(&config, &ObservedConfig::of(&proxy.config()), ProxyImplementation::L7mp, &ownership).calls
    };
    for call in calls(&proxy) {
        proxy.take(&call).expect("a call that l7mp takes");
    }
    assert_eq!(calls(&proxy), [], "the same is left alone");
    let listener = "v.default.virtualservice.cluster.local";
    let path = format!("/api/v1/listeners/{listener}");
    proxy.take(&ProxyCall { method: CallMethod::Delete, path: path.clone(), body: None }).expect("it is there");
    let other = serde_json::json!({"listener": {
        "name": listener, "spec": {"protocol": "UDP", "port": 1}, "rules": listener, "options": {"track": 0},
    }});
    let add = ProxyCall { method: CallMethod::Post, path: "/api/v1/listeners".to_owned(), body: Some(other) };
    proxy.take(&add).expect("the name is free");
    assert!(proxy.take(&add).is_err_and(|why| why.ends_with(" already defined")), "l7mp would refuse the plain add");
    let made = calls(&proxy);
    assert_eq!(
        made.iter().map(|call| (call.method, call.path.as_str())).collect::<Vec<_>>(),
        [(CallMethod::Delete, path.as_str()), (CallMethod::Post, "/api/v1/listeners")]
    );
}

#[test]
fn order_of_arrival_does_not_matter() {
    for example in [gateway(), rendezvous()] {
        let whole = example.plan();
        let mut objects: Vec<_> = example.world.objects.clone().into_iter().collect();
        for turn in 0..objects.len() {
            objects.rotate_left(1);
            if turn % 2 == 0 {
                objects.reverse();
            }
            let mut resolver =
                Resolver::new(World { objects: std::collections::BTreeMap::new(), ..example.world.clone() });
            for ((kind, name), object) in &objects {
                resolver.change(Change::Object(*kind, name.clone(), Some(object.clone())));
            }
            assert_eq!(resolver.plan(), whole);
        }
    }
}

#[test]
fn route_kind_exists() {
    let text = leading("r") + "Route r: {destination: w, retry: {retry_on: always}}";
    let proxy = world().objects(&text).plan().on("g0");
    let route = &proxy.routes["r.default.route.cluster.local"];
    assert_eq!(&*route.destination, "w.default.target.cluster.local");
    assert_eq!(proxy.rules.values().next().unwrap().route.as_deref(), Some("r.default.route.cluster.local"));
}

#[test]
fn string_hops_resolve() {
    let text = leading("{destination: w, ingress: [stub], egress: [t]}")
        + "VirtualService stub: {selector: {matchLabels: {app: worker}}, listener: {protocol: TCP, port: 7}}\n"
        + "Target t: {selector: {matchLabels: {app: gateway}}, cluster: {spec: {protocol: Echo}}}";
    let proxy = world().objects(&text).plan().on("g0");
    let route = proxy.routes.values().next().unwrap();
    let full = |name: &str| format!("{name}.default.target.cluster.local");
    assert_eq!([&*route.destination, &*route.ingress[0], &*route.egress[0]], [full("w"), full("stub"), full("t")]);
    assert!(["w", "stub", "t"].iter().all(|one| proxy.clusters.contains_key(full(one).as_str())));
}

#[test]
fn naked_wrapped_automatically() {
    let plan = world().objects(&leading("{destination: w}")).plan();
    assert_eq!(plan.generated_names(), ["VirtualService default/w", "Target default/w"]);
    assert_eq!(addresses(&plan.on("g0"), "w.default.target.cluster.local"), ["10.1.0.5"]);
}

/// C6: what runs no proxy is told nothing, whatever becomes of it.
#[test]
fn c6_naked_services_cause_no_calls() {
    let mut resolver = Resolver::new(world().objects(&leading("{destination: w}")).world);
    assert_eq!(resolver.plan().desired.keys().cloned().collect::<Vec<_>>(), [name("g0")]);
    for pod in [Some(resolver.world().pods[&name("w0")].clone()), None] {
        let changed = pod.map(|pod| Pod { ready: false, ..pod });
        let touched = resolver.change(Change::Pod(name("w0"), changed));
        assert!(!touched.pods.contains_key(&name("w0")));
    }
    let touched = resolver.change(Change::Service(name("w"), None));
    assert_eq!(touched.pods.keys().cloned().collect::<Vec<_>>(), [name("g0")], "only the caller loses its way");
}

/// C8: nothing keeps a Target that others name; who names it can be told from its verdict before it goes.
#[test]
fn c8_a_target_that_is_named_may_go() {
    let text = leading("r") + "Route r: {destination: t}\nTarget t: {selector: {}, cluster: {spec: {protocol: Echo}}}";
    let mut resolver = Resolver::new(world().objects(&text).world);
    assert_eq!(resolver.status(MeshKind::Target, &name("t")).unwrap().used_by, [(MeshKind::Route, name("r"))]);
    let touched = resolver.change(Change::Object(MeshKind::Target, name("t"), None));
    assert!(touched.objects.contains(&(MeshKind::Route, name("r"))), "its users are told");
    assert!(resolver.desired(&name("g0")).is_empty());
    assert_eq!(resolver.status(MeshKind::Route, &name("r")).unwrap().unmet[0].reason, Reason::RefNotFound);
}

#[test]
fn port_clash_reported() {
    let text =
        leading("{destination: w}") + &leading("{destination: w}").replace("VirtualService v:", "VirtualService late:");
    let plan = world().objects(&text).plan();
    assert_eq!(plan.reasons("VirtualService", "late"), ["PortConflict"]);
    assert_eq!(plan.verdict_of("VirtualService", "v").refused, None);
    assert_eq!(plan.on("g0").listeners.len(), 1);
}

#[test]
fn exists_without_values() {
    for (operator, found) in [("Exists", 1), ("DoesNotExist", 0), ("DoesNotexist", 0)] {
        let text = format!(
            "VirtualService v: {{selector: {{matchLabels: {{app: gateway}}, matchExpressions: [{{key: app, operator: {operator}}}]}}, listener: {{protocol: UDP, port: 1}}, rules: [{{action: {{route: {{destination: w}}}}}}]}}"
        );
        let plan = world().objects(&text).plan();
        assert_eq!(plan.verdict_of("VirtualService", "v").refused, None, "{operator}");
        assert_eq!(plan.on("g0").listeners.len(), found, "{operator}");
    }
}

#[test]
fn stdio_spelt_right() {
    for spelt in ["Stdio", "Sdtio"] {
        let text = leading("{destination: {spec: {PROTOCOL: {}}}}").replace("PROTOCOL", spelt);
        let world =
            world().with_pod("g0", |pod| pod.annotations = [("l7mp.io/allow-stdio", "true")].into_iter().collect());
        let proxy = world.objects(&text).plan().on("g0");
        assert_eq!(proxy.clusters.values().next().unwrap().spec["protocol"], "Stdio", "{spelt}");
    }
}

#[test]
fn ready_flap_is_not_deletion() {
    let mut resolver = Resolver::new(world().objects(&leading("{destination: w}")).world);
    let before = resolver.desired(&name("g0"));
    assert!(!before.is_empty());
    let pod = resolver.world().pods[&name("g0")].clone();
    for ready in [false, true] {
        let touched = resolver.change(Change::Pod(name("g0"), Some(Pod { ready, ..pod.clone() })));
        assert!(touched.pods.is_empty(), "a proxy whose pod is not ready is told nothing");
        assert_eq!(resolver.desired(&name("g0")), before);
    }
}
