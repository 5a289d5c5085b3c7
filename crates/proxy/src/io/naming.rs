//! Session names, and how a session is found by name.
//!
//! The name of a UDP session contains its flow and a number, so it is unique, and the session is found by its flow. There
//! may be hundreds of thousands of them, so they use no state shared by workers. All other names are claimed, see [`SessionNames`](super::shared::SessionNames).

use super::address_text::{parse_address, push_address, push_number};
use super::flow::FlowKey;
use super::port::BindAddress;
use super::session::Session;
use super::shared::SessionLocation;
use super::slab::Key;
use super::sys::SockAddr;
use super::worker::Worker;
use crate::config::types::ListenerSpec;
use crate::transport::spec::SessionNaming;

impl Worker {
    /// Gives a name to a session that has a slot.
    pub(crate) fn name_for(&mut self, session: &Session) -> Box<str> {
        write_name(&mut self.name, session);
        if contains_flow(session) {
            return (*self.name).into();
        }
        self.shared.names.claim(&self.name, SessionLocation { worker: self.id, key: session.key })
    }

    pub(crate) fn release_name(&self, session: &Session) {
        if !contains_flow(session) {
            self.shared.names.release(&session.name);
        }
    }

    /// The live session of a name, if it is one of this worker.
    pub(crate) fn session_named(&self, name: &str) -> Option<&Session> {
        let claimed = || self.shared.names.find(name).filter(|place| place.worker == self.id).map(|place| place.key);
        let keys = self.keys_of_flow(name).into_iter().flatten().chain(claimed());
        keys.filter_map(|key| self.sessions.get(key)).find(|session| *session.name == *name)
    }

    /// Sessions of the flow in a name: one at most, unless ports differ only in their network.
    fn keys_of_flow(&self, name: &str) -> Option<impl Iterator<Item = Key>> {
        let mut ends = name.strip_prefix("UDP:")?.split('-');
        let (peer, local) = (parse_address(ends.next()?)?, ends.next()?);
        let (address, number) = SockAddr::from(peer).key();
        let ports = self.ports.iter().map(|open| &open.port);
        let here =
            ports.filter(move |port| matches!(port.bind_address, BindAddress::Udp(_)) && port.local_text == local);
        Some(here.filter_map(move |port| {
            let flow = FlowKey::new(address, port.id, number);
            self.sessions.key_of_flow(&flow)
        }))
    }
}

/// Whether a session's name contains its flow.
fn contains_flow(session: &Session) -> bool {
    matches!(session.listener.config.spec, ListenerSpec::Udp(_))
}

/// The name that a session wants to have.
fn write_name(name: &mut String, session: &Session) {
    let Session { listener, port, peer, local, .. } = session;
    let SessionNaming { prefix, has_addresses, is_numbered } = listener.config.spec.session_naming();
    name.clear();
    name.push_str(prefix);
    if has_addresses {
        if let Some(peer) = peer {
            push_address(name, *peer);
        }
        name.push('-');
        match port {
            Some(port) => name.push_str(&port.local_text),
            None => push_address(name, *local),
        }
    } else {
        name.push_str(&listener.config.name);
    }
    if is_numbered {
        name.push('-');
        push_number(name, listener.take_number());
    }
}
