//! Any order of snapshots, answers and new connections ends well.

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::client::Client;
use super::{id, tcp, unit};
use crate::envoy::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use crate::envoy::resources::{Kind, Snapshot};
use crate::envoy::xds::machine::Machine;

#[derive(Debug, Clone)]
enum Step {
    /// For each of three ports: whose it is, and how many endpoints.
    Want([Option<(bool, u16)>; 3]),
    /// The client takes in a response.
    Receive,
    /// The server takes in a request.
    Handle,
    Reconnect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let port = || proptest::option::of((any::<bool>(), 0_u16..3));
    let step = prop_oneof![
        2 => [port(), port(), port()].prop_map(Step::Want),
        6 => Just(Step::Receive),
        6 => Just(Step::Handle),
        1 => Just(Step::Reconnect),
    ];
    vec(step, 1..60)
}

/// Messages on their way between a client and a machine.
struct Connection {
    client: Client,
    machine: Machine,
    requests: VecDeque<DeltaDiscoveryRequest>,
    responses: VecDeque<DeltaDiscoveryResponse>,
}

impl Connection {
    fn reconnect(&mut self) {
        self.machine = Machine::new(Arc::clone(self.machine.wanted()));
        self.responses.clear();
        self.requests = self.client.connect().into();
    }

    fn send(&mut self) {
        self.responses.extend(std::iter::from_fn(|| self.machine.poll()));
        for kind in Kind::ALL {
            let in_flight = self.responses.iter().filter(|response| response.type_url == kind.type_url()).count();
            assert!(in_flight <= 1, "one response of a kind is in flight");
        }
    }

    fn receive(&mut self) -> bool {
        let Some(response) = self.responses.pop_front() else { return false };
        self.requests.extend(self.client.receive(&response));
        true
    }

    fn handle(&mut self) -> bool {
        let Some(request) = self.requests.pop_front() else { return false };
        self.machine.handle(&request).unwrap();
        true
    }

    fn finish(&mut self) {
        for round in 0.. {
            self.send();
            if !(self.receive() | self.handle()) {
                return;
            }
            assert!(round < 10_000, "it never ends");
        }
    }
}

fn wanted(ports: &[Option<(bool, u16)>; 3]) -> Arc<Snapshot> {
    let listeners = ports.iter().zip(1..).filter_map(|(port, number)| {
        let (is_first, endpoints) = (*port)?;
        Some((number, if is_first { "one" } else { "two" }, endpoints))
    });
    Arc::new(Snapshot::of(&id(), &unit(&listeners.collect::<Vec<_>>())))
}

#[test]
fn a_client_ends_with_exactly_the_last_good_resources() {
    proptest!(|(steps in steps(), bad in proptest::option::of(proptest::char::range('0', '9')))| {
        let client = Client::new(move |_, _, version| version.chars().next() == bad);
        let machine = Machine::new(Arc::new(Snapshot::empty()));
        let (requests, responses) = (client.connect().into(), VecDeque::new());
        let mut connection = Connection { client, machine, requests, responses };
        for step in steps {
            match step {
                Step::Want(ports) => connection.machine.want(wanted(&ports)),
                Step::Receive => {
                    connection.receive();
                }
                Step::Handle => {
                    connection.handle();
                }
                Step::Reconnect => connection.reconnect(),
            }
            connection.send();
        }
        connection.finish();
        let Connection { client, machine, .. } = connection;
        prop_assert!(machine.is_settled(), "{machine:#?}");
        let rejected = machine.rejected();
        for kind in Kind::ALL {
            let (wanted, held) = (machine.wanted().of_kind(kind), &client.held[&kind]);
            for (name, found) in wanted {
                let is_same = held.get(&**name).map(|version| &**version) == Some(&*found.version);
                let is_bad = found.version.chars().next() == bad;
                let port = tcp(found.port.port);
                prop_assert!(is_same != is_bad || rejected.contains_key(&port), "{kind:?} {name}: {machine:#?}");
                prop_assert!(!is_bad || rejected.contains_key(&port), "{kind:?} {name} is shown as rejected");
            }
            if kind != Kind::Assignment {
                let extra: Vec<_> = held.keys().filter(|name| !wanted.contains_key(name.as_str())).collect();
                prop_assert!(extra.is_empty(), "{kind:?} {extra:?}");
            }
        }
    });
}

#[test]
fn changes_of_endpoints_alone_send_assignments_alone() {
    proptest!(|(owners in [any::<bool>(), any::<bool>(), any::<bool>()], counts in vec([0_u16..3, 0_u16..3, 0_u16..3], 1..8))| {
        let mut client = Client::accepting();
        let mut machine = Machine::new(wanted(&owners.map(|is_first| Some((is_first, 1)))));
        client.connect_to(&mut machine);
        for [one, two, three] in counts {
            let [first, second, third] = owners;
            machine.want(wanted(&[Some((first, one)), Some((second, two)), Some((third, three))]));
            for response in client.exchange(&mut machine) {
                prop_assert_eq!(response.type_url, Kind::Assignment.type_url());
            }
            prop_assert!(machine.is_settled());
        }
    });
}
