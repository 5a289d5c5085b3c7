//! Ports of a load balancer: which of them an endpoint feeds, and which two load balancers may share an address.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// A protocol that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// As users write it, in any case; empty means TCP. None if it is not served.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" => Some(Self::Tcp),
            text if text.eq_ignore_ascii_case("tcp") => Some(Self::Tcp),
            text if text.eq_ignore_ascii_case("udp") => Some(Self::Udp),
            _ => None,
        }
    }

    /// In upper case, as in names of listeners.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a socket is bound to, besides its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortNumber {
    /// The protocol.
    pub protocol: Protocol,
    /// 1 to 65535.
    pub port: u16,
}

impl fmt::Display for PortNumber {
    /// `TCP-8888`: also the name of its listener.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.protocol, self.port)
    }
}

/// A public port of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicPort {
    /// Where clients connect to.
    pub number: PortNumber,
    /// Its name; empty if it has none.
    pub name: Arc<str>,
    /// Where pods listen.
    pub target: TargetPort,
}

/// Where pods listen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetPort {
    /// On this port.
    Number(u16),
    /// On the port of this name; only the tenant's cluster knows its number.
    Name(Arc<str>),
}

/// The port of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointPort {
    /// Where the pod listens.
    pub number: PortNumber,
    /// Its name; empty if it has none.
    pub name: Arc<str>,
}

/// The public port that an endpoint feeds. Among the ports of its protocol, the first rule that selects exactly one
/// decides: equal names, the number that pods listen on, or there being only one.
pub fn fed_by<'a>(ports: &'a [PublicPort], endpoint: &EndpointPort) -> Option<&'a PublicPort> {
    let same_protocol = || ports.iter().filter(|port| port.number.protocol == endpoint.number.protocol);
    let same_name = || same_protocol().filter(|port| !port.name.is_empty() && port.name == endpoint.name);
    let same_target = || same_protocol().filter(|port| port.target == TargetPort::Number(endpoint.number.port));
    only(same_name()).or_else(|| only(same_target())).or_else(|| only(same_protocol()))
}

fn only<T>(mut found: impl Iterator<Item = T>) -> Option<T> {
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// A port that both have: two load balancers with one cannot share an address.
pub fn in_common(some: &BTreeSet<PortNumber>, others: &BTreeSet<PortNumber>) -> Option<PortNumber> {
    some.intersection(others).next().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(protocol: Protocol, port: u16) -> PortNumber {
        PortNumber { protocol, port }
    }

    fn public(protocol: Protocol, port: u16, name: &str, target: u16) -> PublicPort {
        PublicPort { number: number(protocol, port), name: name.into(), target: TargetPort::Number(target) }
    }

    fn endpoint(protocol: Protocol, port: u16, name: &str) -> EndpointPort {
        EndpointPort { number: number(protocol, port), name: name.into() }
    }

    #[test]
    fn an_endpoint_feeds_the_port_that_the_first_deciding_rule_selects() {
        let (tcp, udp) = (Protocol::Tcp, Protocol::Udp);
        let web = [public(tcp, 80, "http", 8080), public(tcp, 443, "https", 8443), public(udp, 443, "quic", 8443)];
        let unnamed = [public(tcp, 80, "", 8080), public(tcp, 81, "", 8080)];
        for (ports, endpoint, fed, why) in [
            (&web[..], endpoint(tcp, 9999, "https"), Some(443), "names are equal"),
            (&web, endpoint(tcp, 8080, ""), Some(80), "it listens on the target port"),
            (&web, endpoint(tcp, 8080, "https"), Some(443), "a name comes before a number"),
            (&web, endpoint(udp, 5, ""), Some(443), "there is one UDP port"),
            (&web, endpoint(tcp, 9999, ""), None, "two TCP ports, and both match"),
            (&web, endpoint(tcp, 9999, "quic"), None, "a name of another protocol is no name"),
            (&unnamed, endpoint(tcp, 8080, ""), None, "two ports have the same target"),
            (&[], endpoint(tcp, 8080, ""), None, "there is no port"),
        ] {
            let found = fed_by(ports, &endpoint).map(|port| port.number.port);
            assert_eq!(found, fed, "{why}");
        }
    }

    #[test]
    fn udp_is_udp() {
        assert_eq!(Protocol::parse("udp"), Some(Protocol::Udp));
        assert_eq!(Protocol::parse("Tcp"), Some(Protocol::Tcp));
        assert_eq!((Protocol::parse(""), Protocol::parse("SCTP")), (Some(Protocol::Tcp), None));
        assert_eq!(number(Protocol::Udp, 53).to_string(), "UDP-53");
    }

    #[test]
    fn port_is_number_and_protocol() {
        let set = |ports: &[PortNumber]| ports.iter().copied().collect::<BTreeSet<_>>();
        let dns = set(&[number(Protocol::Tcp, 53)]);
        assert_eq!(in_common(&dns, &set(&[number(Protocol::Udp, 53)])), None);
        let both = set(&[number(Protocol::Tcp, 53), number(Protocol::Tcp, 80)]);
        assert_eq!(in_common(&dns, &both), Some(number(Protocol::Tcp, 53)));
    }
}
