use serde_json::{Value, json};

use super::*;

fn service(spec: &Value) -> Service {
    let mut service = json!({
        "metadata": { "name": "web", "namespace": "a", "uid": "s", "labels": { "l": "v" } },
        "spec": { "clusterIP": "10.96.0.9", "ipFamilies": ["IPv4"], "selector": { "app": "a" },
                  "ports": [{ "name": "http", "port": 80, "protocol": "TCP", "targetPort": "web" }] },
    });
    json_patch::merge(&mut service["spec"], spec);
    serde_json::from_value(service).unwrap()
}

fn pod(name: &str, ip: &str, ready: bool) -> Target {
    let pod = json!({
        "metadata": { "name": name, "namespace": "a", "uid": name, "labels": { "app": "a" } },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "ports": [{ "name": "web", "containerPort": 8080 }] }] },
        "status": { "phase": "Running", "podIPs": [{ "ip": ip }],
                    "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] },
    });
    Target::read(serde_json::from_value(pod).unwrap())
}

fn nodes() -> BTreeMap<Key, Option<String>> {
    BTreeMap::from([((String::new(), "n1".to_owned()), Some("z1".to_owned()))])
}

/// Applies changes to slices, as the server would.
fn apply(slices: &mut Vec<EndpointSlice>, changes: Vec<Change>) {
    for change in changes {
        match change {
            Change::Create(mut slice) => {
                slice.metadata.name = Some(format!("web-{}", slices.len()));
                slices.push(slice);
            }
            Change::Update(slice) => {
                let old = slices.iter_mut().find(|old| old.metadata.name == slice.metadata.name).unwrap();
                *old = slice;
            }
            Change::Delete { name, .. } => slices.retain(|slice| slice.name_any() != name),
        }
    }
}

/// Plans until nothing changes; that must be the second time.
fn settle(slices: &mut Vec<EndpointSlice>, service: Option<&Service>, pods: &[Target]) {
    let pods: Vec<&Target> = pods.iter().collect();
    let changes = plan(service, &pods, &nodes(), &slices.iter().collect::<Vec<_>>());
    apply(slices, changes);
    assert_eq!(plan(service, &pods, &nodes(), &slices.iter().collect::<Vec<_>>()), [], "planning again is empty");
}

#[test]
fn endpoints_look_as_the_real_controller_writes_them() {
    let mut terminating = pod("p2", "10.0.0.2", false);
    terminating.terminating = true;
    let mut slices = Vec::new();

    settle(&mut slices, Some(&service(&json!({}))), &[pod("p1", "10.0.0.1", true), terminating]);

    let slice = serde_json::to_value(&slices[0]).unwrap();
    assert_eq!(slice["metadata"]["generateName"], "web-");
    assert_eq!(
        slice["metadata"]["labels"],
        json!({ "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io", "kubernetes.io/service-name": "web", "l": "v" })
    );
    assert_eq!(
        slice["metadata"]["ownerReferences"],
        json!([{ "apiVersion": "v1", "kind": "Service", "name": "web", "uid": "s", "controller": true, "blockOwnerDeletion": true }])
    );
    let target = |name: &str| json!({ "kind": "Pod", "namespace": "a", "name": name, "uid": name });
    assert_eq!(
        slice["endpoints"],
        json!([
            { "addresses": ["10.0.0.1"], "conditions": { "ready": true, "serving": true, "terminating": false },
              "targetRef": target("p1"), "nodeName": "n1", "zone": "z1" },
            { "addresses": ["10.0.0.2"], "conditions": { "ready": false, "serving": false, "terminating": true },
              "targetRef": target("p2"), "nodeName": "n1", "zone": "z1" },
        ])
    );
    assert_eq!(slice["ports"], json!([{ "name": "http", "port": 8080, "protocol": "TCP" }]));
}

#[test]
fn a_service_without_endpoints_has_one_empty_slice_that_is_used_again() {
    let mut slices = Vec::new();
    settle(&mut slices, Some(&service(&json!({}))), &[]);
    assert_eq!((slices.len(), size(&slices[0]), slices[0].ports.clone()), (1, 0, None));

    settle(&mut slices, Some(&service(&json!({}))), &[pod("p1", "10.0.0.1", true)]);
    assert_eq!((slices.len(), slices[0].name_any().as_str(), size(&slices[0])), (1, "web-0", 1));

    settle(&mut slices, Some(&service(&json!({}))), &[]);
    assert_eq!((slices.len(), slices[0].name_any().as_str(), size(&slices[0])), (1, "web-0", 0));

    settle(&mut slices, None, &[]);
    assert!(slices.is_empty(), "they go with the service");
}

#[test]
fn a_slice_holds_a_hundred_and_endpoints_stay_where_they_are() {
    let mut pods: Vec<Target> = (0..150).map(|n| pod(&format!("p{n:03}"), &format!("10.0.1.{n}"), true)).collect();
    let mut slices = Vec::new();
    settle(&mut slices, Some(&service(&json!({}))), &pods);
    assert_eq!(slices.iter().map(size).collect::<Vec<_>>(), [100, 50]);

    pods.remove(3);
    settle(&mut slices, Some(&service(&json!({}))), &pods);
    assert_eq!(slices.iter().map(size).collect::<Vec<_>>(), [99, 50], "nothing moves up");

    pods.push(pod("q", "10.0.2.1", true));
    settle(&mut slices, Some(&service(&json!({}))), &pods);
    assert_eq!(slices.iter().map(size).collect::<Vec<_>>(), [100, 50], "the fullest is filled first");
}

#[test]
fn not_ready_headless_families_and_foreign_pods_count_as_in_kubernetes() {
    let one = |spec: Value, pods: &[Target]| {
        let mut slices = Vec::new();
        settle(&mut slices, Some(&service(&spec)), pods);
        slices
    };
    let unready = [pod("p", "10.0.0.1", false)];
    let conditions = one(json!({ "publishNotReadyAddresses": true }), &unready)[0].endpoints.as_ref().unwrap()[0]
        .conditions
        .clone()
        .unwrap();
    assert_eq!((conditions.ready, conditions.serving), (Some(true), Some(false)));

    let mut named = pod("p", "10.0.0.1", true);
    named.hostname = Some("h".to_owned());
    named.subdomain = Some("web".to_owned());
    let headless = one(json!({ "clusterIP": "None" }), &[named]);
    assert_eq!(headless[0].labels().get(HEADLESS).map(String::as_str), Some(""));
    assert_eq!(headless[0].endpoints.as_ref().unwrap()[0].hostname.as_deref(), Some("h"));

    let both = one(json!({ "ipFamilies": ["IPv4", "IPv6"] }), &unready);
    let types: Vec<&str> = both.iter().map(|slice| slice.address_type.as_str()).collect();
    assert_eq!(types, ["IPv4", "IPv6"]);

    let mut elsewhere = pod("p", "10.0.0.1", true);
    elsewhere.node = Some("unknown".to_owned());
    let mut ended = pod("p", "10.0.0.1", true);
    ended.over = true;
    let mut other = pod("p", "10.0.0.1", true);
    other.labels.clear();
    for pod in [elsewhere, ended, other] {
        assert!(one(json!({}), &[pod])[0].endpoints.is_none());
    }
    assert!(one(json!({ "selector": null }), &unready).is_empty());
}

#[test]
fn pods_that_name_a_port_differently_are_in_slices_of_their_own() {
    let mut second = pod("p2", "10.0.0.2", true);
    second.ports = vec![("web".to_owned(), "TCP".to_owned(), 9090)];
    let mut slices = Vec::new();

    settle(&mut slices, Some(&service(&json!({}))), &[pod("p1", "10.0.0.1", true), second]);

    let ports: Vec<Option<i32>> = slices.iter().map(|slice| slice.ports.as_ref().unwrap()[0].port).collect();
    assert_eq!(ports, [Some(8080), Some(9090)]);
}
