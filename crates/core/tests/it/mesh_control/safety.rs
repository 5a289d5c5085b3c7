//! Pods and proxies, consent between namespaces, forbidden endpoints, ports, and the delete cascade.

use std::sync::Arc;

use portolan_core::mesh::control::types::MeshKind;
use portolan_core::mesh::control::*;

use super::build::{Builder, Look, addresses, name, yaml};

fn proxied(of: &str, port: u16, app: &str) -> String {
    format!(
        "VirtualService {of}: {{selector: {{matchLabels: {{app: {app}}}}}, listener: {{protocol: UDP, port: {port}}}, rules: [{{action: {{route: {{destination: {{spec: {{protocol: Echo}}}}}}}}}}]}}\n"
    )
}

#[test]
fn pods_are_proxies_by_their_marks_alone() {
    let container = |name: &str, port: &str, number: u16| Container {
        name: name.into(),
        ports: vec![ContainerPort { name: port.into(), transport: Transport::Tcp, port: number }],
    };
    let pod = |labels: &[(&str, &str)], annotations: &[(&str, &str)], containers: Vec<Container>| Pod {
        labels: labels.iter().copied().collect(),
        annotations: annotations.iter().copied().collect(),
        containers,
        ..Pod::default()
    };
    for (pod, mark) in [
        (pod(&[], &[], vec![]), ProxyRole::Naked),
        (pod(&[("l7mp.io/proxy", "true")], &[], vec![]), ProxyRole::Proxy(1234)),
        (pod(&[], &[], vec![container("l7mp", "x", 1)]), ProxyRole::Proxy(1234)),
        (pod(&[], &[], vec![container("portolan-proxy", "x", 1)]), ProxyRole::Proxy(1234)),
        (pod(&[], &[], vec![container("app", "l7mp-api", 4321)]), ProxyRole::Proxy(4321)),
        (pod(&[], &[("l7mp.io/api-port", "99")], vec![container("l7mp", "l7mp-api", 4321)]), ProxyRole::Proxy(99)),
        (pod(&[("l7mp.io/proxy", "false")], &[], vec![container("l7mp", "l7mp-api", 1)]), ProxyRole::Naked),
        (pod(&[], &[], vec![container("l7mp", "a", 1), container("portolan-proxy", "b", 2)]), ProxyRole::TwoProxies),
    ] {
        assert_eq!(pod.proxy_role(), mark, "{pod:?}");
    }
}

#[test]
fn n1_n2_stubs_and_naked_pods_get_nothing() {
    let stub = "VirtualService s: {selector: {matchLabels: {app: a}}, listener: {protocol: UDP, port: 1}}";
    assert!(Builder::default().proxy("p", "a", "10.0.0.1").objects(stub).plan().desired.is_empty());
    let plan = Builder::default()
        .proxy("p", "a", "10.0.0.1")
        .naked("q", "a", "10.0.0.2")
        .objects(&proxied("v", 1, "a"))
        .plan();
    assert_eq!(plan.desired.keys().cloned().collect::<Vec<_>>(), [name("p")]);
}

#[test]
fn n3_n4_rules_need_proxies() {
    let plan = Builder::default().naked("q", "a", "10.0.0.2").objects(&proxied("v", 1, "a")).plan();
    let refused = plan.verdict_of("VirtualService", "v").refused.unwrap();
    assert_eq!(refused.to_string(), "NakedService: the pods of `v` run no proxy: add a sidecar, or remove `rules`");
    let some = Builder::default()
        .proxy("p", "a", "10.0.0.1")
        .naked("q", "a", "10.0.0.2")
        .naked("r", "a", "10.0.0.3")
        .objects(&proxied("v", 1, "a"))
        .plan();
    let verdict = some.verdict_of("VirtualService", "v");
    assert_eq!(verdict.diagnostics[0].to_string(), "NakedPods: 2 of 3 pods run no proxy and are skipped");
    assert_eq!((verdict.matched, verdict.naked, verdict.proxies), (3, 2, 1));
}

#[test]
fn n5_n6_no_pods_is_no_mistake() {
    let target = "Target t: {selector: {matchLabels: {app: a}}, cluster: {spec: {protocol: Echo}}}";
    let plan = Builder::default().naked("q", "b", "10.0.0.2").objects(&(proxied("v", 1, "a") + target)).plan();
    assert_eq!((plan.reasons("VirtualService", "v"), plan.reasons("Target", "t")), (vec!["NoPods"], vec!["NoPods"]));
}

#[test]
fn the_older_object_keeps_a_port_and_the_next_gets_it_when_it_goes() {
    let mut resolver = Resolver::new(
        Builder::default()
            .proxy("p", "a", "10.0.0.1")
            .objects(&(proxied("old", 1, "a") + &proxied("young", 1, "a")))
            .world,
    );
    let plan = resolver.plan();
    let refused = plan.verdict_of("VirtualService", "young").refused.unwrap();
    assert_eq!(
        refused.to_string(),
        "PortConflict: UDP port 1 on pod `p` is in use by VirtualService `default/old`, which is older: use another port"
    );
    assert_eq!(plan.on("p").listeners.len(), 1);
    let touched = resolver.change(Change::Object(MeshKind::VirtualService, name("old"), None));
    assert!(touched.objects.contains(&(MeshKind::VirtualService, name("young"))));
    assert!(resolver.desired(&name("p")).listeners.contains_key("young.default.virtualservice.cluster.local"));
    assert_eq!(resolver.status(MeshKind::VirtualService, &name("young")).unwrap().refused, None);
}

#[test]
fn the_proxys_own_ports_are_taken_from_the_start() {
    let tcp = |port: u16| {
        format!("VirtualService v: {{selector: {{}}, listener: {{protocol: WebSocket, port: {port}}}, rules: []}}")
    };
    let world = |port: u16| Builder::default().proxy("p", "a", "10.0.0.1").objects(&tcp(port));
    assert_eq!(world(1234).plan().reasons("VirtualService", "v"), ["PortConflict"]);
    assert!(world(1235).plan().reasons("VirtualService", "v").is_empty());
    let mut taken = world(8080);
    taken.world.proxies.insert(
        name("p"),
        ProxyInfo {
            implementation: ProxyImplementation::L7mp,
            foreign_ports: vec![ListenerPort { transport: Transport::Tcp, address: None, port: 8080 }],
        },
    );
    assert_eq!(taken.plan().reasons("VirtualService", "v"), ["PortConflict"]);
    let udp = Builder::default().proxy("p", "a", "10.0.0.1").objects(&proxied("v", 1234, "a"));
    assert!(udp.plan().reasons("VirtualService", "v").is_empty(), "UDP is apart");
}

#[test]
fn singletons_with_different_peers_share_a_port_on_our_proxy_only() {
    let one = |of: &str, peer: &str| {
        format!(
            "VirtualService {of}: {{selector: {{}}, listener: {{protocol: UDP, port: 5, connect: {{address: {peer}, port: 5}}}}, rules: []}}\n"
        )
    };
    let world =
        || Builder::default().proxy("p", "a", "10.0.0.1").objects(&(one("a", "1.1.1.1") + &one("b", "1.1.1.2")));
    assert_eq!(world().plan().on("p").listeners.len(), 2);
    assert_eq!(world().l7mp("p").plan().on("p").listeners.len(), 1);
    let bound = |of: &str, at: &str| {
        format!(
            "VirtualService {of}: {{selector: {{}}, listener: {{protocol: UDP, port: 5, address: {at}}}, rules: []}}\n"
        )
    };
    let apart =
        Builder::default().proxy("p", "a", "10.0.0.1").objects(&(bound("a", "10.0.0.1") + &bound("b", "10.0.0.2")));
    assert_eq!(apart.plan().on("p").listeners.len(), 2, "addresses are compared");
}

#[test]
fn a_port_that_another_container_declares_is_remarked() {
    let world = Builder::default().proxy("p", "a", "10.0.0.1").objects(&proxied("v", 5, "a"));
    let app = Container {
        name: "app".into(),
        ports: vec![ContainerPort { name: "x".into(), transport: Transport::Udp, port: 5 }],
    };
    let plan = world.with_pod("p", |pod| pod.containers.push(app)).plan();
    assert_eq!(plan.reasons("VirtualService", "v"), ["PortMayClash"]);
    assert_eq!(plan.on("p").listeners.len(), 1);
}

fn two_namespaces(hop: &str) -> Builder {
    Builder::default()
        .proxy("p", "a", "10.0.0.1")
        .service("far/w", "worker", &[("UDP", 5)])
        .naked("far/w0", "worker", "10.1.0.5")
        .slices()
        .objects(&format!("VirtualService v: {{selector: {{}}, listener: {{protocol: UDP, port: 1}}, rules: [{{action: {{route: {{destination: {hop}}}}}}}]}}"))
}

#[test]
fn names_cross_namespaces_only_with_the_other_sides_consent() {
    let there = two_namespaces("w.far.svc.cluster.local");
    let nowhere = two_namespaces("x.far.svc.cluster.local");
    let said = |world: &Builder| world.plan().verdict_of("VirtualService", "v").unmet[0].to_string();
    assert_eq!(
        said(&there),
        "RefNotPermitted: rules[0]: destination: `w` of namespace `far` is not exported to `default`: annotate it or its namespace with l7mp.io/export-to"
    );
    assert_eq!(said(&nowhere), said(&there).replace("`w`", "`x`"), "nobody learns what exists");
    for consent in [
        there.clone().annotate("Service", "far/w", "l7mp.io/export-to", "other, default"),
        there.clone().annotate("Namespace", "far", "l7mp.io/export-to", "*"),
    ] {
        assert_eq!(addresses(&consent.plan().on("p"), "w.far.default.target.cluster.local"), ["10.1.0.5"]);
    }
    let mut denied = there.clone().annotate("Namespace", "far", "l7mp.io/export-to", "*");
    denied.world.settings.cross_namespace = CrossNamespace::Deny;
    assert_eq!(denied.plan().reasons("VirtualService", "v"), ["RefNotPermitted"]);
    let mut open = there;
    open.world.settings.cross_namespace = CrossNamespace::Open;
    assert_eq!(open.plan().on("p").clusters.len(), 1);
}

#[test]
fn endpoints_and_placement_in_another_namespace_need_its_consent() {
    let endpoints = two_namespaces(
        "{spec: {protocol: UDP, port: 1}, endpoints: [{selector: {matchNamespace: far, matchLabels: {app: worker}}}]}",
    );
    assert_eq!(endpoints.plan().reasons("VirtualService", "v"), ["RefNotPermitted"]);
    let consent = endpoints.annotate("Namespace", "far", "l7mp.io/export-to", "default").plan().on("p");
    assert_eq!(addresses(&consent, consent.clusters.keys().next().unwrap()), ["10.1.0.5"]);
    let placed = Builder::default()
        .proxy("far/p", "a", "10.0.0.1")
        .objects("VirtualService v: {selector: {matchNamespace: far}, listener: {protocol: UDP, port: 1}, rules: []}");
    assert_eq!(
        (placed.plan().reasons("VirtualService", "v"), placed.plan().desired.len()),
        (vec!["RefNotPermitted"], 0)
    );
    assert_eq!(
        placed
            .clone()
            .annotate("Namespace", "far", "l7mp.io/allow-config-from", "default")
            .plan()
            .on("far/p")
            .listeners
            .len(),
        1
    );
    let by_field = Builder::default().proxy("far/p", "a", "10.0.0.1").proxy("q", "a", "10.0.0.2").objects("VirtualService v: {selector: {matchFields: [{key: metadata.namespace, operator: Exists}]}, listener: {protocol: UDP, port: 1}, rules: []}");
    assert_eq!(by_field.plan().desired.keys().cloned().collect::<Vec<_>>(), [name("q")]);
    assert_eq!(by_field.annotate("Namespace", "far", "l7mp.io/allow-config-from", "*").plan().desired.len(), 2);
}

#[test]
fn service_match_is_namespaced() {
    let world = Builder::default()
        .proxy("p", "a", "10.0.0.1")
        .proxy("far/p", "a", "10.0.0.2")
        .service("s", "a", &[("UDP", 1)])
        .service("far/s", "a", &[("UDP", 1)])
        .slices();
    let plan = world
        .objects("VirtualService v: {selector: {serviceName: s}, listener: {protocol: UDP, port: 1}, rules: []}")
        .plan();
    assert_eq!(plan.desired.keys().cloned().collect::<Vec<_>>(), [name("p")]);
}

#[test]
fn forbidden_endpoints_are_refused_and_loopback_is_for_sidecars() {
    let to = |address: &str| {
        format!(
            "VirtualService v: {{selector: {{}}, listener: {{protocol: UDP, port: 1}}, rules: [{{action: {{route: {{destination: {{spec: {{protocol: UDP, port: 2}}, endpoints: [{{spec: {{address: '{address}'}}}}]}}}}}}}}]}}"
        )
    };
    let world = |address: &str| {
        let mut world = Builder::default().proxy("p", "a", "10.0.0.1").objects(&to(address));
        world.world.settings.api_servers.insert("10.96.0.1".parse().unwrap());
        world
    };
    for bad in [
        "169.254.169.254",
        "fe80::1",
        "224.0.0.1",
        "0.0.0.0",
        "10.96.0.1",
        "kubernetes.default.svc",
        "metadata.google.internal",
        "2130706433",
    ] {
        let plan = world(bad).plan();
        assert_eq!(
            (plan.reasons("VirtualService", "v"), plan.on("p").is_empty()),
            (vec!["EndpointNotAllowed"], true),
            "{bad}"
        );
    }
    let mut resolver = Resolver::new(world("10.7.0.1").world);
    let found = Change::ClusterAddresses { api_servers: ["10.7.0.1".parse().unwrap()].into(), nodes: [].into() };
    assert_eq!(resolver.change(found).pods.len(), 1, "it is the API server's from here on");
    assert!(resolver.desired(&name("p")).is_empty());
    assert_eq!(world("127.0.0.1").plan().on("p").clusters.len(), 1, "its own pod is fine for a sidecar");
    for local in ["127.0.0.1", "::1", "localhost"] {
        let plan = world(local).with_pod("p", |pod| pod.host_network = true).plan();
        assert_eq!(
            (plan.reasons("VirtualService", "v"), plan.on("p").is_empty()),
            (vec!["EndpointNotAllowed"], true),
            "{local}"
        );
    }
    let target = "Target t: {selector: {}, cluster: {spec: {protocol: UDP, port: 1}, endpoints: [{spec: {address: 127.0.0.1}}]}}";
    let plan = Builder::default()
        .proxy("p", "a", "10.0.0.1")
        .with_pod("p", |pod| pod.host_network = true)
        .objects(target)
        .plan();
    assert_eq!(plan.reasons("Target", "t"), ["EndpointNotAllowed"]);
}

#[test]
fn stdio_needs_the_pods_consent_and_our_balancers_our_proxy() {
    let stdio = "Target t: {selector: {}, cluster: {spec: {protocol: Stdio}}}";
    let world = || Builder::default().proxy("p", "a", "10.0.0.1").objects(stdio);
    assert_eq!(world().plan().reasons("Target", "t"), ["EndpointNotAllowed"]);
    let allowed =
        world().with_pod("p", |pod| pod.annotations = [("l7mp.io/allow-stdio", "true")].into_iter().collect());
    assert_eq!(allowed.plan().on("p").clusters.len(), 1);
    let ring = "Target t: {selector: {}, cluster: {spec: {protocol: UDP, port: 1}, endpoints: [{spec: {address: 10.0.0.9}}], loadbalancer: {policy: RoundRobin}}}";
    let world = || Builder::default().proxy("p", "a", "10.0.0.1").objects(ring);
    assert_eq!(world().plan().on("p").clusters.len(), 1);
    assert_eq!(world().l7mp("p").plan().reasons("Target", "t"), ["UnsupportedByProxy"]);
}

#[test]
fn a_pod_with_two_proxies_is_left_out() {
    let proxy = |of: &str| Container { name: of.into(), ports: Vec::new() };
    let world =
        Builder::default().proxy("p", "a", "10.0.0.1").proxy("q", "a", "10.0.0.2").objects(&proxied("v", 1, "a"));
    let plan = world.with_pod("q", |pod| pod.containers = vec![proxy("l7mp"), proxy("portolan-proxy")]).plan();
    assert!(plan.reasons("VirtualService", "v").contains(&"TwoProxies"));
    assert_eq!(plan.desired.keys().cloned().collect::<Vec<_>>(), [name("p")]);
}

#[test]
fn the_cascade_withdraws_from_proxies_and_returns() {
    let text = "
VirtualService v: {selector: {}, listener: {protocol: UDP, port: 1}, rules: [{match: {op: defined, path: /a}, action: {route: r}}, {action: {route: {destination: {spec: {protocol: Echo}}}}}]}
VirtualService only: {selector: {}, listener: {protocol: UDP, port: 2}, rules: [{action: {route: r}}]}
Route r: {destination: t}
Target t: {selector: {}, cluster: {spec: {protocol: Discard}}}";
    let world = Builder::default().proxy("p", "a", "10.0.0.1").objects(text).world;
    let target = world.objects[&(MeshKind::Target, name("t"))].clone();
    let mut resolver = Resolver::new(world);
    let before = resolver.plan();
    assert_eq!((before.on("p").listeners.len(), before.on("p").rules.len()), (2, 3));
    // C0, C1, C2, C3: the Route goes, its rules go, and the listener that has no other rule
    resolver.change(Change::Object(MeshKind::Target, name("t"), None));
    let plan = resolver.plan();
    let proxy = plan.on("p");
    assert_eq!((proxy.routes.len(), proxy.rules.len(), proxy.clusters.len()), (1, 1, 1));
    assert_eq!(
        proxy.listeners.keys().map(|one| &**one).collect::<Vec<_>>(),
        ["v.default.virtualservice.cluster.local"]
    );
    // C4: each step says what is missing
    for (kind, of) in [("VirtualService", "v"), ("VirtualService", "only"), ("Route", "r")] {
        let unmet = plan.verdict_of(kind, of).unmet;
        assert!(unmet[0].message.contains("`t`") && unmet[0].reason == Reason::RefNotFound, "{kind} {of}: {unmet:?}");
    }
    // C5: it returns
    resolver.change(Change::Object(MeshKind::Target, name("t"), Some(target)));
    assert_eq!(resolver.plan(), before);
}

#[test]
fn rule_objects_go_where_they_say() {
    let text = "Rule r: {selector: {}, rulelist: static-list, position: 2, rule: {action: {route: {destination: {spec: {protocol: Echo}}}}}}";
    let proxy = Builder::default().proxy("p", "a", "10.0.0.1").objects(text).plan().on("p");
    let insertion = proxy.insertions.values().next().unwrap();
    assert_eq!(
        (&*insertion.rulelist, insertion.position, &*insertion.rule),
        ("static-list", 2, "r.default.rule.cluster.local")
    );
    assert!(proxy.routes.keys().next().unwrap().starts_with("r.default.rule.cluster.local~"));
}

#[test]
fn doc_style_refs_resolve() {
    for hop in [
        "/l7mp.io/v1/Target/default/t",
        "/apis/l7mp.io/v1/namespaces/default/targets/t",
        "t.default.target.cluster.local",
        "t",
    ] {
        let text = format!(
            "Target t: {{selector: {{}}, cluster: {{spec: {{protocol: Echo}}}}}}\nVirtualService v: {{selector: {{}}, listener: {{protocol: UDP, port: 1}}, rules: [{{action: {{route: {{destination: {hop}}}}}}}]}}"
        );
        let proxy = Builder::default().proxy("p", "a", "10.0.0.1").objects(&text).plan().on("p");
        assert_eq!(&*proxy.routes.values().next().unwrap().destination, "t.default.target.cluster.local", "{hop}");
    }
}

#[test]
fn a_real_l7mp_is_told_what_it_needs() {
    let text = "
VirtualService v: {selector: {matchLabels: {app: a}}, listener: {protocol: UDP, port: 1}, rules: [{action: {route: {destination: ws}}}]}
VirtualService ws: {selector: {matchLabels: {app: b}}, listener: {protocol: WebSocket, port: 2}}
VirtualService j: {selector: {matchLabels: {app: a}}, listener: {protocol: JSONSocket, transport: {protocol: UDP, port: 3}}, rules: [{action: {route: {destination: sync}}}]}
Target sync: {selector: {matchLabels: {app: a}}, cluster: {spec: {protocol: Sync, query: /labels/id}}}";
    let world = Builder::default().proxy("p", "a", "10.0.0.1").naked("q", "b", "10.0.0.2").objects(text);
    let ours = world.plan().on("p");
    assert!(ours.rules.values().all(|rule| rule.rewrite.is_empty()));
    assert_eq!(ours.clusters["sync.default.target.cluster.local"].spec["query"], "/labels/id");
    let theirs = world.l7mp("p").plan().on("p");
    assert_eq!(
        theirs.rules.values().filter(|rule| rule.rewrite == [("/HTTP/headers".to_owned(), yaml("{}"))]).count(),
        1
    );
    assert_eq!(theirs.clusters["sync.default.target.cluster.local"].spec["query"], "/JSONSocket/labels/id");
}

#[test]
fn headers_are_repeated_between_proxies_of_ours_only() {
    let text = "
Target by-label: {selector: {matchLabels: {app: a}}, cluster: {spec: {protocol: JSONSocket, transport: {protocol: UDP, port: 3}}, endpoints: [{selector: {matchLabels: {app: b}}}]}}
Target by-hand: {selector: {matchLabels: {app: a}}, cluster: {spec: {protocol: JSONSocket, transport: {protocol: UDP, port: 3}}, endpoints: [{spec: {address: 10.0.0.2}}]}}
Target its-own: {selector: {matchLabels: {app: a}}, cluster: {spec: {protocol: JSONSocket, handshake: {retransmit_ms: 7}, transport: {protocol: UDP, port: 3}}, endpoints: [{spec: {address: 10.0.0.2}}]}}
Target over-tcp: {selector: {matchLabels: {app: a}}, cluster: {spec: {protocol: JSONSocket, transport: {protocol: TCP, port: 3}}, endpoints: [{selector: {matchLabels: {app: b}}}]}}
Target linked: {selector: {matchLabels: {app: a}}, linkedVirtualService: callee}
Target stubbed: {selector: {matchLabels: {app: a}}, linkedVirtualService: stub}
VirtualService callee: {selector: {matchLabels: {app: b}}, listener: {protocol: JSONSocket, transport: {protocol: UDP, port: 3}}, rules: [{action: {route: {destination: {spec: {protocol: Echo}}}}}]}
VirtualService stub: {selector: {matchLabels: {app: b}}, listener: {protocol: JSONSocket, transport: {protocol: UDP, port: 4}}}";
    let all = ["by-hand", "by-label", "its-own", "linked", "over-tcp", "stubbed"];
    let repeated = |world: &Builder| {
        let proxy = world.plan().on("caller");
        let handshake = |target: &&str| {
            proxy.clusters[&*format!("{target}.default.target.cluster.local")].spec["handshake"]["retransmit_ms"]
                .as_u64()
        };
        all.iter().filter_map(|target| Some((*target, handshake(target)?))).collect::<Vec<_>>()
    };
    let world = Builder::default().proxy("caller", "a", "10.0.0.1").proxy("callee", "b", "10.0.0.2").objects(text);
    assert_eq!(repeated(&world), [("by-label", 100), ("its-own", 7), ("linked", 100)]);
    assert_eq!(repeated(&world.clone().l7mp("caller")), [], "it would hand the second header to the app");
    assert_eq!(repeated(&world.clone().l7mp("callee")), [("its-own", 7)], "and so would it as a server");
    assert_eq!(repeated(&world.clone().naked("other", "b", "10.0.0.3")), [("its-own", 7)], "not all run a proxy");
    let declares = world.with_pod("callee", |pod| {
        let port = ContainerPort { name: Arc::from(""), transport: Transport::Udp, port: 3 };
        pod.containers.push(Container { name: Arc::from("app"), ports: vec![port] });
    });
    assert_eq!(repeated(&declares), [("its-own", 7)], "an app listens there");
}
