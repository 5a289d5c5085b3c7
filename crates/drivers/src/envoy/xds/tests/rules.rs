//! Each rule of what is sent when.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message as _;

use super::client::{Client, kinds};
use super::{snapshot, tcp};
use crate::envoy::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use crate::envoy::resources::{Kind, Snapshot};
use crate::envoy::xds::machine::Machine;

fn request(kind: Kind) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest { type_url: kind.type_url(), ..DeltaDiscoveryRequest::default() }
}

fn ack(response: &DeltaDiscoveryResponse) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: response.type_url.clone(),
        response_nonce: response.nonce.clone(),
        ..DeltaDiscoveryRequest::default()
    }
}

fn names(response: &DeltaDiscoveryResponse) -> Vec<&str> {
    response.resources.iter().map(|resource| &*resource.name).collect()
}

#[test]
fn an_empty_unit_is_answered_for_all_the_same() {
    let mut machine = Machine::new(Arc::new(Snapshot::empty()));
    let sent = Client::accepting().connect_to(&mut machine);
    assert_eq!(kinds(&sent), [Kind::Cluster, Kind::Listener]);
    assert!(sent.iter().all(|response| response.resources.is_empty() && response.removed_resources.is_empty()));
    assert!(machine.is_settled());
}

#[test]
fn it_goes_up_from_clusters_to_listeners_and_down_the_other_way() {
    let mut machine = Machine::new(snapshot(&[(80, "web", 1), (81, "web", 0)]));
    let mut client = Client::accepting();
    let up = client.connect_to(&mut machine);
    assert_eq!(kinds(&up), [Kind::Cluster, Kind::Assignment, Kind::Listener]);
    assert_eq!(names(&up[1]), ["egw-acme/web/TCP-80", "egw-acme/web/TCP-81"], "one without endpoints has one too");
    machine.want(snapshot(&[(80, "web", 1)]));
    let down = client.exchange(&mut machine);
    assert_eq!(kinds(&down), [Kind::Listener, Kind::Cluster]);
    assert_eq!((&*down[0].removed_resources[0], &*down[1].removed_resources[0]), ("TCP-81", "egw-acme/web/TCP-81"));
    assert!(machine.is_settled());
}

#[test]
fn a_port_that_goes_to_another_load_balancer_is_never_without_a_cluster() {
    let mut machine = Machine::new(snapshot(&[(80, "old", 1)]));
    let mut client = Client::accepting();
    client.connect_to(&mut machine);
    machine.want(snapshot(&[(80, "new", 1)]));
    let sent = client.exchange(&mut machine);
    assert_eq!(kinds(&sent), [Kind::Cluster, Kind::Assignment, Kind::Listener, Kind::Cluster]);
    assert_eq!(sent[3].removed_resources, ["egw-acme/old/TCP-80"]);
}

#[test]
fn endpoint_churn_sends_eds_only() {
    let mut machine = Machine::new(snapshot(&[(80, "web", 1), (81, "web", 1)]));
    let mut client = Client::accepting();
    client.connect_to(&mut machine);
    for endpoints in [2, 0, 3] {
        machine.want(snapshot(&[(80, "web", endpoints), (81, "web", 1)]));
        let sent = client.exchange(&mut machine);
        assert_eq!(kinds(&sent), [Kind::Assignment]);
        assert_eq!(names(&sent[0]), ["egw-acme/web/TCP-80"], "and only the one that changed");
    }
}

#[test]
fn an_equal_snapshot_sends_nothing() {
    let mut machine = Machine::new(snapshot(&[(80, "web", 1)]));
    let mut client = Client::accepting();
    client.connect_to(&mut machine);
    machine.want(snapshot(&[(80, "web", 1)]));
    assert!(machine.poll().is_none() && machine.is_settled());
}

#[test]
fn a_client_that_comes_back_gets_differences_only() {
    let mut client = Client::accepting();
    client.connect_to(&mut Machine::new(snapshot(&[(80, "web", 1), (81, "web", 1)])));
    let mut machine = Machine::new(snapshot(&[(80, "web", 2), (82, "web", 1)]));
    let sent = client.connect_to(&mut machine);
    let mut by_kind = BTreeMap::<Kind, Vec<&str>>::new();
    for response in &sent {
        by_kind.entry(Kind::parse(&response.type_url).unwrap()).or_default().extend(names(response));
    }
    assert_eq!(by_kind[&Kind::Cluster], ["egw-acme/web/TCP-82"]);
    assert_eq!(by_kind[&Kind::Assignment], ["egw-acme/web/TCP-80", "egw-acme/web/TCP-82"]);
    assert_eq!(by_kind[&Kind::Listener], ["TCP-82"]);
    assert!(machine.is_settled());
}

#[test]
fn every_name_that_is_asked_for_is_answered() {
    let mut machine = Machine::new(snapshot(&[(80, "web", 1)]));
    let asked = ["egw-acme/web/TCP-80", "nothing"].map(str::to_owned).to_vec();
    machine.handle(&DeltaDiscoveryRequest { resource_names_subscribe: asked, ..request(Kind::Assignment) }).unwrap();
    let response = machine.poll().unwrap();
    assert_eq!(
        (names(&response), &*response.removed_resources),
        (vec!["egw-acme/web/TCP-80"], &["nothing".to_owned()][..])
    );
    machine.handle(&ack(&response)).unwrap();
    assert!(machine.poll().is_none());
    // what is asked for once more is sent once more
    let again = vec!["egw-acme/web/TCP-80".to_owned()];
    machine.handle(&DeltaDiscoveryRequest { resource_names_subscribe: again, ..request(Kind::Assignment) }).unwrap();
    assert_eq!(names(&machine.poll().unwrap()), ["egw-acme/web/TCP-80"]);
}

#[test]
fn an_assignment_follows_each_change_of_its_cluster() {
    let mut machine = Machine::new(snapshot(&[(80, "web", 1)]));
    let mut client = Client::accepting();
    client.connect_to(&mut machine);
    // as if its bytes were others: the client comes back with a version of before an upgrade
    let old = client.held.get_mut(&Kind::Cluster).unwrap();
    old.insert("egw-acme/web/TCP-80".to_owned(), "of before".to_owned());
    let mut machine = Machine::new(snapshot(&[(80, "web", 1)]));
    let sent = client.connect_to(&mut machine);
    assert_eq!(kinds(&sent), [Kind::Cluster, Kind::Assignment, Kind::Listener]);
    assert_eq!(names(&sent[1]), ["egw-acme/web/TCP-80"]);
    assert_eq!(names(&sent[2]), [""; 0], "its listener is the same");
}

#[test]
fn one_response_of_a_kind_is_in_flight_and_changes_meanwhile_are_one() {
    let mut machine = Machine::new(snapshot(&[(80, "web", 1)]));
    machine.handle(&request(Kind::Cluster)).unwrap();
    let first = machine.poll().unwrap();
    for port in 81..90 {
        machine.want(snapshot(&[(80, "web", 1), (port, "web", 1)]));
        assert!(machine.poll().is_none(), "the first one is not answered");
    }
    machine.handle(&DeltaDiscoveryRequest { response_nonce: "0".to_owned(), ..request(Kind::Cluster) }).unwrap();
    assert!(machine.poll().is_none(), "an answer to something else");
    machine.handle(&ack(&first)).unwrap();
    assert_eq!(names(&machine.poll().unwrap()), ["egw-acme/web/TCP-89"]);
}

#[test]
fn a_response_is_cut_at_a_mebibyte() {
    let load_balancer = "l".repeat(900);
    let ports: Vec<_> = (1..=2_000).map(|port| (port, &*load_balancer, 0)).collect();
    let mut machine = Machine::new(snapshot(&ports));
    let sent = Client::accepting().connect_to(&mut machine);
    assert!(sent.len() > 6, "{}", sent.len());
    for response in &sent {
        assert!(response.encoded_len() <= 1 << 20, "{}", response.encoded_len());
    }
    assert!(machine.is_settled());
}

#[test]
fn the_bad_one_is_found_and_the_good_ones_are_kept() {
    let mut machine = Machine::new(snapshot(&[(80, "web", 1), (81, "web", 1), (82, "web", 1)]));
    let mut client = Client::new(|kind, name, _| kind == Kind::Listener && name == "TCP-81");
    let sent = client.connect_to(&mut machine);
    let listeners = sent.iter().filter(|response| response.type_url == Kind::Listener.type_url());
    let listeners: Vec<_> = listeners.map(names).collect();
    assert_eq!(listeners, [vec!["TCP-80", "TCP-81", "TCP-82"], vec!["TCP-80"], vec!["TCP-81"], vec!["TCP-82"]]);
    assert_eq!(client.held[&Kind::Listener].keys().collect::<Vec<_>>(), ["TCP-80", "TCP-82"]);
    assert_eq!(machine.rejected(), BTreeMap::from([(tcp(81), "TCP-81 is bad".into())]));
    assert!(machine.is_settled(), "all is answered for");
}

#[test]
fn bytes_that_were_rejected_are_sent_again_when_they_change() {
    let one = snapshot(&[(80, "web", 1)]);
    let bad = one.of_kind(Kind::Listener)["TCP-80"].version.to_string();
    let mut machine = Machine::new(Arc::clone(&one));
    let mut client = Client::new(move |_, _, version| version == bad);
    client.connect_to(&mut machine);
    assert_eq!(machine.rejected().len(), 1);
    machine.want(snapshot(&[(80, "web", 2)]));
    assert_eq!(kinds(&client.exchange(&mut machine)), [Kind::Assignment], "the listener is the same");
    assert_eq!(machine.rejected().len(), 1);
    machine.want(snapshot(&[(80, "other", 2)]));
    assert!(kinds(&client.exchange(&mut machine)).contains(&Kind::Listener));
    assert!(machine.rejected().is_empty() && machine.is_settled());
}

#[test]
fn a_bad_cluster_holds_up_no_other() {
    let mut machine = Machine::new(snapshot(&[(80, "web", 1), (81, "web", 1)]));
    let mut client = Client::new(|kind, name, _| kind == Kind::Cluster && name.ends_with("TCP-80"));
    client.connect_to(&mut machine);
    assert!(client.held[&Kind::Listener].contains_key("TCP-81"));
    assert_eq!(machine.rejected().keys().collect::<Vec<_>>(), [&tcp(80)]);
    assert!(machine.is_settled());
}

#[test]
fn a_client_that_asks_for_too_much_is_refused() {
    let mut machine = Machine::new(Arc::new(Snapshot::empty()));
    for hundred in 0..1_000 {
        let asked = (0..100).map(|name| format!("{hundred}-{name}")).collect();
        let asking = DeltaDiscoveryRequest { resource_names_subscribe: asked, ..request(Kind::Assignment) };
        if machine.handle(&asking).is_err() {
            return;
        }
    }
    panic!("100,000 names were taken");
}
