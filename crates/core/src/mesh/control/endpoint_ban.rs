//! Which addresses endpoints may have: proxies on the host network could otherwise reach the node and the control plane.

use std::net::IpAddr;

use super::types::Protocol;
use super::world::Settings;

/// Where an address is not allowed as an endpoint, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EndpointBan {
    /// Nowhere.
    None,
    /// On pods on the host network.
    HostNetwork(&'static str),
    /// Everywhere.
    Everywhere(&'static str),
}

impl Settings {
    /// Checks the address of an endpoint; the proxy checks DNS names again when it resolves them.
    pub(super) fn ban(&self, protocol: Protocol, address: &str) -> EndpointBan {
        if protocol == Protocol::UnixDomainSocket {
            return file(address);
        }
        match address.parse::<IpAddr>() {
            Ok(ip) => self.ban_ip(ip),
            Err(_) => name(address, self.domain.as_str()),
        }
    }

    /// Checks the IP address of an endpoint.
    pub(super) fn ban_ip(&self, ip: IpAddr) -> EndpointBan {
        let ip = ip.to_canonical();
        let link_local = match ip {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast() || v4.octets()[0] == 0);
        if link_local {
            EndpointBan::Everywhere("it is link-local, like the metadata service of clouds")
        } else if ip.is_multicast() || ip.is_unspecified() || broadcast {
            EndpointBan::Everywhere("it is not a unicast address")
        } else if self.api_servers.contains(&ip) {
            EndpointBan::Everywhere("it belongs to the API server")
        } else if self.denied_endpoints.iter().any(|range| range.contains(&ip)) {
            EndpointBan::Everywhere("it is in a range of --mesh-deny-endpoint")
        } else if self.loopback_pods.is_some_and(|range| range.contains(&ip)) {
            EndpointBan::None
        } else if ip.is_loopback() {
            EndpointBan::HostNetwork("it is the loopback address of the node")
        } else if self.nodes.contains(&ip) {
            EndpointBan::HostNetwork("it belongs to a node")
        } else {
            EndpointBan::None
        }
    }
}

fn file(path: &str) -> EndpointBan {
    if path.starts_with('/') && !path.split('/').any(|part| part == "..") {
        EndpointBan::None
    } else {
        EndpointBan::Everywhere("the path of a socket must be absolute and without `..`")
    }
}

/// Checks a DNS name. Names that some resolvers read as addresses (`127.1`, `0x7f000001`) are not allowed.
fn name(name: &str, domain: &str) -> EndpointBan {
    let plain = name.trim_end_matches('.').to_ascii_lowercase();
    let last = plain.rsplit('.').next().unwrap_or_default();
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    if plain.is_empty() || plain.len() > 253 || !plain.chars().all(is_letter) {
        return EndpointBan::Everywhere("it is neither an address nor a DNS name");
    }
    if last.starts_with("0x") || last.bytes().all(|digit| digit.is_ascii_digit()) {
        return EndpointBan::Everywhere("it is an IP address in another notation");
    }
    if plain == "localhost" || plain.ends_with(".localhost") {
        return EndpointBan::HostNetwork("it is the loopback address of the node");
    }
    let short = plain.strip_suffix(&format!(".{domain}")).unwrap_or(&plain);
    if matches!(short, "kubernetes" | "kubernetes.default" | "kubernetes.default.svc") {
        return EndpointBan::Everywhere("it belongs to the API server");
    }
    if matches!(&*plain, "metadata" | "metadata.google.internal" | "instance-data") {
        return EndpointBan::Everywhere("it is the metadata service of a cloud");
    }
    EndpointBan::None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_reach_pods_and_the_world_but_not_the_machinery() {
        let settings = Settings {
            denied_endpoints: vec!["10.96.0.0/12".parse().unwrap()],
            api_servers: ["10.200.0.1".parse().unwrap()].into(),
            nodes: ["172.16.0.7".parse().unwrap()].into(),
            ..Settings::default()
        };
        for (address, ban) in [
            ("10.0.0.1", 0),
            ("fd00::1", 0),
            ("db.shop.svc.cluster.local", 0),
            ("example.com", 0),
            ("127.0.0.1", 1),
            ("::1", 1),
            ("::ffff:127.0.0.1", 1),
            ("localhost", 1),
            ("172.16.0.7", 1),
            ("169.254.169.254", 2),
            ("::ffff:169.254.169.254", 2),
            ("fe80::1", 2),
            ("224.0.0.1", 2),
            ("ff02::1", 2),
            ("0.0.0.0", 2),
            ("::", 2),
            ("255.255.255.255", 2),
            ("10.200.0.1", 2),
            ("10.97.0.1", 2),
            ("127.1", 2),
            ("2130706433", 2),
            ("0x7f000001", 2),
            ("1.0x7f", 2),
            ("kubernetes.default.svc.cluster.local", 2),
            ("KUBERNETES.default.svc.", 2),
            ("metadata.google.internal", 2),
            ("a b", 2),
            ("http://x/", 2),
        ] {
            let found = match settings.ban(Protocol::Udp, address) {
                EndpointBan::None => 0,
                EndpointBan::HostNetwork(_) => 1,
                EndpointBan::Everywhere(_) => 2,
            };
            assert_eq!(found, ban, "{address}");
        }
        let laptop = Settings { loopback_pods: "127.77.0.0/16".parse().ok(), ..settings.clone() };
        assert_eq!(laptop.ban(Protocol::Udp, "127.77.0.3"), EndpointBan::None);
        assert!(matches!(laptop.ban(Protocol::Udp, "127.0.0.1"), EndpointBan::HostNetwork(_)));
        assert_eq!(settings.ban(Protocol::UnixDomainSocket, "/var/run/x.sock"), EndpointBan::None);
        assert!(matches!(settings.ban(Protocol::UnixDomainSocket, "/var/run/../x"), EndpointBan::Everywhere(_)));
        assert!(matches!(settings.ban(Protocol::UnixDomainSocket, "x.sock"), EndpointBan::Everywhere(_)));
    }
}
