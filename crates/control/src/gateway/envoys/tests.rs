//! The objects of units, and what is read from pods.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use portolan_certs::{CertificateAuthority, SignedCertificate};
use portolan_core::gateway::ports::{PortNumber, Protocol};
use portolan_core::gateway::unit::{Listener, State, Unit, UnitId};
use serde_json::{Value, json};

use super::manifest::{Identity, Manifest, UNIT_LABEL, certificate, identify, manifest, name, unit_of, uri};
use super::{DeploymentOptions, pods};
use crate::runtime::authority::Schedule;

const HOUR: Duration = Duration::from_hours(1);

fn id(name: &str) -> UnitId {
    UnitId { namespace: "egw-acme".into(), name: name.into() }
}

fn unit(address: &str, ports: &[PortNumber]) -> Unit {
    let listener = |port: &PortNumber| {
        let endpoints = BTreeSet::from(["10.1.0.7:8080".parse().unwrap()]);
        (*port, Listener { load_balancer: "web".into(), endpoints })
    };
    let listeners = ports.iter().map(listener).collect();
    Unit { address: address.parse().unwrap(), image: "".into(), prefix: "default".into(), listeners }
}

const fn tcp(port: u16) -> PortNumber {
    PortNumber { protocol: Protocol::Tcp, port }
}

const fn udp(port: u16) -> PortNumber {
    PortNumber { protocol: Protocol::Udp, port }
}

fn options() -> DeploymentOptions {
    DeploymentOptions {
        namespace: "portolan".to_owned(),
        image: "envoy:default".to_owned(),
        xds_server: ("portolan-xds.portolan.svc".to_owned(), 18000),
        xds_listen: "[::1]:0".parse().unwrap(),
        multus: false,
        drain: Duration::from_secs(10),
        schedule: Schedule::default(),
    }
}

fn signed(unit: &UnitId) -> SignedCertificate {
    let now = Timestamp::now();
    CertificateAuthority::new("test", now, HOUR).unwrap().sign_client_uri(&uri(unit), now, HOUR).unwrap()
}

fn made(id: &UnitId, unit: &Unit) -> Manifest {
    manifest(id, unit, Identity { certificate: &signed(id), authorities: "authorities" }, None, &options())
}

fn deployment(unit: &Unit) -> Value {
    serde_json::to_value(made(&id("web"), unit).deployment).unwrap()
}

#[test]
fn pod_is_not_privileged() {
    let deployment = deployment(&unit("192.0.2.1", &[tcp(80)]));
    let pod = &deployment["spec"]["template"]["spec"];
    let security = json!({
        "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
        "seccompProfile": { "type": "RuntimeDefault" },
        "sysctls": [{ "name": "net.ipv4.ip_unprivileged_port_start", "value": "0" }],
    });
    assert_eq!(pod["securityContext"], security);
    let of_container = json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
    });
    assert_eq!(pod["containers"][0]["securityContext"], of_container);
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["containers"].as_array().unwrap().len(), 1);
    for never in ["hostNetwork", "hostPID", "hostIPC", "serviceAccountName", "initContainers"] {
        assert!(pod.get(never).is_none(), "{never}");
    }
    for volume in pod["volumes"].as_array().unwrap() {
        assert!(volume.get("secret").is_some() || volume.get("emptyDir").is_some(), "{volume}");
    }
}

#[test]
fn admin_not_on_network() {
    let Manifest { secret, .. } = made(&id("web"), &unit("192.0.2.1", &[tcp(80)]));
    let bootstrap: Value = serde_json::from_slice(&secret.data.unwrap()["bootstrap.json"].0).unwrap();
    assert_eq!(bootstrap["admin"]["address"], json!({ "pipe": { "path": "/run/envoy/admin.sock", "mode": 0o600 } }));
    assert_eq!(bootstrap["node"], json!({ "id": "egw-acme/web", "cluster": "egw-acme" }));
}

#[test]
fn the_service_takes_packets_for_the_public_address_to_the_pod_and_opens_no_node_port() {
    let Manifest { deployment, service, .. } = made(&id("web"), &unit("192.0.2.1", &[udp(53), tcp(80)]));
    let service = serde_json::to_value(service).unwrap();
    let name = name(&id("web"));
    let expected = json!({
        "type": "LoadBalancer",
        "loadBalancerClass": "portolan.dev/gateway-address",
        "allocateLoadBalancerNodePorts": false,
        "externalTrafficPolicy": "Cluster",
        "ipFamilyPolicy": "SingleStack",
        "ipFamilies": ["IPv4"],
        "selector": { "portolan.dev/gateway-unit": name },
        "ports": [
            { "name": "tcp-80", "protocol": "TCP", "port": 80, "targetPort": 80 },
            { "name": "udp-53", "protocol": "UDP", "port": 53, "targetPort": 53 },
        ],
    });
    assert_eq!(service["spec"], expected);
    let labels = deployment.spec.unwrap().template.metadata.unwrap().labels.unwrap();
    let expected = [("app", "egw"), ("loadbalancer_cr", "web"), (UNIT_LABEL, &name), ("role", "proxy")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(labels, BTreeMap::from(expected));
    let six = made(&id("web"), &unit("2001:db8::1", &[tcp(80)])).service.spec.unwrap();
    assert_eq!(six.ip_families, Some(vec!["IPv6".to_owned()]));
}

#[test]
fn an_image_rolls_out_and_endpoints_and_ports_do_not() {
    let before = deployment(&unit("192.0.2.1", &[tcp(80)]));
    let mut other = unit("192.0.2.1", &[tcp(80), tcp(443)]);
    other.listeners.get_mut(&tcp(80)).unwrap().endpoints.clear();
    assert_eq!(deployment(&other), before);
    other.image = "envoy:own".into();
    let after = deployment(&other);
    let image = |deployment: &Value| deployment["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    assert_eq!((image(&before), image(&after)), (json!("envoy:default"), json!("envoy:own")));
}

#[test]
fn the_port_of_the_readiness_probe_is_never_a_public_one() {
    let probe = |ports: &[PortNumber]| {
        let deployment = deployment(&unit("192.0.2.1", ports));
        let probe = &deployment["spec"]["template"]["spec"]["containers"][0]["readinessProbe"];
        probe["tcpSocket"]["port"].as_u64().unwrap()
    };
    assert_eq!(probe(&[tcp(80)]), 18001);
    assert_eq!(probe(&[udp(18001)]), 18001);
    assert_eq!(probe(&[tcp(18001), tcp(18002)]), 18003);
}

#[test]
fn names_are_valid_and_tell_all_units_apart() {
    let long = "n".repeat(63);
    let units =
        ["web", "web-", "-web", long.as_str(), "share.192.0.2.1", "share.fd00.0000.0000.0001", "share.fd00::1", "1"];
    let mut names = BTreeSet::new();
    for (namespace, unit) in units.iter().flat_map(|unit| [("egw-acme", *unit), ("egw-other", unit)]) {
        let id = UnitId { namespace: namespace.into(), name: unit.into() };
        let name = name(&id);
        assert!(name.len() <= 63 && name.starts_with("envoy-"), "{name}");
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{name}");
        assert!(names.insert(name), "{id}");
    }
    let Manifest { secret, deployment, service } = made(&id("web"), &unit("192.0.2.1", &[]));
    for found in [unit_of(&secret), unit_of(&deployment), unit_of(&service)] {
        assert_eq!(found, Some(id("web")));
    }
    let mut other = service;
    other.annotations_mut().insert("portolan.dev/unit".to_owned(), "egw-acme/other".to_owned());
    assert_eq!(unit_of(&other), None, "its name says otherwise");
}

#[test]
fn a_certificate_is_kept_while_it_is_whole_and_of_its_unit() {
    let Manifest { mut secret, .. } = made(&id("web"), &unit("192.0.2.1", &[]));
    let kept = certificate(&id("web"), &secret).expect("it is whole");
    assert_eq!(identify(&kept.der().unwrap()), Some(id("web")));
    assert!(certificate(&id("other"), &secret).is_none(), "another unit");
    secret.data.as_mut().unwrap().remove("tls.key");
    assert!(certificate(&id("web"), &secret).is_none(), "without its key");
    let address: IpAddr = "192.0.2.1".parse().unwrap();
    assert!(address.is_ipv4() && identify(b"garbage").is_none());
}

fn problem(status: &Value) -> Option<State> {
    let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "p" }, "status": status })).unwrap();
    pods::problem(&Deployment::default(), &[Arc::new(pod)])
}

fn container(state: &Value, last: &Value) -> Value {
    let status = json!({
        "name": "envoy", "image": "envoy:9", "imageID": "", "ready": false, "restartCount": 1,
        "state": state, "lastState": last,
    });
    json!({ "containerStatuses": [status] })
}

#[test]
fn what_stops_a_pod_is_said_in_its_words() {
    let waiting = |reason: &str| json!({ "waiting": { "reason": reason, "message": "because" } });
    let pull = problem(&container(&waiting("ImagePullBackOff"), &json!({})));
    assert!(
        matches!(&pull, Some(State::Missing(why)) if why.contains("envoy:9") && why.contains("because")),
        "{pull:?}"
    );
    let ended = json!({ "terminated": { "exitCode": 3, "message": "ouch" } });
    for status in [container(&waiting("CrashLoopBackOff"), &ended), container(&ended, &json!({}))] {
        let crash = problem(&status);
        assert!(
            matches!(&crash, Some(State::Crashed(why)) if why.contains("code 3") && why.contains("ouch")),
            "{crash:?}"
        );
    }
    assert_eq!(problem(&container(&waiting("ContainerCreating"), &json!({}))), None);
    assert_eq!(problem(&container(&json!({ "running": {} }), &json!({}))), None);
    let unscheduled = json!({ "conditions": [{ "type": "PodScheduled", "status": "False", "message": "no room" }] });
    let found = problem(&unscheduled);
    assert!(matches!(&found, Some(State::Missing(why)) if why.contains("no room")), "{found:?}");
    let failure = json!({ "status": { "conditions": [
        { "type": "ReplicaFailure", "status": "True", "message": "forbidden: quota" }] } });
    let found = pods::problem(&serde_json::from_value(failure).unwrap(), &[]);
    assert!(matches!(&found, Some(State::Missing(why)) if why.contains("quota")), "{found:?}");
}
