//! From what a proxy holds to what it should hold: the calls, their order, and what they leave alone.

use portolan_core::mesh::control::types::MeshKind;
use portolan_core::mesh::control::wire::ProxyConfig;
use portolan_core::mesh::control::*;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::build::{Builder, Look, name};
use super::examples::{gateway, rendezvous};
use super::laws::{runner, tape};
use super::proxy::Proxy;
use super::worlds;

/// Sequences of worlds through which a proxy is led.
const SEQUENCES: u32 = 400;

#[test]
fn any_proxy_is_led_to_what_it_should_hold_and_nothing_foreign_is_touched() {
    for flavour in [ProxyImplementation::Portolan, ProxyImplementation::L7mp] {
        let outcome = runner(SEQUENCES).run(&tape(300), |bytes| {
            let mut tape = worlds::Tape::new(&bytes);
            let mut world = worlds::world(&mut tape);
            let mut proxies = std::collections::BTreeMap::new();
            for _ in 0..4 {
                for pod in world.pods.keys() {
                    let facts = ProxyInfo { implementation: flavour, foreign_ports: Vec::new() };
                    world.proxies.insert(pod.clone(), facts);
                }
                let plan = plan(&world);
                for pod in world.pods.keys() {
                    let proxy = proxies.entry(pod.clone()).or_insert_with(Proxy::with_foreign);
                    let desired = plan.desired.get(pod).cloned().unwrap_or_default();
                    lead(proxy, &desired, flavour)?;
                }
                let change = worlds::change(&mut tape, &world);
                world.apply(change);
            }
            Ok(())
        });
        outcome.unwrap_or_else(|failure| panic!("{flavour:?}: {failure}"));
    }
}

fn lead(proxy: &mut Proxy, desired: &ProxyConfig, flavour: ProxyImplementation) -> Result<(), TestCaseError> {
    let foreign = foreign(&proxy.config());
    proxy.handled.clear();
    let steps = diff(desired, &ObservedConfig::of(&proxy.config()), flavour, &Ownership::default());
    for call in &steps.calls {
        let taken = proxy.take(call);
        prop_assert!(taken.is_ok(), "{:?} at {:?} of {:#?}", taken, call, steps.calls);
    }
    let domain = ClusterDomain::default();
    let strangers: Vec<_> =
        proxy.handled.iter().filter(|(kind, name)| *kind != "rulelists" && !domain.is_ours(name, false)).collect();
    prop_assert!(strangers.is_empty(), "touched {:?}", strangers);
    prop_assert_eq!(self::foreign(&proxy.config()), foreign, "foreign things are as they were");
    let again = diff(desired, &ObservedConfig::of(&proxy.config()), flavour, &Ownership::default());
    prop_assert!(again.calls.is_empty(), "not at rest: {:#?}", again.calls);
    Ok(())
}

/// Everything that is not ours, rules in foreign lists among it, in their order.
fn foreign(config: &Value) -> Vec<String> {
    let domain = ClusterDomain::default();
    let is_foreign = |name: &Value| !domain.is_ours(name.as_str().unwrap_or_default(), false);
    let mut all = Vec::new();
    for objects in config.as_object().unwrap().values() {
        for object in objects.as_array().unwrap().iter().filter(|object| is_foreign(&object["name"])) {
            let mut object = object.clone();
            if let Some(rules) = object.get_mut("rules").and_then(Value::as_array_mut) {
                rules.retain(is_foreign);
            }
            all.push(object.to_string());
        }
    }
    all
}

/// Calls as short lines, names without their suffix.
fn lines(steps: &CallPlan) -> Vec<String> {
    let short = |text: &str| {
        let text = text.replace("/api/v1/", "").replace(".default.virtualservice.cluster.local", ":v");
        text.replace(".default.target.cluster.local", ":t").replace(".default.route.cluster.local", ":r")
    };
    let mut marks: Vec<String> = Vec::new();
    let mut line = |call: &ProxyCall| {
        let name = call.body.as_ref().and_then(|body| {
            let object = body.as_object()?.values().next()?;
            Some(object.get("name").unwrap_or(object).as_str()?.to_owned())
        });
        let verb = if call.method == CallMethod::Post { "POST" } else { "DELETE" };
        let mut text = short(&format!("{verb} {} {}", call.path, name.unwrap_or_default())).trim_end().to_owned();
        while let Some(at) = text.find('~') {
            let mark = text[at..at + 9].to_owned();
            let number = marks.iter().position(|one| *one == mark).unwrap_or_else(|| {
                marks.push(mark.clone());
                marks.len() - 1
            });
            text = text.replace(&mark, &format!("#{number}"));
        }
        text
    };
    steps.calls.iter().map(&mut line).collect()
}

fn l7mp(desired: &ProxyConfig, proxy: &mut Proxy) -> Vec<String> {
    let steps = diff(desired, &ObservedConfig::of(&proxy.config()), ProxyImplementation::L7mp, &Ownership::default());
    for call in &steps.calls {
        proxy.take(call).unwrap();
    }
    lines(&steps)
}

#[test]
fn example_1_on_a_real_l7mp_call_by_call() {
    let plan = gateway().l7mp("gateway-0").l7mp("transcoder-0").plan();
    let mut proxy = Proxy::with_foreign();
    assert_eq!(
        l7mp(&plan.on("gateway-0"), &mut proxy),
        [
            "POST clusters transcoder-vsvc:t",
            "POST clusters worker-svc:t",
            "POST routes gateway-vsvc:v#0",
            "POST rules gateway-vsvc:v#1",
            "POST rulelists gateway-vsvc:v",
            "POST listeners gateway-vsvc:v",
        ]
    );
    assert_eq!(
        l7mp(&plan.on("transcoder-0"), &mut Proxy::with_foreign()),
        [
            "POST clusters transcoder-vsvc:v#0",
            "POST routes transcoder-vsvc:v#1",
            "POST rules transcoder-vsvc:v#2",
            "POST rulelists transcoder-vsvc:v",
            "POST listeners transcoder-vsvc:v",
        ]
    );
    assert_eq!(l7mp(&plan.on("gateway-0"), &mut proxy), [""; 0], "converged");
    let more = gateway().naked("worker-1", "worker", "10.1.0.6").slices().l7mp("gateway-0").plan();
    assert_eq!(l7mp(&more.on("gateway-0"), &mut proxy), ["POST clusters/worker-svc:t/endpoints worker-svc:t@10.1.0.6"]);
    assert_eq!(l7mp(&plan.on("gateway-0"), &mut proxy), ["DELETE endpoints/worker-svc:t%4010.1.0.6?recursive=true"]);
    assert_eq!(
        l7mp(&ProxyConfig::default(), &mut proxy),
        [
            "DELETE listeners/gateway-vsvc:v",
            "DELETE rulelists/gateway-vsvc:v",
            "DELETE rules/gateway-vsvc:v#0",
            "DELETE routes/gateway-vsvc:v#1",
            "DELETE clusters/transcoder-vsvc:t",
            "DELETE clusters/worker-svc:t",
        ]
    );
}

#[test]
fn example_2_ends_the_sessions_of_a_deleted_user() {
    let world = rendezvous().l7mp("gateway-0");
    let mut proxy = Proxy::with_foreign();
    l7mp(&world.plan().on("gateway-0"), &mut proxy);
    let mut resolver = Resolver::new(world.world);
    resolver.change(Change::Object(MeshKind::VirtualService, name("gateway-user-a-vsvc"), None));
    assert_eq!(
        l7mp(&resolver.desired(&name("gateway-0")), &mut proxy),
        [
            "DELETE listeners/gateway-user-a-vsvc:v?recursive=true",
            "DELETE rulelists/gateway-user-a-vsvc:v",
            "DELETE rules/gateway-user-a-vsvc:v#0",
        ]
    );
}

fn echo(of: &str, listener: &str, rules: &str) -> String {
    format!("VirtualService {of}: {{selector: {{}}, listener: {listener}, rules: {rules}}}\n")
}

fn on_p(text: &str) -> ProxyConfig {
    Builder::default().proxy("p", "a", "10.0.0.1").objects(text).l7mp("p").plan().on("p")
}

const TO_ECHO: &str = "{action: {route: {destination: {spec: {protocol: Echo}}}}}";

#[test]
fn edit_keeps_sessions() {
    let udp = "{protocol: UDP, port: 5}";
    let mut proxy = Proxy::with_foreign();
    l7mp(&on_p(&echo("v", udp, &format!("[{TO_ECHO}]"))), &mut proxy);
    // a rule is edited: the new one stands before the old one goes, and the listener is left alone
    let edited = "{match: {op: defined, path: /a}, action: {route: {destination: {spec: {protocol: Echo}}}}}";
    assert_eq!(
        l7mp(&on_p(&echo("v", udp, &format!("[{edited}]"))), &mut proxy),
        ["POST rulelists/v:v/rules/0 v:v#0", "DELETE rulelists/v:v/rules/1", "DELETE rules/v:v#1"]
    );
    // the inline cluster is edited: new names first, then the rule, then the old ones
    let discard = edited.replace("Echo", "Discard");
    assert_eq!(
        l7mp(&on_p(&echo("v", udp, &format!("[{discard}]"))), &mut proxy),
        [
            "POST clusters v:v#0",
            "POST routes v:v#1",
            "POST rulelists/v:v/rules/0 v:v#2",
            "DELETE rulelists/v:v/rules/1",
            "DELETE rules/v:v#3",
            "DELETE routes/v:v#4",
            "DELETE clusters/v:v#5",
        ]
    );
    // the socket is edited: it goes without its sessions and comes back at once
    let moved = on_p(&echo("v", "{protocol: UDP, port: 6}", &format!("[{discard}]")));
    assert_eq!(l7mp(&moved, &mut proxy), ["DELETE listeners/v:v", "POST listeners v:v"]);
}

#[test]
fn options_reach_the_proxy_and_a_named_cluster_is_replaced_back_to_back() {
    let target = |port: u16| {
        format!(
            "Target t: {{selector: {{}}, cluster: {{spec: {{protocol: UDP, port: {port}}}, endpoints: [{{spec: {{address: 10.0.0.9}}}}]}}}}"
        )
    };
    let mut proxy = Proxy::with_foreign();
    l7mp(&on_p(&target(1)), &mut proxy);
    assert_eq!(l7mp(&on_p(&target(2)), &mut proxy), ["DELETE clusters/t:t", "POST clusters t:t"]);
    let tracked =
        "VirtualService v: {selector: {}, listener: {protocol: UDP, port: 5}, rules: [], options: {track: 30}}";
    let steps = diff(
        &on_p(tracked),
        &ObservedConfig::of(&Proxy::with_foreign().config()),
        ProxyImplementation::L7mp,
        &Ownership::default(),
    );
    let listener = &steps.calls.last().unwrap().body.as_ref().unwrap()["listener"];
    assert_eq!(listener["options"]["track"], 30);
}

#[test]
fn a_websocket_listener_is_edited_at_a_price_on_a_real_l7mp() {
    let ws = |port: u16| on_p(&echo("v", &format!("{{protocol: WebSocket, port: {port}}}"), "[]"));
    let mut proxy = Proxy::with_foreign();
    l7mp(&ws(5), &mut proxy);
    let steps = diff(&ws(6), &ObservedConfig::of(&proxy.config()), ProxyImplementation::L7mp, &Ownership::default());
    assert_eq!(steps.diagnostics.iter().map(|(_, note)| note.reason).collect::<Vec<_>>(), [Reason::SessionsCut]);
}

#[test]
fn a_port_is_handed_over_before_it_is_taken() {
    let mut proxy = Proxy::with_foreign();
    l7mp(&on_p(&echo("old", "{protocol: UDP, port: 5}", "[]")), &mut proxy);
    let calls = l7mp(&on_p(&echo("new", "{protocol: UDP, port: 5}", "[]")), &mut proxy);
    assert_eq!(
        calls,
        ["POST rulelists new:v", "DELETE listeners/old:v", "POST listeners new:v", "DELETE rulelists/old:v"]
    );
}

#[test]
fn a_singleton_that_loses_its_only_session_is_begun_again() {
    let singleton = "{protocol: UDP, port: 5, connect: {address: 10.0.0.8, port: 5}}";
    let to = |addresses: &str, retry: &str| {
        format!(
            "{}Target t: {{selector: {{}}, cluster: {{spec: {{protocol: UDP, port: 1}}, endpoints: {addresses}}}}}",
            echo("v", singleton, &format!("[{{action: {{route: {{destination: t, retry: {{retry_on: {retry}}}}}}}}}]"))
        )
    };
    let (two, one) = ("[{spec: {address: 10.0.0.1}}, {spec: {address: 10.0.0.2}}]", "[{spec: {address: 10.0.0.1}}]");
    let gone = "DELETE endpoints/t:t%4010.0.0.2?recursive=true";
    let mut proxy = Proxy::with_foreign();
    l7mp(&on_p(&to(two, "never")), &mut proxy);
    assert_eq!(l7mp(&on_p(&to(one, "never")), &mut proxy), [gone, "DELETE listeners/v:v", "POST listeners v:v"]);
    let mut proxy = Proxy::with_foreign();
    l7mp(&on_p(&to(two, "always")), &mut proxy);
    assert_eq!(l7mp(&on_p(&to(one, "always")), &mut proxy), [gone], "its session moves");
}

#[test]
fn rule_objects_find_their_place_among_foreign_rules() {
    let rule = |of: &str, position: u8| {
        format!("Rule {of}: {{selector: {{}}, rulelist: static, position: {position}, rule: {TO_ECHO}}}\n")
    };
    let mut proxy = Proxy::with_foreign();
    l7mp(&on_p(&(rule("older", 1) + &rule("newer", 1) + &rule("last", 9))), &mut proxy);
    let list = |proxy: &Proxy| {
        let config = proxy.config();
        let lists = config["rulelists"].as_array().unwrap();
        let list = lists.iter().find(|list| list["name"] == "static").unwrap();
        list["rules"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| rule.as_str().unwrap().replace(".default.rule.cluster.local", ""))
            .collect::<Vec<_>>()
    };
    assert_eq!(list(&proxy), ["f0", "newer", "older", "f1", "last"]);
    l7mp(&on_p(&rule("newer", 0)), &mut proxy);
    assert_eq!(list(&proxy), ["newer", "f0", "f1"]);
    l7mp(&ProxyConfig::default(), &mut proxy);
    assert_eq!(list(&proxy), ["f0", "f1"]);
}

#[test]
fn a_rulelist_that_is_not_there_is_told() {
    let text = "VirtualService v: {selector: {}, listener: {protocol: UDP, port: 5}, rulesRef: nowhere}";
    let steps = diff(
        &on_p(text),
        &ObservedConfig::of(&Proxy::with_foreign().config()),
        ProxyImplementation::L7mp,
        &Ownership::default(),
    );
    assert_eq!(steps.diagnostics.iter().map(|(_, note)| note.reason).collect::<Vec<_>>(), [Reason::RuleListMissing]);
}

#[test]
fn the_shipped_operators_objects_are_taken_over_one_by_one() {
    let legacy = json!({
        "listeners": [{"name": "/l7mp.io/v1/VirtualService/default/v", "spec": {"protocol": "UDP", "port": 5}, "rules": "x"}],
        "clusters": [{"name": "/l7mp.io/v1/Target/default/t", "spec": {"protocol": "Echo"}, "endpoints": 0}],
    });
    let desired = on_p(&echo("v", "{protocol: UDP, port: 5}", "[]"));
    let calls = |adopt_legacy: bool| {
        let ownership = Ownership { adopt_legacy, ..Ownership::default() };
        lines(&diff(&desired, &ObservedConfig::of(&legacy), ProxyImplementation::L7mp, &ownership))
    };
    assert_eq!(
        calls(true),
        [
            "POST rulelists v:v",
            "DELETE listeners/%2Fl7mp.io%2Fv1%2FVirtualService%2Fdefault%2Fv",
            "POST listeners v:v",
            "DELETE clusters/%2Fl7mp.io%2Fv1%2FTarget%2Fdefault%2Ft",
        ]
    );
    assert_eq!(calls(false).len(), 2);
}

#[test]
fn our_proxy_gets_one_transaction_and_drains() {
    let world = |leaving: bool| {
        let world = gateway().with_pod("worker-0", |pod| pod.terminating = leaving);
        world.naked("worker-1", "worker", "10.1.0.6").slices().plan().on("gateway-0")
    };
    let mut proxy = Proxy::with_foreign();
    let mut run = |desired: &ProxyConfig| {
        let steps =
            diff(desired, &ObservedConfig::of(&proxy.config()), ProxyImplementation::Portolan, &Ownership::default());
        steps.calls.iter().for_each(|call| proxy.take(call).unwrap());
        let ops = steps.calls.iter().flat_map(|call| call.body.as_ref().unwrap()["ops"].as_array().unwrap().clone());
        (
            steps.calls.len(),
            ops.map(|op| format!("{} {}", op["op"].as_str().unwrap(), op["kind"].as_str().unwrap()))
                .collect::<Vec<_>>(),
        )
    };
    let (calls, ops) = run(&world(false));
    assert_eq!((calls, ops.len()), (1, 6));
    assert_eq!(run(&world(true)), (1, vec!["drain endpoint".to_owned()]));
    assert_eq!(run(&world(false)), (1, vec!["put endpoint".to_owned()]), "taken back into service");
    assert_eq!(run(&world(false)), (0, vec![]));
}

#[test]
fn a_shallow_answer_is_enough() {
    let mut proxy = Proxy::with_foreign();
    let plan = gateway().plan();
    l7mp(&plan.on("gateway-0"), &mut proxy);
    let mut config = proxy.config();
    let mut apart = Vec::new();
    for cluster in config["clusters"].as_array_mut().unwrap() {
        let endpoints = cluster["endpoints"].as_array().cloned().unwrap_or_default();
        cluster["endpoints"] = json!(endpoints.len());
        apart.extend(endpoints);
    }
    config["endpoints"] = Value::Array(apart);
    let steps =
        diff(&plan.on("gateway-0"), &ObservedConfig::of(&config), ProxyImplementation::L7mp, &Ownership::default());
    assert!(steps.calls.is_empty(), "{:?}", lines(&steps));
}
