//! Bytes written by hand from the published tags: a wrong tag or wire type shows here, not in a silent Envoy.

use std::collections::BTreeMap;

use portolan_core::gateway::ports::Protocol;
use prost::{Message, Name};

use super::cluster::{AggregatedConfigSource, Cluster, ConfigSource, DiscoveryType, EdsClusterConfig, LbPolicy};
use super::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Node, Resource, Status};
use super::listener::{Listener, Matcher, OnMatch, Route, TypedExtensionConfig, UdpListenerConfig, UdpSocketConfig};
use super::{Address, Any, Duration};

#[test]
fn a_listener_has_envoys_tags() {
    let listener = Listener {
        name: "L".to_owned(),
        address: Some(Address::of(Protocol::Udp, ([127, 0, 0, 1], 53).into())),
        freebind: Some(true),
        udp_listener_config: Some(UdpListenerConfig {
            downstream_socket_config: Some(UdpSocketConfig { max_rx_datagram_size: Some(300) }),
        }),
        // a wrapper with the default value is a message of no bytes, and is there
        enable_reuse_port: Some(false),
        ..Listener::default()
    };
    let address = [&[0x0a, 15, 0x08, 1, 0x12, 9][..], b"127.0.0.1", &[0x18, 53]].concat();
    let bytes = [
        &[0x0a, 1, b'L', 0x12, 17][..],
        &address,
        &[0x5a, 2, 0x08, 1],
        &[0x92, 0x01, 7, 0x2a, 5, 0x0a, 3, 0x08, 0xac, 0x02],
        &[0xea, 0x01, 0],
    ];
    assert_eq!(listener.encode_to_vec(), bytes.concat());
}

#[test]
fn a_cluster_has_envoys_tags() {
    let source = ConfigSource { ads: Some(AggregatedConfigSource {}), resource_api_version: 2 };
    let cluster = Cluster {
        name: "C".to_owned(),
        discovery_type: DiscoveryType::Eds.into(),
        eds_cluster_config: Some(EdsClusterConfig { eds_config: Some(source) }),
        connect_timeout: Some(Duration::seconds(2)),
        lb_policy: LbPolicy::Maglev.into(),
        ..Cluster::default()
    };
    let bytes = [&[0x0a, 1, b'C', 0x10, 3][..], &[0x1a, 6, 0x0a, 4, 0x1a, 0, 0x30, 2], &[0x22, 2, 0x08, 2], &[0x30, 5]];
    assert_eq!(cluster.encode_to_vec(), bytes.concat());
}

#[test]
fn a_response_has_envoys_tags() {
    let any = Any { type_url: "t".to_owned(), value: vec![7].into() };
    let resource = Resource { version: "v".to_owned(), resource: Some(any), name: "n".to_owned() };
    let response = DeltaDiscoveryResponse {
        resources: vec![resource],
        type_url: "t".to_owned(),
        nonce: "1".to_owned(),
        removed_resources: vec!["x".to_owned()],
    };
    let bytes = [
        &[0x12, 14, 0x0a, 1, b'v', 0x12, 6, 0x0a, 1, b't', 0x12, 1, 7, 0x1a, 1, b'n'][..],
        &[0x22, 1, b't', 0x2a, 1, b'1', 0x32, 1, b'x'],
    ];
    assert_eq!(response.encode_to_vec(), bytes.concat());
}

#[test]
fn a_request_is_read_and_unknown_fields_are_skipped() {
    let bytes = [
        // node: id, and a field 6 that is not known here
        &[0x0a, 8, 0x0a, 1, b'i', 0x32, 3, b'e', b'n', b'v'][..],
        &[0x12, 1, b't', 0x1a, 1, b'a', 0x22, 1, b'b'],
        &[0x2a, 6, 0x0a, 1, b'n', 0x12, 1, b'v'],
        &[0x32, 1, b'9', 0x3a, 5, 0x08, 13, 0x12, 1, b'!'],
    ];
    let request = DeltaDiscoveryRequest {
        node: Some(Node { id: "i".to_owned() }),
        type_url: "t".to_owned(),
        resource_names_subscribe: vec!["a".to_owned()],
        resource_names_unsubscribe: vec!["b".to_owned()],
        initial_resource_versions: BTreeMap::from([("n".to_owned(), "v".to_owned())]),
        response_nonce: "9".to_owned(),
        error_detail: Some(Status { code: 13, message: "!".to_owned() }),
    };
    assert_eq!(DeltaDiscoveryRequest::decode(&*bytes.concat()), Ok(request));
}

#[test]
fn an_action_names_its_type() {
    let route = Route { cluster: "c".to_owned() };
    let action = TypedExtensionConfig { name: "route".to_owned(), typed_config: Some(Any::of(&route)) };
    let matcher = Matcher { on_no_match: Some(OnMatch { action: Some(action) }) };
    let url = "type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.Route";
    assert_eq!(Route::type_url(), url);
    assert_eq!(url.len(), 67);
    let any = [&[0x0a, 67][..], url.as_bytes(), &[0x12, 3, 0x0a, 1, b'c']].concat();
    let action = [&[0x0a, 5][..], b"route", &[0x12, 74], &any].concat();
    let bytes = [&[0x1a, 85, 0x12, 83][..], &action].concat();
    assert_eq!(matcher.encode_to_vec(), bytes);
}
