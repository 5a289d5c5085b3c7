//! Which addresses tenants may reach through a proxy: gateways often sit on the host's network.

use std::net::IpAddr;

use super::types::Protocol;
use super::world::Settings;

/// What keeps an address from being an endpoint, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ban {
    /// Nowhere.
    None,
    /// On pods that share their node's network.
    HostNetwork(&'static str),
    /// Everywhere.
    Everywhere(&'static str),
}

impl Settings {
    /// Whether an endpoint of this address is allowed; names are checked again by the proxy when they are resolved.
    pub(super) fn ban(&self, protocol: Protocol, address: &str) -> Ban {
        if protocol == Protocol::UnixDomainSocket {
            return file(address);
        }
        match address.parse::<IpAddr>() {
            Ok(ip) => self.ban_ip(ip),
            Err(_) => name(address, self.domain.as_str()),
        }
    }

    /// Whether an endpoint of this address is allowed.
    pub(super) fn ban_ip(&self, ip: IpAddr) -> Ban {
        let ip = ip.to_canonical();
        let link_local = match ip {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast() || v4.octets()[0] == 0);
        if link_local {
            Ban::Everywhere("it is link-local, where cloud metadata lives")
        } else if ip.is_multicast() || ip.is_unspecified() || broadcast {
            Ban::Everywhere("it is no address of one host")
        } else if self.api_servers.contains(&ip) {
            Ban::Everywhere("it is the API server's")
        } else if self.denied_endpoints.iter().any(|range| range.contains(&ip)) {
            Ban::Everywhere("it is in a range of --mesh-deny-endpoint")
        } else if self.loopback_pods.is_some_and(|range| range.contains(&ip)) {
            Ban::None
        } else if ip.is_loopback() {
            Ban::HostNetwork("it is the node's own loopback")
        } else if self.nodes.contains(&ip) {
            Ban::HostNetwork("it is a node's")
        } else {
            Ban::None
        }
    }
}

fn file(path: &str) -> Ban {
    if path.starts_with('/') && !path.split('/').any(|part| part == "..") {
        Ban::None
    } else {
        Ban::Everywhere("a socket is named by a whole path without `..`")
    }
}

/// A DNS name. What some resolvers read as an address (`127.1`, `0x7f000001`) would slip through, so it is none.
fn name(name: &str, domain: &str) -> Ban {
    let plain = name.trim_end_matches('.').to_ascii_lowercase();
    let last = plain.rsplit('.').next().unwrap_or_default();
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    if plain.is_empty() || plain.len() > 253 || !plain.chars().all(is_letter) {
        return Ban::Everywhere("it is neither an address nor a DNS name");
    }
    if last.starts_with("0x") || last.bytes().all(|digit| digit.is_ascii_digit()) {
        return Ban::Everywhere("it is an address in disguise");
    }
    if plain == "localhost" || plain.ends_with(".localhost") {
        return Ban::HostNetwork("it is the node's own loopback");
    }
    let short = plain.strip_suffix(&format!(".{domain}")).unwrap_or(&plain);
    if matches!(short, "kubernetes" | "kubernetes.default" | "kubernetes.default.svc") {
        return Ban::Everywhere("it is the API server's");
    }
    if matches!(&*plain, "metadata" | "metadata.google.internal" | "instance-data") {
        return Ban::Everywhere("it is the cloud's metadata");
    }
    Ban::None
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
                Ban::None => 0,
                Ban::HostNetwork(_) => 1,
                Ban::Everywhere(_) => 2,
            };
            assert_eq!(found, ban, "{address}");
        }
        let laptop = Settings { loopback_pods: "127.77.0.0/16".parse().ok(), ..settings.clone() };
        assert_eq!(laptop.ban(Protocol::Udp, "127.77.0.3"), Ban::None);
        assert!(matches!(laptop.ban(Protocol::Udp, "127.0.0.1"), Ban::HostNetwork(_)));
        assert_eq!(settings.ban(Protocol::UnixDomainSocket, "/var/run/x.sock"), Ban::None);
        assert!(matches!(settings.ban(Protocol::UnixDomainSocket, "/var/run/../x"), Ban::Everywhere(_)));
        assert!(matches!(settings.ban(Protocol::UnixDomainSocket, "x.sock"), Ban::Everywhere(_)));
    }
}
