//! Kubeconfigs of remote clusters: whoever writes one must not reach files, commands or this machine.

use std::net::IpAddr;

use portolan_drivers::kubeconfig::{Identity, forbidden_address, parse};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for allow_loopback in [false, true] {
        match parse(text, None, allow_loopback) {
            Ok(access) => {
                assert!(access.server.starts_with("https://"), "{}", access.server);
                let authority = access.server.trim_start_matches("https://");
                let host = authority.split(['/', '?', '#']).next().unwrap_or_default();
                let host = match host.strip_prefix('[') {
                    Some(rest) => rest.split(']').next().unwrap_or_default(),
                    None => host.rsplit_once(':').map_or(host, |(host, _)| host),
                };
                if let Ok(address) = host.parse::<IpAddr>() {
                    assert_eq!(forbidden_address(address, allow_loopback), None, "{}", access.server);
                }
                assert!(!matches!(&access.identity, Identity::Token(token) if token.is_empty()));
            }
            Err(refused) => {
                let why = refused.to_string();
                assert!(!why.is_empty() && why.len() < 4096 + text.len(), "{why:?}");
            }
        }
    }
}
