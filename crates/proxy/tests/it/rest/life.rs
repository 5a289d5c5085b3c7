//! How long objects and sessions live.

use portolan_proxy::config::engine::Ending;
use serde_json::json;

use super::client::Proxy;

const SHOP: &str = r"
listeners:
- name: l
  spec: {protocol: UDP, port: 5001}
  rules: [{action: {route: {destination: {spec: {protocol: UDP, port: 1}, endpoints: [{name: e, spec: {address: 127.0.0.1}}]}, ingress: [{spec: {protocol: Echo}}]}}}]
";

fn empty(proxy: &Proxy) -> bool {
    let config = proxy.ask("GET /api/v1/config", None).json();
    ["listeners", "clusters", "rulelists", "rules", "routes", "endpoints"]
        .iter()
        .all(|kind| config[kind].as_array().is_some_and(Vec::is_empty))
}

#[test]
fn a_listener_without_sessions_takes_its_children_with_it() {
    for target in ["/api/v1/listeners/l", "/api/v1/listeners/l?recursive=true", "/api/v2/listeners/l"] {
        let proxy = Proxy::start(SHOP, false);
        assert_eq!(proxy.ask(&format!("DELETE {target}"), None).status, 200);
        assert!(empty(&proxy), "{target}");
        assert!(proxy.engine.ended().is_empty());
    }
}

#[test]
fn children_stay_until_the_last_session_of_a_deleted_listener_ends() {
    let proxy = Proxy::start(SHOP, false);
    proxy.engine.open("s", "l");
    assert_eq!(proxy.ask("DELETE /api/v1/listeners/l", None).status, 200);
    assert!(proxy.engine.ended().is_empty());
    let session = proxy.ask("GET /api/v1/sessions/s", None).json();
    assert_eq!(session["source"]["listener"], "<INVALID>");
    assert_eq!(proxy.ask("GET /api/v1/rulelists", None).json().as_array().map(Vec::len), Some(1));
    let applied = proxy.engine.applied();
    proxy.api.sweep();
    assert_eq!(proxy.engine.applied(), applied, "waiting changes nothing");

    proxy.engine.close("s");
    proxy.api.sweep();
    assert!(empty(&proxy));
}

#[test]
fn a_name_that_is_used_again_in_time_lives_on() {
    let proxy = Proxy::start(SHOP, false);
    proxy.engine.open("s", "l");
    proxy.ask("DELETE /api/v1/listeners/l", None);
    let again = json!({"listener": {"name": "l", "spec": {"protocol": "UDP", "port": 5001}, "rules": "l-RuleList-0"}});
    assert_eq!(proxy.ask("POST /api/v1/listeners", Some(again)).status, 200);
    let session = proxy.ask("GET /api/v1/sessions/s", None).json();
    assert_eq!(session["source"]["listener"], "<INVALID>", "a namesake is not the one that took the session in");
    proxy.engine.close("s");
    proxy.api.sweep();
    assert_eq!(proxy.ask("GET /api/v1/clusters", None).json().as_array().map(Vec::len), Some(2));
}

#[test]
fn a_recursive_delete_ends_the_listeners_sessions_and_no_others() {
    let other = "- {name: m, spec: {protocol: UDP, port: 5002}, rules: [{action: {route: {destination: {spec: {protocol: Echo}}}}}]}\n";
    let proxy = Proxy::start(&format!("{SHOP}{other}"), false);
    proxy.engine.open("s1", "l");
    proxy.engine.open("s2", "l");
    proxy.engine.open("t", "m");
    assert_eq!(proxy.ask("DELETE /api/v1/listeners/l?recursive=true", None).status, 200);
    let reason = Ending::End("Listener deleted from API");
    assert_eq!(proxy.engine.ended(), [("s1".to_owned(), reason), ("s2".to_owned(), reason)]);
    assert_eq!(proxy.ask("GET /api/v1/sessions", None).json()[0]["name"], "t");
}

#[test]
fn orphan_sessions_end_with_a_listener_that_says_so() {
    let proxy = Proxy::start(&SHOP.replace("  rules:", "  options: {removeOrphanSessions: true}\n  rules:"), false);
    proxy.engine.open("s", "l");
    assert_eq!(proxy.ask("DELETE /api/v1/listeners/l", None).status, 200);
    assert_eq!(proxy.engine.ended(), [("s".to_owned(), Ending::End("Listener deleted from API"))]);
    proxy.api.sweep();
    assert!(empty(&proxy));
}

#[test]
fn a_cluster_ends_its_sessions_only_when_asked_to() {
    let cluster = "l-RuleList-0-Rule-0-Route-0-Cluster-0";
    let proxy = Proxy::start(SHOP, false);
    proxy.engine.open("s", "l");
    assert_eq!(proxy.ask(&format!("DELETE /api/v1/clusters/{cluster}"), None).status, 200);
    assert!(proxy.engine.ended().is_empty());

    let proxy = Proxy::start(SHOP, false);
    proxy.engine.open("s", "l");
    assert_eq!(proxy.ask(&format!("DELETE /api/v1/clusters/{cluster}?recursive=true"), None).status, 200);
    assert_eq!(proxy.engine.ended(), [("s".to_owned(), Ending::End("Traversed Cluster deleted from API"))]);
}

#[test]
fn an_endpoint_deleted_recursively_disconnects_and_leaves_the_rest_to_retry() {
    let proxy = Proxy::start(SHOP, false);
    proxy.engine.open("s", "l");
    assert_eq!(proxy.ask("DELETE /api/v1/endpoints/e?recursive=true", None).status, 200);
    assert_eq!(proxy.engine.ended(), [("s".to_owned(), Ending::Disconnect)]);
    assert_eq!(proxy.ask("GET /api/v1/sessions/s", None).status, 200);
}

#[test]
fn children_that_others_use_survive_a_recursive_delete() {
    let proxy = Proxy::start(SHOP, false);
    let route = json!({"route": {"name": "r", "destination": "l-RuleList-0-Rule-0-Route-0-Cluster-0"}});
    proxy.ask("POST /api/v1/routes", Some(route));
    assert_eq!(proxy.ask("DELETE /api/v1/listeners/l?recursive=true", None).status, 200);
    let clusters = proxy.ask("GET /api/v1/clusters", None).json();
    assert_eq!(clusters.as_array().map(Vec::len), Some(1));
    assert_eq!(clusters[0]["name"], "l-RuleList-0-Rule-0-Route-0-Cluster-0");
}

#[test]
fn named_children_survive_a_recursive_delete() {
    let proxy = Proxy::start(
        "{listeners: [{name: l, spec: {protocol: UDP, port: 1}, rules: rl}], rulelists: [{name: rl, rules: [ru]}], \
         rules: [{name: ru, action: {route: r}}], routes: [{name: r, destination: c}], clusters: [{name: c, spec: {protocol: Echo}}]}",
        false,
    );
    proxy.ask("DELETE /api/v1/listeners/l?recursive=true", None);
    for kind in ["rulelists", "rules", "routes", "clusters"] {
        assert_eq!(proxy.ask(&format!("GET /api/v1/{kind}"), None).json().as_array().map(Vec::len), Some(1), "{kind}");
    }
}

#[test]
fn a_session_is_dumped_with_its_chain_in_both_modes() {
    for strict in [false, true] {
        let proxy = Proxy::start(SHOP, strict);
        proxy.engine.open("UDP:127.0.0.1:1-0.0.0.0:5001-0", "l");
        let dump = proxy.ask("GET /api/v1/sessions/UDP%3A127.0.0.1%3A1-0.0.0.0%3A5001-0?format=terse", None);
        assert_eq!(
            dump.body,
            "{\"name\":\"UDP:127.0.0.1:1-0.0.0.0:5001-0\",\"metadata\":{\"IP\":{\"src_addr\":\"127.0.0.1\"}},\
             \"source\":{\"origin\":\"l\",\"listener\":{\"protocol\":\"UDP\",\"port\":5001},\"status\":\"READY\"},\
             \"destination\":{\"origin\":\"l-RuleList-0-Rule-0-Route-0-Cluster-0\",\
             \"endpoint\":{\"name\":\"e\",\"spec\":{\"address\":\"127.0.0.1\"}},\"status\":\"READY\"},\
             \"ingress\":[{\"origin\":\"l-RuleList-0-Rule-0-Route-0-ingress-Cluster-1\",\
             \"endpoint\":{\"name\":\"l-RuleList-0-Rule-0-Route-0-ingress-Cluster-1\",\
             \"spec\":{\"address\":\"<VIRTUAL>\"}},\"status\":\"READY\"}],\"egress\":[],\"status\":\"CONNECTED\",\
             \"events\":[{\"event\":\"INIT\",\"timestamp\":\"2020-09-13T12:26:40.000Z\",\
             \"message\":\"Session UDP:127.0.0.1:1-0.0.0.0:5001-0 initialized\",\"content\":\"\"}],\
             \"stats\":{\"packets\":{\"in\":1,\"out\":2},\"bytes\":{\"in\":3,\"out\":4}},\
             \"created\":\"2020-09-13T12:26:40.000Z\",\"idle_ms\":5}"
        );
        assert_eq!(proxy.ask("GET /api/v1/config", None).json()["sessions"][0]["status"], "CONNECTED");
        assert_eq!(proxy.ask("DELETE /api/v1/sessions/UDP%3A127.0.0.1%3A1-0.0.0.0%3A5001-0", None).status, 200);
        assert_eq!(proxy.engine.ended()[0].1, Ending::End("Session removed from the API"));
    }
}

#[test]
fn sessions_are_paged_filtered_and_ended_in_bulk() {
    let proxy = Proxy::start(SHOP, false);
    for index in 0..5 {
        proxy.engine.open(&format!("s{index}"), "l");
    }
    let page = proxy.ask("GET /api/v2/sessions?listener=l&limit=3", None).json();
    assert_eq!(page["sessions"].as_array().map(Vec::len), Some(3));
    let next = page["continue"].as_str().expect("there is more");
    let rest = proxy.ask(&format!("GET /api/v2/sessions?listener=l&limit=3&continue={next}"), None).json();
    assert_eq!(rest["sessions"][1]["name"], "s4");
    assert_eq!(rest.get("continue"), None);
    assert_eq!(proxy.ask("DELETE /api/v2/sessions?endpoint=e", None).json()["sessions_cut"], 5);
}
