//! The numbered requirements on the resolver, one test each.

use std::sync::Arc;

use portolan_core::mesh::control::types::MeshKind;
use portolan_core::mesh::control::*;
use serde_json::json;

use super::build::{Builder, Look, addresses, name, yaml};
use super::examples::{gateway, rendezvous};

/// A gateway proxy and two naked workers behind a Service.
fn base() -> Builder {
    Builder::default()
        .service("gw", "gateway", &[("UDP", 1)])
        .service("w", "worker", &[("UDP", 9999)])
        .proxy("g0", "gateway", "10.1.0.1")
        .naked("w0", "worker", "10.1.0.5")
        .naked("w1", "worker", "10.1.0.6")
        .slices()
}

/// A VirtualService of the gateway with one rule.
fn calling(to: &str) -> String {
    format!(
        "VirtualService v: {{selector: {{serviceName: gw}}, listener: {{protocol: UDP, port: 9001}}, rules: [{{action: {{route: {{destination: {to}}}}}}}]}}"
    )
}

const W: &str = "w.default.target.cluster.local";

#[test]
fn r1_kinds_map_to_kinds_and_the_rest_is_carried_over() {
    let plan = rendezvous().plan();
    let gateway = plan.on("gateway-0");
    let cluster = gateway.clusters["worker-target.default.target.cluster.local"].to_value();
    assert_eq!(cluster["loadbalancer"], json!({"policy": "ConsistentHash", "key": "/labels/session_id"}));
    let spec = "{protocol: JSONSocket, transport: {protocol: UDP, port: 19000}, handshake: {retransmit_ms: 100}}";
    assert_eq!(cluster["spec"], yaml(spec));
    let route = gateway.routes["gateway-route.default.route.cluster.local"].to_value();
    assert_eq!(route["retry"], yaml("{retry_on: always, num_retries: 3, timeout: 2000}"));
    let listener = gateway.listeners["gateway-user-a-vsvc.default.virtualservice.cluster.local"].to_value();
    assert_eq!(listener["options"], yaml("{removeOrphanSessions: true, track: 0}"));
    assert_eq!(listener["spec"], yaml("{protocol: UDP, port: 8001, connect: {address: 192.168.0.1, port: 8001}}"));
}

#[test]
fn r2_a_service_and_labels_give_the_same_pods() {
    let by = |selector: &str| {
        let text = format!("{{selector: {selector}, listener: {{protocol: UDP, port: 1}}, rules: []}}");
        let plan = base().object("VirtualService", "v", yaml(&text)).plan();
        plan.desired.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(by("{serviceName: gw}"), by("{matchLabels: {app: gateway}}"));
    assert_eq!(by("{serviceName: gw}"), [name("g0")]);
}

#[test]
fn r3_rules_keep_their_order_and_bad_matches_are_refused() {
    let rules = "[{match: {op: test, path: /a, value: 1}, action: {apply: l}}, {action: {apply: m}}]";
    let text = format!(
        "VirtualService v: {{selector: {{serviceName: gw}}, listener: {{protocol: UDP, port: 1}}, rules: {rules}}}"
    );
    let plan = base().objects(&text).plan();
    let gateway = plan.on("g0");
    let list = gateway.rulelists.values().next().unwrap();
    let applied: Vec<_> = list.iter().map(|rule| gateway.rules[rule].apply.as_deref().unwrap()).collect();
    assert_eq!(applied, ["l", "m"]);
    let bad = text.replace("op: test", "op: less").replace("value: 1", "value: x");
    assert_eq!(base().objects(&bad).plan().reasons("VirtualService", "v"), ["BadMatch"]);
}

#[test]
fn r4_a_rule_needs_route_or_apply() {
    let text = "VirtualService v: {selector: {serviceName: gw}, listener: {protocol: UDP, port: 1}, rules: [{action: {rewrite: [{path: /a, value: 1}]}}]}";
    assert_eq!(base().objects(text).plan().reasons("VirtualService", "v"), ["NoRoute"]);
}

#[test]
fn r5_inline_things_share_the_fate_of_their_object_and_named_ones_are_shared() {
    let two = |name: &str, port: u16| {
        format!(
            "VirtualService {name}: {{selector: {{serviceName: gw}}, listener: {{protocol: UDP, port: {port}}}, rules: [{{action: {{route: r}}}}]}}\n"
        )
    };
    let text = format!("{}{}Route r: {{destination: {{spec: {{protocol: Echo}}}}}}", two("a", 1), two("b", 2));
    let world = base().objects(&text);
    let gateway = world.plan().on("g0");
    assert_eq!((gateway.routes.len(), gateway.clusters.len(), gateway.rules.len()), (1, 1, 2));
    let mut resolver = Resolver::new(world.world.clone());
    for object in ["a", "b"] {
        assert_eq!(resolver.desired(&name("g0")).routes.len(), 1);
        resolver.change(Change::Object(MeshKind::VirtualService, name(object), None));
    }
    assert!(resolver.desired(&name("g0")).is_empty(), "a Route that nobody uses is nowhere");
}

#[test]
fn r6_one_named_target_is_one_cluster_and_two_inline_ones_are_two() {
    let worker = rendezvous().plan().on("worker-0");
    assert_eq!(worker.clusters.keys().filter(|name| name.starts_with("sync-target.")).count(), 1);
    let text = "VirtualService v: {selector: {serviceName: gw}, listener: {protocol: UDP, port: 1}, rules: [{action: {route: {destination: {spec: {protocol: Echo}}, ingress: [{spec: {protocol: Echo}}]}}}]}";
    let gateway = base().objects(text).plan().on("g0");
    let names: Vec<&Arc<str>> = gateway.clusters.keys().collect();
    assert_eq!(&*format!("{}-2", names[0]), &**names[1]);
}

#[test]
fn r10_a_string_is_a_target_else_a_virtual_service_else_a_service_else_nothing() {
    let target = "Target w: {selector: {serviceName: gw}, cluster: {spec: {protocol: TCP, port: 7}, endpoints: [{spec: {address: 10.9.9.9}}]}}";
    let stub = "VirtualService w: {selector: {matchLabels: {app: worker}}, listener: {protocol: TCP, port: 8}}";
    let spec = |builder: Builder| builder.plan().on("g0").clusters[W].spec.clone();
    let v = calling("w");
    assert_eq!(spec(base().objects(&format!("{v}\n{target}\n{stub}"))), json!({"protocol": "TCP", "port": 7}));
    assert_eq!(spec(base().objects(&format!("{v}\n{stub}"))), json!({"protocol": "TCP", "port": 8}));
    assert_eq!(spec(base().objects(&v)), json!({"protocol": "UDP", "port": 9999}));
    let plan = base().objects(&calling("nobody")).plan();
    let unmet = plan.verdict_of("VirtualService", "v").unmet;
    assert_eq!(
        unmet[0].to_string(),
        "RefNotFound: rules[0]: destination: `nobody`: Target, VirtualService or Service `nobody` does not exist in namespace `default`: create it, or correct the name"
    );
    assert!(plan.on("g0").is_empty());
}

#[test]
fn r10_generated_objects_never_decide_a_step() {
    let world = base().objects(&calling("w"));
    let plan = world.plan();
    let mut written = world.world.clone();
    for ((kind, name), made) in &plan.generated {
        let object = MeshObject {
            labels: made.labels.iter().map(|(key, value)| (*key, value.as_str())).collect(),
            annotations: made.annotations.iter().map(|(key, value)| (*key, value.as_str())).collect(),
            spec: Arc::new(made.spec.clone()),
            ..MeshObject::default()
        };
        written.objects.insert((*kind, name.clone()), object);
    }
    let again = portolan_core::mesh::control::plan(&written);
    assert_eq!((&again.desired, &again.generated), (&plan.desired, &plan.generated));
    assert!(again.unused.is_empty() && again.taken_over.is_empty());
}

#[test]
fn r11_an_object_is_a_whole_target() {
    let gateway =
        base().objects(&calling("{udp: {port: 5}, endpoints: [{spec: {address: 10.9.9.9}}]}")).plan().on("g0");
    let cluster = gateway.clusters.values().next().unwrap();
    assert!(cluster.name.starts_with("v.default.virtualservice.cluster.local~"));
    assert_eq!(addresses(&gateway, &cluster.name), ["10.9.9.9"]);
}

#[test]
fn r12_every_entry_of_the_chains_is_resolved_alike() {
    let text = "VirtualService v: {selector: {serviceName: gw}, listener: {protocol: UDP, port: 1}, rules: [{action: {route: {destination: w, ingress: [w, {spec: {protocol: Echo}}], egress: [w]}}}]}";
    let gateway = base().objects(text).plan().on("g0");
    let route = gateway.routes.values().next().unwrap();
    assert_eq!((&*route.ingress[0], &*route.egress[0], route.ingress.len()), (W, W, 2));
    assert!(gateway.clusters.contains_key(&route.ingress[1]));
    let gone = text.replace("egress: [w]", "egress: [nobody]");
    assert_eq!(base().objects(&gone).plan().reasons("VirtualService", "v")[0], "RefNotFound");
}

#[test]
fn r13_only_naked_services_are_wrapped() {
    let world = || {
        Builder::default()
            .service("gw", "gateway", &[("UDP", 1)])
            .proxy("g0", "gateway", "10.1.0.1")
            .service("w", "worker", &[("UDP", 9999)])
            .objects(&calling("w"))
    };
    assert_eq!(
        world().proxy("w0", "worker", "10.1.0.5").slices().plan().reasons("VirtualService", "v"),
        ["ProxyServiceNeedsVirtualService"]
    );
    let mixed = world().proxy("w0", "worker", "10.1.0.5").naked("w1", "worker", "10.1.0.6").slices().plan();
    assert!(mixed.reasons("VirtualService", "v").contains(&"MixedPods"));
    assert_eq!(mixed.on("g0").clusters.len(), 1);
    let empty = world().slices().plan();
    assert_eq!((empty.on("g0").clusters.len(), empty.reasons("VirtualService", "v")), (1, vec![]), "taken as naked");
}

#[test]
fn r14_the_port_is_the_pods_and_must_be_one() {
    let with = |change: &dyn Fn(&mut Service)| {
        let mut world = base().objects(&calling("w"));
        change(world.world.services.get_mut(&name("w")).unwrap());
        world.slices().plan()
    };
    let port = |plan: &Plan| plan.on("g0").clusters[W].spec["port"].clone();
    assert_eq!(port(&with(&|w| w.ports[0].target_port = Some(5000))), 5000);
    let two = with(&|w| w.ports.push(ServicePort { port: 2, protocol: "TCP".into(), ..ServicePort::default() }));
    let unmet = two.verdict_of("VirtualService", "v").unmet[0].to_string();
    assert!(unmet.contains("AmbiguousPort") && unmet.contains("9999/UDP, 2/TCP"), "{unmet}");
    let sctp = with(&|w| w.ports[0].protocol = "SCTP".into());
    assert_eq!(sctp.reasons("VirtualService", "v"), ["UnsupportedProtocol"]);
    let ws = with(&|w| {
        w.ports[0].protocol = "TCP".into();
        w.ports[0].app_protocol = Some("kubernetes.io/ws".into());
    });
    assert_eq!(ws.on("g0").clusters[W].spec["protocol"], "WebSocket");
    let external = with(&|w| {
        w.external_name = Some("db.example.com".into());
        w.selector = portolan_core::select::Labels::default();
    });
    assert_eq!(addresses(&external.on("g0"), W), ["db.example.com"]);
    let mut mixed = base().objects(&calling("w")).world;
    let mut other = mixed.slices[&name("w-1")].clone();
    other.ports[0].port = 7777;
    mixed.slices.insert(name("w-2"), other);
    assert_eq!(portolan_core::mesh::control::plan(&mixed).reasons("VirtualService", "v"), ["MixedPorts"]);
}

#[test]
fn r14_a_service_without_selector_is_reached_where_its_slices_say() {
    let mut world = base().service("ext", "", &[("UDP", 53)]).objects(&calling("ext")).world;
    let endpoint = |address: &str| SliceEndpoint {
        address: address.parse().unwrap(),
        ready: true,
        serving: true,
        terminating: false,
        pod: None,
    };
    let endpoints = ["10.7.0.2", "10.7.0.1", "169.254.169.254", "127.0.0.1"].map(endpoint).to_vec();
    world.slices.insert(
        name("ext-1"),
        EndpointSlice { service: "ext".into(), ports: vec![SlicePort { name: "".into(), port: 5353 }], endpoints },
    );
    let gateway = portolan_core::mesh::control::plan(&world).on("g0");
    assert_eq!(addresses(&gateway, "ext.default.target.cluster.local"), ["10.7.0.1", "10.7.0.2"]);
    assert_eq!(gateway.clusters["ext.default.target.cluster.local"].spec["port"], 5353);
}

#[test]
fn r15_a_route_string_is_a_route_and_a_link_goes_through_the_steps() {
    let text = "VirtualService v: {selector: {serviceName: gw}, listener: {protocol: UDP, port: 1}, rules: [{action: {route: nobody}}]}";
    assert_eq!(base().objects(text).plan().reasons("VirtualService", "v"), ["RefNotFound"]);
    let linked = "Target t: {selector: {serviceName: gw}, linkedVirtualService: w, cluster: {loadbalancer: {policy: ConsistentHash}}}";
    let plan = base().objects(linked).plan();
    assert_eq!(addresses(&plan.on("g0"), "t.default.target.cluster.local"), ["10.1.0.5", "10.1.0.6"]);
    assert_eq!(plan.generated_names(), ["VirtualService default/w"]);
    let gone = linked.replace("linkedVirtualService: w", "linkedVirtualService: nobody");
    assert_eq!(base().objects(&gone).plan().reasons("Target", "t"), ["RefNotFound"]);
}

#[test]
fn r16_a_target_that_appears_takes_over_and_one_that_vanishes_falls_back() {
    let mut resolver = Resolver::new(base().objects(&calling("w")).world);
    let spec = yaml(
        "{selector: {serviceName: gw}, cluster: {spec: {protocol: TCP, port: 7}, endpoints: [{spec: {address: 10.9.9.9}}]}}",
    );
    let object = MeshObject { spec: Arc::new(spec), ..MeshObject::default() };
    let port = |resolver: &Resolver| resolver.desired(&name("g0")).clusters[W].spec["port"].clone();
    assert_eq!(port(&resolver), 9999);
    resolver.change(Change::Object(MeshKind::Target, name("w"), Some(object)));
    assert_eq!((port(&resolver), resolver.plan().generated_names().len()), (json!(7), 0));
    resolver.change(Change::Object(MeshKind::Target, name("w"), None));
    assert_eq!((port(&resolver), resolver.plan().generated_names().len()), (json!(9999), 2));
}

#[test]
fn r17_a_chain_back_to_its_own_listener_is_refused() {
    let one = |name: &str, app: &str, port: u16, to: &str| {
        format!(
            "VirtualService {name}: {{selector: {{matchLabels: {{app: {app}}}}}, listener: {{protocol: UDP, port: {port}}}, rules: [{{action: {{route: {{destination: {to}}}}}}}]}}\n"
        )
    };
    let plan = base().objects(&one("a", "gateway", 1, "a")).plan();
    assert_eq!(plan.reasons("VirtualService", "a"), ["RouteLoop"]);
    assert!(plan.on("g0").listeners.is_empty());
    let same = one("a", "gateway", 1, "b") + &one("b", "gateway", 2, "a");
    let plan = base().objects(&same).plan();
    assert_eq!(
        [plan.reasons("VirtualService", "a"), plan.reasons("VirtualService", "b")],
        [["RouteLoop"], ["RouteLoop"]]
    );
    let apart = one("a", "gateway", 1, "b") + &one("b", "other", 2, "a");
    let plan = base().proxy("o0", "other", "10.1.0.9").objects(&apart).plan();
    assert_eq!(plan.reasons("VirtualService", "a"), ["PossibleLoop"]);
    assert_eq!(plan.on("o0").listeners.len(), 1);
}

#[test]
fn r20_objects_are_generated_only_for_what_is_named() {
    let text = calling("w");
    assert!(base().plan().generated.is_empty());
    let plan = base().service("other", "other", &[("UDP", 5)]).objects(&text).plan();
    assert_eq!(plan.generated_names(), ["VirtualService default/w", "Target default/w"]);
    let made = &plan.generated[&(MeshKind::Target, name("w"))];
    assert_eq!(made.labels["l7mp.io/generated"], "true");
    assert_eq!(made.labels["app.kubernetes.io/managed-by"], "portolan");
    assert_eq!(made.annotations["l7mp.io/generated-for"], "VirtualService/default/v");
}

#[test]
fn r21_a_generated_virtual_service_is_a_bare_stub_of_its_service() {
    let plan = base().objects(&calling("w")).plan();
    let made = &plan.generated[&(MeshKind::VirtualService, name("w"))];
    assert_eq!(made.spec, yaml("{selector: {matchService: w}, listener: {protocol: UDP, port: 9999}}"));
    assert_eq!(made.owners, [Owner { kind: MeshKind::Service, name: "w".into(), uid: "uid-w".into() }]);
    assert!(plan.desired.values().all(|config| config.listeners.len() == 1), "no listener for it");
}

#[test]
fn r22_a_generated_target_is_bound_to_its_callers() {
    let two = format!(
        "{}\nVirtualService u: {{selector: {{matchLabels: {{app: other}}}}, listener: {{protocol: UDP, port: 2}}, rules: [{{action: {{route: {{destination: w}}}}}}]}}",
        calling("w")
    );
    let plan = base().proxy("o0", "other", "10.1.0.9").objects(&two).plan();
    let made = &plan.generated[&(MeshKind::Target, name("w"))];
    assert_eq!(made.spec["selector"], yaml("{anyOf: [{matchLabels: {app: other}}, {matchService: gw}]}"));
    assert_eq!(made.owners.iter().map(|owner| &*owner.name).collect::<Vec<_>>(), ["u", "v"]);
    assert_eq!(plan.on("o0").clusters.len(), 1);
    let foreign = Builder::default()
        .proxy("g0", "gateway", "10.1.0.1")
        .service("gw", "gateway", &[("UDP", 1)])
        .service("far/w", "worker", &[("UDP", 5)])
        .naked("far/w0", "worker", "10.1.0.5")
        .slices()
        .objects(&calling("w.far.svc.cluster.local"))
        .annotate("Service", "far/w", "l7mp.io/export-to", "default")
        .plan();
    assert_eq!(foreign.generated_names(), ["VirtualService far/w", "Target default/w.far"]);
    let made = &foreign.generated[&(MeshKind::Target, name("w.far"))];
    assert_eq!(made.spec["cluster"]["endpoints"], yaml("[{selector: {matchService: w.far.svc.cluster.local}}]"));
    assert_eq!(addresses(&foreign.on("g0"), "w.far.default.target.cluster.local"), ["10.1.0.5"]);
}

#[test]
fn r23_a_generated_object_that_a_user_edits_is_the_users() {
    let world = base().objects(&calling("w"));
    let made = world.plan().generated[&(MeshKind::Target, name("w"))].clone();
    let mut spec = made.spec.clone();
    spec["cluster"]["spec"]["port"] = json!(7);
    let object = MeshObject {
        labels: made.labels.iter().map(|(key, value)| (*key, value.as_str())).collect(),
        annotations: made.annotations.iter().map(|(key, value)| (*key, value.as_str())).collect(),
        spec: Arc::new(spec),
        ..MeshObject::default()
    };
    let mut resolver = Resolver::new(world.world);
    resolver.change(Change::Object(MeshKind::Target, name("w"), Some(object.clone())));
    let plan = resolver.plan();
    assert_eq!(plan.taken_over.iter().map(|(_, name)| name.to_string()).collect::<Vec<_>>(), ["default/w"]);
    assert_eq!(plan.on("g0").clusters[W].spec["port"], 7);
    assert!(!plan.generated.contains_key(&(MeshKind::Target, name("w"))));
    let applied = MeshObject {
        annotations: object
            .annotations
            .iter()
            .chain([("kubectl.kubernetes.io/last-applied-configuration", "{}")])
            .collect(),
        spec: Arc::new(made.spec),
        ..object
    };
    resolver.change(Change::Object(MeshKind::Target, name("w"), Some(applied)));
    assert_eq!(resolver.plan().taken_over.len(), 1, "applied as it stands, it is taken over too");
}

#[test]
fn r24_what_nobody_names_any_more_is_unused_and_what_changes_is_updated() {
    let world = base().objects(&calling("w"));
    let mut resolver = Resolver::new(world.world.clone());
    for ((kind, name), made) in world.plan().generated {
        let object = MeshObject {
            labels: made.labels.iter().map(|(key, value)| (*key, value.as_str())).collect(),
            annotations: made.annotations.iter().map(|(key, value)| (*key, value.as_str())).collect(),
            spec: Arc::new(made.spec),
            ..MeshObject::default()
        };
        resolver.change(Change::Object(kind, name, Some(object)));
    }
    let mut service = world.world.services[&name("w")].clone();
    service.ports[0].port = 7000;
    resolver.change(Change::Slice(name("w-1"), None));
    let touched = resolver.change(Change::Service(name("w"), Some(service)));
    assert!(touched.generated.contains(&(MeshKind::Target, name("w"))));
    let spec = |resolver: &Resolver, kind| resolver.generated(kind, &name("w")).unwrap().spec;
    assert_eq!(spec(&resolver, MeshKind::Target)["cluster"]["spec"]["port"], 7000);
    assert_eq!(spec(&resolver, MeshKind::VirtualService)["listener"]["port"], 7000);
    resolver.change(Change::Object(MeshKind::VirtualService, name("v"), None));
    assert_eq!(resolver.plan().unused.len(), 2);
}

#[test]
fn r25_without_permission_to_write_resolution_lives_in_memory() {
    let mut world = base().objects(&calling("w"));
    world.world.settings.writes_generated = false;
    let plan = world.plan();
    assert_eq!(plan.on("g0").clusters.len(), 1);
    assert!(plan.reasons("VirtualService", "v").contains(&"GeneratedInMemory"));
}

#[test]
fn r30_a_listener_becomes_what_its_clients_need() {
    let made = |listener: &str| {
        let stub = format!(
            "VirtualService s: {{selector: {{matchLabels: {{app: worker}}}}, listener: {listener}}}\n{}",
            calling("s")
        );
        let plan = base().objects(&stub).plan();
        let cluster = plan.on("g0").clusters.get("s.default.target.cluster.local").map(|one| one.spec.clone());
        cluster.ok_or_else(|| plan.reasons("VirtualService", "v")[0])
    };
    let is = |text: &str| Ok(yaml(text));
    assert_eq!(
        made(
            "{protocol: UDP, port: 2000, connect: {address: 1.2.3.4, port: 5}, address: 10.0.0.1, options: {mode: server}}"
        ),
        is("{protocol: UDP, port: 2000}")
    );
    assert_eq!(made("{protocol: TCP, port: 2}"), is("{protocol: TCP, port: 2}"));
    assert_eq!(made("{protocol: WebSocket, port: 2, path: /x}"), is("{protocol: WebSocket, port: 2}"));
    assert_eq!(
        made("{protocol: JSONSocket, transport: {protocol: UDP, port: 19000, connect: {address: 1.2.3.4, port: 5}}}"),
        is("{protocol: JSONSocket, transport: {protocol: UDP, port: 19000}}")
    );
    assert_eq!(made("{protocol: UnixDomainSocket, filename: /run/s}"), Err("NotRemote"));
    assert_eq!(made("{protocol: HTTP, port: 80}"), Err("UnsupportedByProxy"));
}

#[test]
fn r30_a_socket_file_is_reached_from_its_own_pod() {
    let text = format!(
        "VirtualService s: {{selector: {{serviceName: gw}}, listener: {{protocol: UnixDomainSocket, filename: /run/s}}}}\n{}",
        calling("s")
    );
    let plan = base().objects(&text).plan();
    assert_eq!(addresses(&plan.on("g0"), "s.default.target.cluster.local"), ["/run/s"]);
    let tls = format!(
        "VirtualService s: {{selector: {{matchLabels: {{app: worker}}}}, listener: {{protocol: TCP, port: 5}}, tls: {{secretName: x}}}}\n{}",
        calling("s")
    );
    let cluster = base().objects(&tls).plan().on("g0").clusters["s.default.target.cluster.local"].to_value();
    assert_eq!(cluster["spec"]["tls"], json!({"secret_name": "x"}));
}

#[test]
fn r40_dynamic_endpoints_follow_the_pods() {
    let by_label = calling("{spec: {protocol: UDP, port: 1}, endpoints: [{selector: {matchLabels: {app: worker}}}]}");
    let of = |world: Builder| {
        let gateway = world.slices().plan().on("g0");
        let cluster = gateway.clusters.keys().next().unwrap().clone();
        addresses(&gateway, &cluster)
    };
    for text in [&by_label, &calling("w")] {
        let world = || base().naked("w2", "worker", "9.1.0.1").naked("w3", "worker", "fd00::1").objects(text);
        assert_eq!(of(world()), ["9.1.0.1", "10.1.0.5", "10.1.0.6", "fd00::1"], "by family, then number");
        assert_eq!(of(world().with_pod("w0", |pod| pod.ready = false)), ["9.1.0.1", "10.1.0.6", "fd00::1"]);
        assert_eq!(of(world().with_pod("w0", |pod| pod.ended = true)), ["9.1.0.1", "10.1.0.6", "fd00::1"]);
        let leaving = of(world().with_pod("w0", |pod| pod.terminating = true));
        assert_eq!(leaving, ["9.1.0.1", "10.1.0.5 draining", "10.1.0.6", "fd00::1"]);
    }
    let all_leaving = base()
        .objects(&calling("w"))
        .with_pod("w0", |pod| pod.terminating = true)
        .with_pod("w1", |pod| pod.terminating = true);
    assert_eq!(of(all_leaving), ["10.1.0.5", "10.1.0.6"], "none is ready, so those that serve");
    let mut early = base().objects(&calling("w")).with_pod("w0", |pod| pod.ready = false);
    early.world.services.get_mut(&name("w")).unwrap().publish_not_ready = true;
    assert_eq!(of(early), ["10.1.0.5", "10.1.0.6"]);
}

#[test]
fn r40_a_pod_that_comes_touches_the_target_and_no_virtual_service() {
    let text = format!(
        "{}\nTarget t: {{selector: {{serviceName: gw}}, cluster: {{spec: {{protocol: UDP, port: 1}}, endpoints: [{{selector: {{matchLabels: {{app: worker}}}}}}]}}}}",
        calling("t")
    );
    let world = base().objects(&text).world;
    let pod = world.pods[&name("w0")].clone();
    let mut resolver = Resolver::new(world);
    let pod = Pod { addresses: vec!["10.1.0.9".parse().unwrap()], ..pod };
    let touched = resolver.change(Change::Pod(name("w9"), Some(pod)));
    let names: Vec<&str> = touched.pods[&name("g0")].iter().map(|(_, name)| &**name).collect();
    assert_eq!(names, ["t.default.target.cluster.local"]);
    assert!(!touched.objects.contains(&(MeshKind::VirtualService, name("v"))));
}

#[test]
fn r41_static_endpoints_are_copied_word_for_word() {
    let text = calling(
        "{spec: {protocol: UDP, port: 1}, endpoints: [{spec: {address: zebra.example.com}, weight: 3}, {spec: {address: 10.0.0.9}}]}",
    );
    let cluster = base().objects(&text).plan().on("g0").clusters.values().next().unwrap().to_value();
    let specs: Vec<_> = cluster["endpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["spec"]["address"].clone(), one["weight"].clone()))
        .collect();
    assert_eq!(specs, [(json!("zebra.example.com"), json!(3)), (json!("10.0.0.9"), json!(1))]);
}

#[test]
fn r42_trivial_with_many_endpoints_is_remarked() {
    let plan = base().objects(&calling("w")).plan();
    assert_eq!(plan.reasons("VirtualService", "v"), ["TrivialWithManyEndpoints"]);
    let hashed = "Target w: {selector: {serviceName: gw}, cluster: {linkedVirtualService: w, loadbalancer: {policy: ConsistentHash}}}";
    let plan = base().objects(&format!("{}\n{hashed}", calling("w"))).plan();
    assert!(plan.reasons("Target", "w").is_empty());
}

#[test]
fn r43_dual_stack_pods_are_called_by_their_primary_family_or_as_the_target_says() {
    let text = "Target t: {selector: {serviceName: gw}, cluster: {spec: {protocol: UDP, port: 1}, endpoints: [{selector: {matchLabels: {app: worker}}}]}}";
    let world = || base().objects(text).with_pod("w0", |pod| pod.addresses.push("fd00::5".parse().unwrap()));
    let t = "t.default.target.cluster.local";
    assert_eq!(addresses(&world().plan().on("g0"), t), ["10.1.0.5", "10.1.0.6"]);
    let six = world().annotate("Target", "t", "l7mp.io/ip-family", "IPv6");
    assert_eq!(addresses(&six.plan().on("g0"), t), ["fd00::5"]);
    assert!(addresses(&six.l7mp("g0").plan().on("g0"), t).is_empty(), "a real l7mp has UDP over IPv4 only");
}

#[test]
fn r50_a_target_that_leaves_out_a_proxy_that_needs_it_is_told() {
    let text = format!(
        "{}\nTarget t: {{selector: {{matchLabels: {{app: other}}}}, cluster: {{spec: {{protocol: Echo}}}}}}",
        calling("t")
    );
    let plan = base().proxy("o0", "other", "10.1.0.9").objects(&text).plan();
    let unmet = plan.verdict_of("VirtualService", "v").unmet;
    assert_eq!(
        unmet[0].to_string(),
        "TargetNotPlacedHere: Target `t` is not on pod `g0`: its selector does not match the pod: extend the selector"
    );
    assert!(plan.on("g0").is_empty());
    assert_eq!(plan.on("o0").clusters.len(), 1, "the Target is where its selector says");
}

#[test]
fn r51_everything_inline_is_where_its_virtual_service_is() {
    let plan = gateway().plan();
    let transcoder = plan.on("transcoder-0");
    assert_eq!(
        (transcoder.routes.len(), transcoder.rules.len(), transcoder.rulelists.len(), transcoder.clusters.len()),
        (1, 1, 1, 1)
    );
}

#[test]
fn r52_targets_without_endpoints_are_placed_like_any_other() {
    let text = "Target s: {selector: {serviceName: gw}, cluster: {spec: {protocol: Sync, query: /labels/a}}}\nTarget l: {selector: {serviceName: gw}, cluster: {spec: {protocol: Logger}}}";
    let gateway = base().objects(text).plan().on("g0");
    assert_eq!(gateway.clusters.len(), 2);
    assert!(gateway.clusters.values().all(|cluster| cluster.to_value().get("endpoints").is_none()));
}
