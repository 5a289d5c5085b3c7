//! What is in an account's namespace: ServiceGroup, LoadBalancer, Endpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use kube::ResourceExt as _;
use portolan_api::gateway::{Endpoint, LoadBalancer, ServiceGroup};
use portolan_api::well_known::gateway::{ENDPOINT_FINALIZER, LOAD_BALANCER_FINALIZER};
use portolan_core::gateway::{self as core, EndpointSpec, PROVIDER_NAMESPACE, Problem, Tunnel};

use super::identity;
use super::parts::{address, image_matches, invalid, is_label, pod_port, public_port, tunnel_endpoint};

/// A group. `images` are the patterns that its image must match.
pub(in super::super) fn service_group(object: &ServiceGroup, images: &[String]) -> core::ServiceGroup {
    let spec = &object.spec;
    let prefix = spec.service_prefix.split_once('/');
    let prefix = prefix.filter(|(namespace, name)| *namespace == PROVIDER_NAMESPACE && !name.contains('/'));
    let image = spec.envoy_image.clone().unwrap_or_default();
    let creds = spec.auth_creds.as_deref();
    let problem = if prefix.is_none() {
        Some(invalid(format!("spec.service-prefix: `{}` is not like egw/NAME", spec.service_prefix)))
    } else if creds.is_some() == spec.auth_creds_secret.is_some() {
        Some(invalid("set exactly one of spec.auth-creds and spec.auth-creds-secret"))
    } else if let Some(bytes) = creds.map(str::len).filter(|bytes| !(1..=16).contains(bytes)) {
        Some(Problem::CredsLength { bytes })
    } else if !image.is_empty() && !images.iter().any(|pattern| image_matches(pattern, &image)) {
        Some(Problem::ImageNotAllowed { image: image.as_str().into() })
    } else {
        None
    };
    // load balancers of before go on with the default
    let is_refused = matches!(problem, Some(Problem::ImageNotAllowed { .. }));
    core::ServiceGroup {
        identity: identity(object, ""),
        prefix: prefix.map(|(_, name)| Arc::from(name)).unwrap_or_default(),
        image: if is_refused { Arc::default() } else { image.into() },
        problem,
    }
}

/// A load balancer.
pub(in super::super) fn load_balancer(object: &LoadBalancer) -> core::LoadBalancer {
    let spec = &object.spec;
    let status = object.status.as_ref();
    let tunnels = status.into_iter().flat_map(|status| &status.gue_tunnel_endpoints);
    let tunnels: BTreeMap<IpAddr, Tunnel> = tunnels
        .filter_map(|(node, endpoint)| {
            let id = endpoint.tunnel_id;
            Some((node.parse().ok()?, Tunnel { endpoint: Arc::new(tunnel_endpoint(endpoint)?), id }))
        })
        .collect();
    let mut read = core::LoadBalancer {
        identity: identity(object, LOAD_BALANCER_FINALIZER),
        group: spec.service_group.as_str().into(),
        address: spec.public_address.parse().ok(),
        ports: Vec::new(),
        key: Some(spec.gue_key).filter(|key| *key != 0),
        sharing_key: spec.sharing_key.as_deref().filter(|key| !key.is_empty()).map(Arc::from),
        tunnels,
        problem: None,
    };
    match checked(object) {
        Ok(ports) => read.ports = ports,
        Err(problem) => read.problem = Some(problem),
    }
    read
}

fn checked(object: &LoadBalancer) -> Result<Vec<core::ports::PublicPort>, Problem> {
    let spec = &object.spec;
    if !is_label(&object.name_any(), 63) {
        return Err(invalid("metadata.name: use at most 63 lower case letters, digits and dashes"));
    }
    if !spec.public_address.is_empty() {
        address("spec.public-address", &spec.public_address)?;
    }
    if spec.sharing_key.as_deref().is_some_and(|key| !is_label(key, 63)) {
        return Err(invalid("spec.sharing-key: use at most 63 lower case letters, digits and dashes"));
    }
    if spec.public_ports.is_empty() || spec.public_ports.len() > 100 {
        return Err(invalid("spec.public-ports: list 1 to 100 ports"));
    }
    let ports: Vec<_> = spec.public_ports.iter().map(public_port).collect::<Result<_, _>>()?;
    let mut seen = BTreeSet::new();
    for port in &ports {
        if !seen.insert(port.number) {
            return Err(invalid(format!("spec.public-ports: {} is listed twice: remove one", port.number)));
        }
    }
    Ok(ports)
}

/// An endpoint.
pub(in super::super) fn endpoint(object: &Endpoint) -> core::Endpoint {
    let spec = &object.spec;
    let checked = || {
        Ok(EndpointSpec {
            address: address("spec.address", &spec.address)?,
            port: pod_port(&spec.port)?,
            node: address("spec.node-address", &spec.node_address)?,
        })
    };
    core::Endpoint { identity: identity(object, ENDPOINT_FINALIZER), spec: checked() }
}
