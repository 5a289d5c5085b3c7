//! The document's examples: what is generated for them, and the calls that each proxy gets, beside those that the
//! document prints.

use portolan_core::mesh::control::types::MeshKind;
use serde_json::{Value, json};

use super::build::{Builder, Look, addresses, name, yaml};

/// Example 1, as the document has it.
pub(super) fn gateway() -> Builder {
    Builder::default()
        .service("worker-svc", "worker", &[("UDP", 9999)])
        .service("gateway-svc", "gateway", &[("UDP", 9001)])
        .proxy("transcoder-0", "transcoder", "10.1.0.7")
        .naked("worker-0", "worker", "10.1.0.5")
        .proxy("gateway-0", "gateway", "192.0.2.1")
        .with_pod("gateway-0", |pod| pod.host_network = true)
        .slices()
        .objects(
            r"
VirtualService transcoder-vsvc:
  selector: {matchLabels: {app: transcoder}}
  listener: {protocol: WebSocket, port: 8888}
  rules: {action: {route: {destination: {unixdomainsocket: {filename: /var/run/sock/uds-echo.sock}}}}}
VirtualService gateway-vsvc:
  selector: {serviceName: gateway-svc}
  listener: {protocol: UDP, port: 9001}
  rules:
  - match: {op: and, apply: [{op: test, path: /IP/src_addr, value: 10.0.0.1}, {op: more, path: /UDP/src_port, value: 8999}, {op: less, path: /UDP/src_port, value: 9100}]}
    action: {route: {destination: worker-svc, ingress: [transcoder-vsvc]}}
",
        )
}

/// Example 2, with the five repairs of the specification.
pub(super) fn rendezvous() -> Builder {
    Builder::default()
        .service("worker-svc", "worker", &[("UDP", 19000)])
        .service("gateway-svc", "gateway", &[("UDP", 9001)])
        .proxy("worker-0", "worker", "10.1.0.5")
        .proxy("worker-1", "worker", "10.1.0.6")
        .proxy("worker-2", "worker", "10.1.0.7")
        .proxy("gateway-0", "gateway", "192.0.2.1")
        .with_pod("gateway-0", |pod| pod.host_network = true)
        .slices()
        .objects(
            r#"
Target worker-target:
  selector: {serviceName: gateway-svc}
  cluster: {spec: {protocol: JSONSocket, transport: {protocol: UDP, port: 19000}}, loadbalancer: {policy: ConsistentHash, key: /labels/session_id}, endpoints: [{selector: {matchLabels: {app: worker}}}]}
Route gateway-route: {destination: worker-target, retry: {retry_on: always, num_retries: 3, timeout: 2000}}
Target sync-target: {selector: {serviceName: worker-svc}, cluster: {spec: {protocol: Sync, query: /labels/session_id}}}
Target transcoder-target:
  selector: {serviceName: worker-svc}
  cluster: {spec: {protocol: JSONSocket, transport: {protocol: UDP, port: 19001}}, endpoints: [{spec: {address: 127.0.0.1}}]}
VirtualService worker-vsvc:
  selector: {serviceName: worker-svc}
  listener: {protocol: JSONSocket, transport: {protocol: UDP, port: 19000}}
  rules: [{action: {route: {destination: sync-target, ingress: [transcoder-target]}}}]
VirtualService gateway-user-a-vsvc:
  selector: {serviceName: gateway-svc}
  listener: {protocol: UDP, port: 8001, connect: {address: 192.168.0.1, port: 8001}}
  rules: [{action: {rewrite: [{path: /labels/session_id, value: "1"}], route: gateway-route}}]
  options: {removeOrphanSessions: true}
VirtualService gateway-user-b-vsvc:
  selector: {serviceName: gateway-svc}
  listener: {protocol: UDP, port: 8002, connect: {address: 192.168.0.2, port: 8002}}
  rules: [{action: {rewrite: [{path: /labels/session_id, value: "1"}], route: gateway-route}}]
  options: {removeOrphanSessions: true}
"#,
        )
}

#[test]
fn example_1_generates_two_targets_and_a_virtual_service_and_nothing_else() {
    let plan = gateway().plan();
    assert_eq!(
        plan.generated_names(),
        ["VirtualService default/worker-svc", "Target default/transcoder-vsvc", "Target default/worker-svc"]
    );
    let spec = |kind, of: &str| plan.generated[&(kind, name(of))].spec.clone();
    assert_eq!(
        spec(MeshKind::VirtualService, "worker-svc"),
        yaml("{selector: {matchService: worker-svc}, listener: {protocol: UDP, port: 9999}}")
    );
    assert_eq!(
        spec(MeshKind::Target, "worker-svc"),
        yaml(
            "{selector: {matchService: gateway-svc}, cluster: {spec: {protocol: UDP, port: 9999}, endpoints: [{selector: {matchService: worker-svc}}]}}"
        )
    );
    assert_eq!(
        spec(MeshKind::Target, "transcoder-vsvc"),
        yaml(
            "{selector: {matchService: gateway-svc}, cluster: {spec: {protocol: WebSocket, port: 8888}, endpoints: [{selector: {matchLabels: {app: transcoder}}}]}}"
        )
    );
}

#[test]
fn example_1_gives_each_proxy_exactly_what_it_needs() {
    let plan = gateway().plan();
    assert_eq!(
        plan.desired.keys().map(ToString::to_string).collect::<Vec<_>>(),
        ["default/gateway-0", "default/transcoder-0"]
    );
    let gateway = plan.on("gateway-0");
    let listener = "gateway-vsvc.default.virtualservice.cluster.local";
    assert_eq!(addresses(&gateway, "worker-svc.default.target.cluster.local"), ["10.1.0.5"]);
    assert_eq!(addresses(&gateway, "transcoder-vsvc.default.target.cluster.local"), ["10.1.0.7"]);
    assert_eq!((gateway.clusters.len(), gateway.routes.len(), gateway.rules.len()), (2, 1, 1));
    let route = gateway.routes.values().next().unwrap();
    assert!(route.name.starts_with(&format!("{listener}~")));
    assert_eq!(&*route.destination, "worker-svc.default.target.cluster.local");
    assert_eq!(
        route.ingress.iter().map(|one| &**one).collect::<Vec<_>>(),
        ["transcoder-vsvc.default.target.cluster.local"]
    );
    assert_eq!(gateway.rulelists.keys().map(|one| &**one).collect::<Vec<_>>(), [listener]);
    assert_eq!(gateway.listeners.keys().map(|one| &**one).collect::<Vec<_>>(), [listener]);
    let transcoder = plan.on("transcoder-0");
    let cluster = transcoder.clusters.values().next().unwrap();
    assert!(cluster.name.starts_with("transcoder-vsvc.default.virtualservice.cluster.local~"));
    assert_eq!(cluster.spec, json!({"protocol": "UnixDomainSocket", "filename": "/var/run/sock/uds-echo.sock"}));
    assert_eq!(addresses(&transcoder, &cluster.name), ["/var/run/sock/uds-echo.sock"]);
    assert_eq!(transcoder.clusters.len(), 1);
}

#[test]
fn example_2_joins_both_users_at_one_rendezvous_per_worker() {
    let plan = rendezvous().plan();
    assert!(plan.generated.is_empty());
    let gateway = plan.on("gateway-0");
    assert_eq!(addresses(&gateway, "worker-target.default.target.cluster.local"), ["10.1.0.5", "10.1.0.6", "10.1.0.7"]);
    assert_eq!((gateway.clusters.len(), gateway.routes.len(), gateway.listeners.len()), (1, 1, 2));
    let rule = gateway.rules.values().next().unwrap();
    assert_eq!(rule.rewrite, [("/labels/session_id".to_owned(), json!("1"))]);
    assert_eq!(rule.route.as_deref(), Some("gateway-route.default.route.cluster.local"));
    for worker in ["worker-0", "worker-1", "worker-2"] {
        let worker = plan.on(worker);
        assert_eq!(worker.clusters.len(), 2, "one rendezvous, one transcoder");
        assert_eq!(addresses(&worker, "transcoder-target.default.target.cluster.local"), ["127.0.0.1"]);
        assert_eq!(worker.listeners.len(), 1);
    }
    assert!(plan.statuses.values().all(|verdict| verdict.refused.is_none() && verdict.unmet.is_empty()));
}

#[test]
fn the_documents_own_example_2_is_told_its_mistakes() {
    let plan = rendezvous()
        .objects(
            r"
Target worker-target:
  selector: {serviceName: gateway-vsvc}
  cluster: {spec: {protocol: UDP, port: 9999, connect: {address: 1.1.1.1, port: 2000}}, loadbalancer: {policy: ConsistentHash, key: /labels/session_id}, endpoints: [{selector: {matchLabels: {app: worker}}}]}
VirtualService gateway-vsvc: {selector: {serviceName: gateway-svc}, listener: {protocol: UDP, port: 9001}}
VirtualService gateway-user-a-vsvc:
  selector: {serviceName: gateway-svc}
  listener:
    protocol: UDP
    port: 8001,
    connect: {address: 192.168.0.1, port: 8001}
  rules: [{action: {route: gateway-route}}]
",
        )
        .plan();
    assert_eq!(plan.reasons("Target", "worker-target"), ["IgnoredField", "SelectorThroughVirtualService"]);
    let refused = plan.verdict_of("VirtualService", "gateway-user-a-vsvc").refused.unwrap();
    assert_eq!(refused.to_string(), "BadPort: spec.listener.port: \"8001,\" is not a port number: remove the comma");
    assert_eq!(plan.on("gateway-0").clusters.len(), 1, "the selector through a VirtualService finds the gateway");
}

#[test]
fn the_mapping_chapter_gets_the_calls_it_prints() {
    let plan = Builder::default()
        .service("my-source-svc", "source", &[("UDP", 8000)])
        .service("my-destination-svc", "destination", &[("UDP", 2000)])
        .proxy("source-0", "source", "10.2.0.1")
        .naked("destination-0", "destination", "10.0.0.1")
        .naked("destination-1", "destination", "10.0.0.2")
        .slices()
        .objects(
            r"
Route my-route: {destination: my-destination-svc, retry: {retry_on: always, num_retries: 3}}
VirtualService my-source-vsvc: {selector: {serviceName: my-source-svc}, listener: {protocol: UDP, port: 8000}, rules: [{action: {route: my-route}}]}
",
        )
        .plan();
    let source = plan.on("source-0");
    let short = |text: &str| text.split('.').next().unwrap_or_default().to_owned();
    let only = |values: Vec<Value>| if let [value] = &values[..] { value.clone() } else { unreachable!("{values:?}") };

    // addListener: the document has the rules inline, we by name, so that editing them leaves the listener alone
    let listener = only(source.listeners.values().map(|one| one.to_value()).collect());
    assert_eq!(short(listener["name"].as_str().unwrap()), "my-source-vsvc");
    assert_eq!(listener["spec"], yaml("{protocol: UDP, port: 8000}"));
    let rule = only(source.rules.values().map(|one| one.to_value()).collect());
    assert_eq!(short(rule["action"]["route"].as_str().unwrap()), "my-route");

    // addRoute: all three fields of retry, since l7mp without `timeout` fires all retries at once
    let route = only(source.routes.values().map(|one| one.to_value()).collect());
    assert_eq!(short(route["destination"].as_str().unwrap()), "my-destination-svc");
    assert_eq!(route["retry"], yaml("{retry_on: always, num_retries: 3, timeout: 2000}"));

    // addCluster
    let cluster = only(source.clusters.values().map(|one| one.to_value()).collect());
    assert_eq!(short(cluster["name"].as_str().unwrap()), "my-destination-svc");
    assert_eq!(cluster["spec"], yaml("{protocol: UDP, port: 2000}"));
    let endpoints = cluster["endpoints"].as_array().unwrap().iter().map(|one| one["spec"].clone()).collect::<Vec<_>>();
    assert_eq!(Value::Array(endpoints), yaml("[{address: 10.0.0.1}, {address: 10.0.0.2}]"));

    // the generated objects
    let spec = |kind, of: &str| plan.generated[&(kind, name(of))].spec.clone();
    assert_eq!(
        spec(MeshKind::VirtualService, "my-destination-svc"),
        yaml("{selector: {matchService: my-destination-svc}, listener: {protocol: UDP, port: 2000}}")
    );
    assert_eq!(
        spec(MeshKind::Target, "my-destination-svc"),
        yaml(
            "{selector: {matchService: my-source-svc}, cluster: {spec: {protocol: UDP, port: 2000}, endpoints: [{selector: {matchService: my-destination-svc}}]}}"
        )
    );
    let owners = &plan.generated[&(MeshKind::Target, name("my-destination-svc"))].owners;
    assert_eq!(
        owners.iter().map(|owner| (owner.kind, &*owner.name)).collect::<Vec<_>>(),
        [(MeshKind::Route, "my-route")]
    );
}
