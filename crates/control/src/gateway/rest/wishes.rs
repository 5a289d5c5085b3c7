//! What a client asks for: only what it may choose is read.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use portolan_api::gateway::{EndpointPort, ServicePort};
use portolan_core::gateway::ports::{PortNumber, Protocol};

use super::fields::Fields;
use super::refusal::{Refusal, Refused};
use super::tree::Tree;

/// Ports of a service.
const MOST_PORTS: usize = 100;
/// Endpoints that are replaced at once.
pub(super) const MOST_ENDPOINTS: usize = 5000;

/// A service.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ServiceWish {
    pub(super) name: Option<String>,
    pub(super) ports: Vec<ServicePort>,
    pub(super) sharing_key: Option<String>,
    /// Taken where the group allows it.
    pub(super) address: Option<IpAddr>,
    /// Not taken: compared with what is there.
    pub(super) group: Option<String>,
    /// Not taken: compared with what is there.
    pub(super) key: Option<i64>,
}

/// An endpoint.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EndpointWish {
    pub(super) path: String,
    pub(super) name: Option<String>,
    pub(super) address: IpAddr,
    pub(super) node: Option<IpAddr>,
    pub(super) port: EndpointPort,
    pub(super) number: PortNumber,
}

pub(super) fn service(body: &Tree) -> Refused<ServiceWish> {
    let service = Fields::of("", body)?.object("service")?;
    let (metadata, spec) = (service.object("metadata")?, service.object("spec")?);
    let ports = spec.objects("public-ports", MOST_PORTS)?.unwrap_or_default();
    if ports.is_empty() {
        return Err(Refusal::invalid(spec.path("public-ports"), "list 1 to 100 ports"));
    }
    let key = spec.number("gue-key")?.filter(|key| *key != 0);
    let sharing_key = spec.text("sharing-key")?;
    if sharing_key.is_some_and(|key| !is_label(key)) {
        return Err(Refusal::invalid(spec.path("sharing-key"), LABEL));
    }
    let name = metadata.text("name")?;
    if name.is_some_and(|name| !is_label(name)) {
        return Err(Refusal::invalid(metadata.path("name"), LABEL));
    }
    let ports: Vec<(ServicePort, PortNumber)> = ports.iter().map(service_port).collect::<Refused<_>>()?;
    for (place, (_, number)) in ports.iter().enumerate() {
        if ports[..place].iter().any(|(_, other)| other == number) {
            let path = format!("{}[{place}]", spec.path("public-ports"));
            return Err(Refusal::invalid(path, "an earlier one has the same number and protocol: remove one"));
        }
    }
    Ok(ServiceWish {
        name: name.map(str::to_owned),
        ports: ports.into_iter().map(|(port, _)| port).collect(),
        sharing_key: sharing_key.map(str::to_owned),
        address: address(&spec, "public-address")?,
        group: spec.text("service-group")?.map(str::to_owned),
        key,
    })
}

pub(super) fn endpoint(body: &Tree) -> Refused<EndpointWish> {
    one_endpoint(&Fields::of("", body)?.object("endpoint")?)
}

pub(super) fn endpoints(body: &Tree) -> Refused<Vec<EndpointWish>> {
    let body = Fields::of("", body)?;
    let Some(list) = body.objects("endpoints", MOST_ENDPOINTS)? else {
        return Err(Refusal::invalid("endpoints", "list what this node has; an empty list removes all of it"));
    };
    list.iter().map(one_endpoint).collect()
}

fn one_endpoint(endpoint: &Fields<'_>) -> Refused<EndpointWish> {
    let (metadata, spec) = (endpoint.object("metadata")?, endpoint.object("spec")?);
    let Some(of) = address(&spec, "address")? else {
        return Err(Refusal::invalid(spec.path("address"), "write the pod's address here"));
    };
    let port = spec.object("port")?;
    let protocol = protocol(&port)?;
    let Some(number) = port.port("port", 1)? else {
        return Err(Refusal::invalid(port.path("port"), "write the pod's port here"));
    };
    Ok(EndpointWish {
        path: spec.path(""),
        name: metadata.text("name")?.map(str::to_owned),
        address: of,
        node: address(&spec, "node-address")?,
        port: EndpointPort {
            name: port.text("name")?.map(str::to_owned),
            port: number,
            protocol: port.text("protocol")?.map(str::to_owned),
            app_protocol: port.text("appProtocol")?.map(str::to_owned),
        },
        number: PortNumber { protocol, port: number },
    })
}

fn service_port(port: &Fields<'_>) -> Refused<(ServicePort, PortNumber)> {
    let protocol = protocol(port)?;
    let Some(number) = port.port("port", 1)? else {
        return Err(Refusal::invalid(port.path("port"), "write the public port here"));
    };
    let target = match port.as_text("targetPort") {
        Some(name) => Some(IntOrString::String(name.to_owned())).filter(|_| !name.is_empty()),
        None => port.port("targetPort", 0)?.filter(|target| *target != 0).map(|target| IntOrString::Int(target.into())),
    };
    let read = ServicePort {
        name: port.text("name")?.map(str::to_owned),
        protocol: port.text("protocol")?.map(str::to_owned),
        app_protocol: port.text("appProtocol")?.map(str::to_owned),
        port: number,
        target_port: target,
        node_port: port.port("nodePort", 0)?.filter(|port| *port != 0),
    };
    Ok((read, PortNumber { protocol, port: number }))
}

fn protocol(port: &Fields<'_>) -> Refused<Protocol> {
    let written = port.text("protocol")?.unwrap_or_default();
    let field = || port.path("protocol");
    Protocol::parse(written).ok_or_else(|| Refusal::invalid(field(), "this protocol is not served: use TCP or UDP"))
}

fn address(spec: &Fields<'_>, name: &str) -> Refused<Option<IpAddr>> {
    let Some(written) = spec.text(name)? else { return Ok(None) };
    let problem = "this is not an address: write it like 192.0.2.1 or 2001:db8::1";
    written.parse().map(Some).map_err(|_| Refusal::invalid(spec.path(name), problem))
}

pub(super) const LABEL: &str = "use at most 63 lower case letters, digits and dashes";

/// True if the text is a DNS label.
pub(super) fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|byte| inner(*byte))
        && bytes.first() != Some(&b'-')
        && bytes.last() != Some(&b'-')
}

#[cfg(test)]
mod tests {
    use super::super::tree::parse;
    use super::*;

    fn read(body: &str) -> Refused<ServiceWish> {
        service(&parse(body.as_bytes())?)
    }

    #[test]
    fn known_keys_match_without_regard_to_case_and_others_are_ignored() {
        let wish = read(
            r#"{"SERVICE":{"Metadata":{"NAME":"a","finalizers":["x"],"labels":{"A":"1","a":"2"}},
                "spec":{"Public-Ports":[{"Port":80,"TARGETPORT":"web"}],"else":[]},"status":null}}"#,
        )
        .unwrap();
        assert_eq!(wish.name.as_deref(), Some("a"));
        assert_eq!(wish.ports[0].target_port, Some(IntOrString::String("web".to_owned())));
    }

    #[test]
    fn keys_that_differ_only_in_case_are_refused() {
        let problem = read(r#"{"service":{"spec":{"public-ports":[{"port":80,"Port":81}]}}}"#).unwrap_err();
        assert_eq!(problem.reason.word, "BadRequest");
        let problem = read(r#"{"service":{},"Service":{}}"#).unwrap_err();
        assert_eq!(problem.reason.word, "BadRequest");
    }

    #[test]
    fn what_breaks_a_rule_is_named_by_its_path() {
        for (ports, field) in [
            ("[]", "service.spec.public-ports"),
            (r#"[{"port":0}]"#, "service.spec.public-ports[0].port"),
            (r#"[{"port":65536}]"#, "service.spec.public-ports[0].port"),
            (r#"[{"port":80},{"port":80,"protocol":"tcp"}]"#, "service.spec.public-ports[1]"),
            (r#"[{"port":80,"protocol":"SCTP"}]"#, "service.spec.public-ports[0].protocol"),
        ] {
            let problem = read(&format!(r#"{{"service":{{"spec":{{"public-ports":{ports}}}}}}}"#)).unwrap_err();
            assert_eq!(problem.reason.word, "Invalid", "{ports}");
            assert_eq!(problem.more.details["fields"][0]["field"], field, "{ports}");
        }
    }
}
