//! Ports, tunnels, names.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use portolan_api::gateway::{EndpointPort, GueEndpoint, ServicePort};
use portolan_core::gateway::ports::{self, PortNumber, Protocol, PublicPort, TargetPort};
use portolan_core::gateway::{Problem, TunnelEndpoint};

fn text(value: Option<&String>) -> Arc<str> {
    value.map(String::as_str).unwrap_or_default().into()
}

pub(super) fn invalid(message: impl Into<String>) -> Problem {
    Problem::Invalid(message.into().into())
}

/// An address as it must be written.
pub(super) fn address(field: &str, written: &str) -> Result<IpAddr, Problem> {
    written
        .parse()
        .map_err(|_| invalid(format!("{field}: `{written}` is not an address: write it like 192.0.2.1 or 2001:db8::1")))
}

fn protocol(written: Option<&String>) -> Result<Protocol, Problem> {
    let written = written.map(String::as_str).unwrap_or_default();
    Protocol::parse(written).ok_or_else(|| Problem::UnsupportedProtocol(written.into()))
}

fn port_number(field: &str, protocol: Protocol, port: u16) -> Result<PortNumber, Problem> {
    if port == 0 {
        return Err(invalid(format!("{field}: port 0 does not exist: use 1 to 65535")));
    }
    Ok(PortNumber { protocol, port })
}

pub(super) fn public_port(port: &ServicePort) -> Result<PublicPort, Problem> {
    let number = port_number("spec.public-ports", protocol(port.protocol.as_ref())?, port.port)?;
    let target =
        match &port.target_port {
            None | Some(IntOrString::Int(0)) => TargetPort::Number(port.port),
            Some(IntOrString::String(name)) if name.is_empty() => TargetPort::Number(port.port),
            Some(IntOrString::String(name)) => TargetPort::Name(name.as_str().into()),
            Some(IntOrString::Int(number)) => TargetPort::Number(u16::try_from(*number).map_err(|_| {
                invalid(format!("spec.public-ports: targetPort {number} does not exist: use 1 to 65535"))
            })?),
        };
    Ok(PublicPort { number, name: text(port.name.as_ref()), target })
}

pub(super) fn pod_port(port: &EndpointPort) -> Result<ports::EndpointPort, Problem> {
    let number = port_number("spec.port", protocol(port.protocol.as_ref())?, port.port)?;
    Ok(ports::EndpointPort { number, name: text(port.name.as_ref()) })
}

/// Where a tunnel ends; none if it has no address that can be read.
pub(super) fn tunnel_endpoint(endpoint: &GueEndpoint) -> Option<TunnelEndpoint> {
    let GueEndpoint { egw_address, egw_port, tunnel_id: _ } = endpoint;
    Some(TunnelEndpoint {
        address: egw_address.parse().ok()?,
        port: egw_port.port,
        name: text(egw_port.name.as_ref()),
        protocol: text(egw_port.protocol.as_ref()),
        app_protocol: text(egw_port.app_protocol.as_ref()),
    })
}

fn written(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// The port of a tunnel, as it is on the wire.
fn endpoint_port(endpoint: &TunnelEndpoint) -> EndpointPort {
    EndpointPort {
        name: written(&endpoint.name),
        port: endpoint.port,
        protocol: written(&endpoint.protocol),
        app_protocol: written(&endpoint.app_protocol),
    }
}

/// A tunnel, as it is on the wire.
pub(in super::super) fn gue_endpoint(endpoint: &TunnelEndpoint, id: u32) -> GueEndpoint {
    GueEndpoint { egw_address: endpoint.address.to_string(), egw_port: endpoint_port(endpoint), tunnel_id: id }
}

/// True if a pattern with `*` for any text fits the whole image.
pub(super) fn image_matches(pattern: &str, image: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| image.strip_prefix(first)) else { return false };
    let mut ends_open = false;
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        if is_last {
            ends_open = part.is_empty() || rest.ends_with(part);
        } else {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
    }
    ends_open
}

/// True if the text is a DNS label of at most `most` characters.
pub(super) fn is_label(text: &str, most: usize) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let ends = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
    let bytes = text.as_bytes();
    bytes.len() <= most && bytes.iter().all(|byte| inner(*byte)) && ends(bytes.first()) && ends(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_in_a_pattern_stands_for_any_text() {
        for (pattern, image, fits) in [
            ("envoyproxy/envoy:v1.40", "envoyproxy/envoy:v1.40", true),
            ("envoyproxy/envoy:v1.40", "envoyproxy/envoy:v1.40.1", false),
            ("envoyproxy/*", "envoyproxy/envoy:v1.40", true),
            ("envoyproxy/*", "evil/envoyproxy/envoy", false),
            ("*/envoy:*", "registry.example/envoy:v1", true),
            ("*/envoy:*", "registry.example/other:v1", false),
            ("a*b", "ab", true),
            ("a*b", "axc", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(image_matches(pattern, image), fits, "{pattern} {image}");
        }
    }

    #[test]
    fn a_label_is_short_and_has_no_dot() {
        assert!(is_label("a", 1) && is_label("sample-acnodal", 63));
        for bad in ["", "-a", "a-", "A", "a.b", "a/b", "ab"] {
            assert!(!is_label(bad, 1), "{bad}");
        }
    }
}
