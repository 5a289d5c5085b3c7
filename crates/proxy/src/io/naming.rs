//! The names of sessions, and who has one.
//!
//! The name of a UDP session tells its flow and a number, so no two have the same one, and it is found by its flow.
//! Sessions of this kind come by the hundred thousand: nothing that workers share is asked for them. All other names
//! are claimed, see [`SessionNames`](super::shared::SessionNames).

use super::flow::FlowKey;
use super::port::BindAddress;
use super::session::Session;
use super::shared::SessionLocation;
use super::slab::Key;
use super::sys::SockAddr;
use super::worker::Worker;
use crate::config::types::ListenerSpec;
use std::net::{IpAddr, SocketAddr};

impl Worker {
    /// Gives a name to a session that has a slot.
    pub(super) fn name_for(&mut self, session: &Session) -> Box<str> {
        write_name(&mut self.name, session);
        if tells_flow(session) {
            return (*self.name).into();
        }
        self.shared.names.claim(&self.name, SessionLocation { worker: self.id, key: session.key })
    }

    pub(super) fn release_name(&self, session: &Session) {
        if !tells_flow(session) {
            self.shared.names.release(&session.name);
        }
    }

    /// The live session of a name, if it is one of this worker.
    pub(super) fn session_named(&self, name: &str) -> Option<&Session> {
        let claimed = || self.shared.names.find(name).filter(|place| place.worker == self.id).map(|place| place.key);
        let keys = self.keys_of_flow(name).into_iter().flatten().chain(claimed());
        keys.filter_map(|key| self.sessions.get(key)).map(AsRef::as_ref).find(|session| *session.name == *name)
    }

    /// Sessions of the flow that a name tells: one at most, unless ports differ by nothing but the network they are in.
    fn keys_of_flow(&self, name: &str) -> Option<impl Iterator<Item = Key>> {
        let mut ends = name.strip_prefix("UDP:")?.split('-');
        let (peer, local) = (parse_address(ends.next()?)?, ends.next()?);
        let (address, number) = SockAddr::from(peer).key();
        let ports = self.ports.values().map(|open| &open.port);
        let here =
            ports.filter(move |port| matches!(port.bind_address, BindAddress::Udp(_)) && port.local_text == local);
        Some(here.filter_map(move |port| {
            let flow = FlowKey::new(address, port.id, number);
            let slot = self.flows.get(self.flows.hash(&flow), &flow, |slot| self.hot[slot as usize].key)?;
            Some(Key { slot, generation: self.hot[slot as usize].generation })
        }))
    }
}

/// Whether a session's name tells its flow.
fn tells_flow(session: &Session) -> bool {
    matches!(session.listener.config.spec, ListenerSpec::Udp(_))
}

/// The name that a session wants to have.
fn write_name(name: &mut String, session: &Session) {
    let Session { listener, port, peer, local, .. } = session;
    let (protocol, has_ends, is_numbered) = match &listener.config.spec {
        ListenerSpec::Udp(_) => ("UDP:", true, true),
        ListenerSpec::Tcp(_) => ("TCP:", true, false),
        ListenerSpec::WebSocket(_) => ("WS:", true, true),
        ListenerSpec::Http(_) => ("HTTP:", true, true),
        ListenerSpec::Uds(_) => ("UNIX:", false, true),
        ListenerSpec::JsonSocket(_) => ("JSONSocket:", false, true),
    };
    name.clear();
    name.push_str(protocol);
    if has_ends {
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

/// Address and port, an IPv6 address without brackets. Every session has a name: the usual case avoids the formatter.
pub(super) fn push_address(name: &mut String, at: SocketAddr) {
    match at.ip() {
        IpAddr::V4(v4) => {
            for (i, octet) in v4.octets().into_iter().enumerate() {
                if i > 0 {
                    name.push('.');
                }
                push_number(name, u64::from(octet));
            }
        }
        IpAddr::V6(v6) => name.push_str(&v6.to_string()),
    }
    name.push(':');
    push_number(name, u64::from(at.port()));
}

fn push_number(name: &mut String, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut first = digits.len() - 1;
    digits[first] += (number % 10) as u8;
    while number > 9 {
        number /= 10;
        first -= 1;
        digits[first] += (number % 10) as u8;
    }
    name.push_str(str::from_utf8(&digits[first..]).unwrap_or_default());
}

/// What [`push_address`] wrote.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.rsplit_once(':')?;
    Some(SocketAddr::new(address.parse().ok()?, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_numbers_are_written_as_the_formatter_does_and_read_again() {
        for text in ["127.0.0.1:80", "10.200.0.255:65535", "0.0.0.0:0", "[fd00::1]:5"] {
            let at: SocketAddr = text.parse().unwrap();
            let mut name = String::new();
            push_address(&mut name, at);
            assert_eq!(name, format!("{}:{}", at.ip(), at.port()));
            assert_eq!(parse_address(&name), Some(at));
        }
        for number in [0, 9, 10, 99, 100, u64::MAX] {
            let mut name = String::new();
            push_number(&mut name, number);
            assert_eq!(name, number.to_string());
        }
    }
}
