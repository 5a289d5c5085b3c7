//! Names that the server gives.

use std::net::IpAddr;

use portolan_core::gateway::ports::PortNumber;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// The name of an endpoint: a UUID of version 5, so that of two equal requests one finds the other's object.
pub(super) fn endpoint(load_balancer_uid: &str, address: IpAddr, port: PortNumber) -> String {
    let mut bytes = uuid_bytes(load_balancer_uid);
    bytes.extend_from_slice(format!("{address}|{}|{}", port.port, port.protocol.as_str()).as_bytes());
    // version 5 is defined with this hash; nothing here depends on its strength
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &bytes);
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&hash.as_ref()[..16]);
    uuid[6] = uuid[6] & 0x0f | 0x50;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    let hex = hex(&uuid);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Bytes as lower case digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0x0f)]).collect()
}

fn uuid_bytes(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let parsed: Option<Vec<u8>> = digits.chunks(2).map(pair).collect();
    parsed.filter(|bytes| bytes.len() == 16).unwrap_or_else(|| text.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use portolan_core::gateway::ports::Protocol;

    use super::*;

    #[test]
    fn it_is_a_uuid_of_version_5() {
        let of = |address: &str, port, protocol| {
            let uid = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
            endpoint(uid, address.parse().unwrap(), PortNumber { protocol, port })
        };
        let one = of("10.0.0.1", 80, Protocol::Tcp);
        // as `uuid.uuid5(uuid.NAMESPACE_DNS, "10.0.0.1|80|TCP")` of Python says
        assert_eq!(one, "eef6602e-a36d-5383-96e9-54c3371cb132");
        assert_eq!(one, of("10.0.0.1", 80, Protocol::Tcp));
        assert_ne!(one, of("10.0.0.1", 80, Protocol::Udp));
        assert_ne!(one, of("10.0.0.2", 80, Protocol::Tcp));
    }
}
