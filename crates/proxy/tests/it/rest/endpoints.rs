//! Endpoints of a cluster that change one by one and all at once.

use serde_json::{Value, json};

use super::client::Proxy;

const CLUSTER: &str = "{clusters: [{name: c, spec: {protocol: UDP, port: 1}}]}";

fn apply(proxy: &Proxy, ops: &[Value]) {
    let answer = proxy.ask("POST /api/v2/apply", Some(json!({"owner": "op", "ops": ops})));
    assert_eq!(answer.status, 200, "{}", answer.body);
}

/// Names and weights, in order.
fn standing(proxy: &Proxy) -> Vec<(String, u32)> {
    let cluster = proxy.engine.snapshot().clusters.get("c").cloned().unwrap();
    cluster.endpoints.iter().map(|endpoint| (endpoint.name.to_string(), endpoint.weight)).collect()
}

fn named(pairs: &[(u32, u32)]) -> Vec<(String, u32)> {
    pairs.iter().map(|(index, weight)| (format!("e{index}"), *weight)).collect()
}

fn endpoint(index: u32, weight: u32) -> Value {
    json!({"name": format!("e{index}"), "spec": {"address": "10.0.0.1", "port": index}, "weight": weight})
}

fn cluster(endpoints: &[(u32, u32)]) -> Value {
    let endpoints: Vec<Value> = endpoints.iter().map(|(index, weight)| endpoint(*index, *weight)).collect();
    json!({"spec": {"protocol": "UDP", "port": 1}, "endpoints": endpoints})
}

#[test]
fn endpoints_are_changed_and_deleted_where_they_stand_whatever_their_order() {
    let proxy = Proxy::start(CLUSTER, false);
    let put = |index: u32, weight: u32| json!({"op": "put", "kind": "endpoint", "name": format!("e{index}"), "cluster": "c", "object": endpoint(index, weight)});
    let delete = |index: u32| json!({"op": "delete", "kind": "endpoint", "name": format!("e{index}")});
    apply(&proxy, &[1, 2, 3, 4, 5, 6].map(|index| put(index, 1)));
    apply(&proxy, &[put(5, 7), delete(2), put(1, 3), put(7, 1), delete(6)]);
    assert_eq!(standing(&proxy), named(&[(1, 3), (3, 1), (4, 1), (5, 7), (7, 1)]));
    let turned = cluster(&[(7, 1), (4, 1), (1, 3), (5, 7), (3, 1)]);
    assert_eq!(proxy.ask("PUT /api/v2/clusters/c", Some(turned)).status, 200);
    apply(&proxy, &[put(5, 2), delete(1), put(7, 4), put(8, 1), delete(3)]);
    assert_eq!(standing(&proxy), named(&[(7, 4), (4, 1), (5, 2), (8, 1)]));
}

#[test]
fn a_cluster_written_again_after_an_endpoint_came_or_went_is_as_it_was_written() {
    let proxy = Proxy::start(CLUSTER, false);
    let written = cluster(&[(1, 1), (2, 1)]);
    let write = || proxy.ask("PUT /api/v2/clusters/c", Some(written.clone())).json()["changed"].clone();
    assert_eq!(write(), true);
    assert_eq!(write(), false);
    let more = json!({"endpoint": endpoint(3, 1)});
    assert_eq!(proxy.ask("POST /api/v1/clusters/c/endpoints", Some(more)).status, 200);
    assert_eq!(write(), true);
    assert_eq!(standing(&proxy), named(&[(1, 1), (2, 1)]));
    assert_eq!(proxy.ask("DELETE /api/v1/endpoints/e1", None).status, 200);
    assert_eq!(write(), true);
    assert_eq!(standing(&proxy), named(&[(1, 1), (2, 1)]));
}

#[test]
fn an_endpoint_that_drains_goes_on_to_when_its_cluster_is_written_again() {
    let proxy = Proxy::start(CLUSTER, false);
    let state = || proxy.ask("GET /api/v2/endpoints/e1", None).json()["state"].clone();
    assert_eq!(proxy.ask("PUT /api/v2/clusters/c", Some(cluster(&[(1, 1)]))).status, 200);
    assert_eq!(proxy.ask("PATCH /api/v2/endpoints/e1", Some(json!({"state": "draining"}))).status, 200);
    assert_eq!(proxy.ask("PUT /api/v2/clusters/c", Some(cluster(&[(1, 5), (2, 1)]))).status, 200);
    assert_eq!((state(), standing(&proxy)), (json!("draining"), named(&[(1, 5), (2, 1)])));
    assert_eq!(proxy.ask("PATCH /api/v2/endpoints/e1", Some(json!({"state": "active"}))).status, 200);
    assert_eq!(state(), "active");
}
