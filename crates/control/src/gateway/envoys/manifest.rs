//! The objects of a unit: a Secret with the files of its Envoy, the Deployment that runs it, and the Service that takes
//! packets to it. Pure: equal units give equal objects.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt as _};
use portolan_certs::SignedCertificate;
use portolan_core::gateway::ports::{PortNumber, Protocol};
use portolan_core::gateway::unit::{Unit, UnitId};
use portolan_drivers::envoy::{ContainerFiles, ContainerSetup, Folders, of_container};
use ring::digest::{SHA256, digest};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::DeploymentOptions;
use super::networks::NETWORKS;

/// Label of all objects of units; the value is their name.
pub(in super::super) const UNIT_LABEL: &str = "portolan.dev/gateway-unit";
/// Annotation with the unit that an object belongs to.
const UNIT: &str = "portolan.dev/unit";
/// Annotation of pods: a change of the files that Envoy reads only when it starts begins a rollout.
const BOOTSTRAP: &str = "portolan.dev/bootstrap";
/// Class of the Services: their address is written here, and by no other controller.
const CLASS: &str = "portolan.dev/gateway-address";
/// Begins the URI in the certificate of a unit's Envoy.
const UNIT_URI: &str = "egw://unit/";

const FOLDERS: Folders<'static> = Folders { config: "/etc/portolan", run: "/run/envoy" };
/// The user and group that Envoy runs as.
const USER: i64 = 65532;
/// Envoy accepts connections on the first port from here that none of its listeners has, once it is configured.
const READY_PORT: u16 = 18001;

/// What the TLS of a unit's Envoy is made of.
#[derive(Clone, Copy)]
pub(in super::super) struct Identity<'a> {
    pub(in super::super) certificate: &'a SignedCertificate,
    /// Authorities that the xDS server's certificate is signed by, in PEM.
    pub(in super::super) authorities: &'a str,
}

/// The objects of one unit.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct Manifest {
    pub(in super::super) secret: Secret,
    pub(in super::super) deployment: Deployment,
    pub(in super::super) service: Service,
}

/// The name of a unit's objects: readable, and unique.
pub(in super::super) fn name(unit: &UnitId) -> String {
    let readable: String =
        unit.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(30).collect();
    let hash = hash(&unit.to_string(), 10);
    format!("envoy-{}-{hash}", readable.to_ascii_lowercase().trim_matches('-'))
}

/// The unit that an object belongs to.
pub(in super::super) fn unit_of(object: &impl Resource) -> Option<UnitId> {
    let (namespace, name) = object.meta().annotations.as_ref()?.get(UNIT)?.split_once('/')?;
    let unit = UnitId { namespace: namespace.into(), name: name.into() };
    (self::name(&unit) == object.name_any()).then_some(unit)
}

/// The URI that the certificate of a unit's Envoy names.
pub(in super::super) fn uri(unit: &UnitId) -> String {
    format!("{UNIT_URI}{unit}")
}

/// The unit that a certificate in DER is for.
pub(in super::super) fn identify(certificate: &[u8]) -> Option<UnitId> {
    let names = portolan_certs::uri_names(certificate);
    let [name] = &names[..] else { return None };
    let (namespace, name) = name.strip_prefix(UNIT_URI)?.split_once('/')?;
    Some(UnitId { namespace: namespace.into(), name: name.into() })
}

/// The certificate in a Secret that was made here; none if it is damaged, or for another unit.
pub(in super::super) fn certificate(unit: &UnitId, secret: &Secret) -> Option<SignedCertificate> {
    let data = secret.data.as_ref()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    let read = SignedCertificate::read(text("tls.crt")?, text("tls.key")?)?;
    (identify(&read.der().ok()?).as_ref() == Some(unit)).then_some(read)
}

/// The authorities that the Envoy of a Secret trusts.
pub(in super::super) fn authorities(secret: &Secret) -> Option<&[u8]> {
    Some(&secret.data.as_ref()?.get("ca.crt")?.0)
}

/// Makes the objects of a unit.
pub(in super::super) fn manifest(
    id: &UnitId,
    unit: &Unit,
    identity: Identity<'_>,
    networks: Option<&str>,
    options: &DeploymentOptions,
) -> Manifest {
    let any: IpAddr = if unit.address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let ready_port = ready_port(unit);
    let (host, port) = &options.xds_server;
    let setup = ContainerSetup { xds_server: (host, *port), folders: FOLDERS, ready: (any, ready_port) };
    let files = of_container(id, setup);
    let metadata = metadata(id, &options.namespace);
    Manifest {
        deployment: deployment(id, unit, (&files, ready_port), networks, (&metadata, options)),
        service: service(unit, &metadata),
        secret: secret(files, identity, metadata),
    }
}

/// The public ports of other units are none of its own.
fn ready_port(unit: &Unit) -> u16 {
    let is_free = |port: &u16| !unit.listeners.contains_key(&PortNumber { protocol: Protocol::Tcp, port: *port });
    (READY_PORT..=u16::MAX).find(is_free).unwrap_or(READY_PORT)
}

fn metadata(id: &UnitId, namespace: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name(id)),
        namespace: Some(namespace.to_owned()),
        labels: Some(labels(id)),
        annotations: Some(BTreeMap::from([(UNIT.to_owned(), id.to_string())])),
        ..ObjectMeta::default()
    }
}

/// The first three are those of the original.
fn labels(id: &UnitId) -> BTreeMap<String, String> {
    let balancer: String =
        id.name.chars().map(|c| if c.is_ascii_alphanumeric() || ".-".contains(c) { c } else { '-' }).collect();
    let name = name(id);
    let all = [("app", "egw"), ("role", "proxy"), ("loadbalancer_cr", balancer.as_str()), (UNIT_LABEL, &name)];
    all.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

fn secret(files: ContainerFiles, identity: Identity<'_>, metadata: ObjectMeta) -> Secret {
    let Identity { certificate, authorities } = identity;
    let pem = [("tls.crt", &*certificate.certificate), ("tls.key", &certificate.key), ("ca.crt", authorities)];
    let pem = pem.map(|(name, text)| (name, text.to_owned()));
    let ContainerFiles { bootstrap, secrets } = files;
    let json = std::iter::once(("bootstrap.json", bootstrap)).chain(secrets);
    let json = json.map(|(name, value)| (name, value.to_string()));
    let data = json.chain(pem).map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes())));
    Secret { metadata, data: Some(data.collect()), type_: Some("Opaque".to_owned()), ..Secret::default() }
}

fn deployment(
    id: &UnitId,
    unit: &Unit,
    (files, ready_port): (&ContainerFiles, u16),
    networks: Option<&str>,
    (metadata, options): (&ObjectMeta, &DeploymentOptions),
) -> Deployment {
    let name = name(id);
    let image = if unit.image.is_empty() { &*options.image } else { &*unit.image };
    let drain = options.drain.as_secs().to_string();
    let bootstrap = format!("{}/bootstrap.json", FOLDERS.config);
    let arguments = ["-c", &bootstrap, "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"];
    let arguments: Vec<&str> = arguments.into_iter().chain(["--drain-time-s", &drain]).collect();
    let container = json!({
        "name": "envoy",
        "image": image,
        "command": ["envoy"],
        "args": arguments,
        "resources": { "requests": { "cpu": "10m", "memory": "80Mi" } },
        "readinessProbe": { "tcpSocket": { "port": ready_port }, "periodSeconds": 2 },
        // the last lines of its log are shown when it ends
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        },
        "volumeMounts": [
            { "name": "config", "mountPath": FOLDERS.config, "readOnly": true },
            { "name": "run", "mountPath": FOLDERS.run },
        ],
    });
    let pod = json!({
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 5,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": { "type": "RuntimeDefault" },
            // a capability would have no effect for a user who is not root
            "sysctls": [{ "name": "net.ipv4.ip_unprivileged_port_start", "value": "0" }],
        },
        "containers": [container],
        "volumes": [
            { "name": "config", "secret": { "secretName": name, "defaultMode": 0o440 } },
            { "name": "run", "emptyDir": { "sizeLimit": "1Mi" } },
        ],
    });
    let mut annotations = json!({ (BOOTSTRAP): hash(&files.bootstrap.to_string(), 8) });
    let strategy = if let Some(networks) = networks {
        annotations[NETWORKS] = networks.into();
        // two pods must not have the same address
        json!({ "type": "Recreate" })
    } else {
        // the old Envoy goes when the new one has its configuration
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } })
    };
    of_json(json!({
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 1,
            "strategy": strategy,
            "selector": { "matchLabels": { (UNIT_LABEL): name } },
            "template": {
                "metadata": { "labels": metadata.labels, "annotations": annotations },
                "spec": pod,
            },
        },
    }))
}

fn service(unit: &Unit, metadata: &ObjectMeta) -> Service {
    let port = |port: &PortNumber| {
        let protocol = match port.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
        };
        let name = port.to_string().to_ascii_lowercase();
        json!({ "name": name, "protocol": protocol, "port": port.port, "targetPort": port.port })
    };
    let ports: Vec<Value> = unit.listeners.keys().map(port).collect();
    let family = if unit.address.is_ipv4() { "IPv4" } else { "IPv6" };
    of_json(json!({
        "metadata": metadata,
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": CLASS,
            "allocateLoadBalancerNodePorts": false,
            // a packet may arrive at any node, and its Envoy is on one
            "externalTrafficPolicy": "Cluster",
            "ipFamilyPolicy": "SingleStack",
            "ipFamilies": [family],
            "selector": { (UNIT_LABEL): metadata.name },
            "ports": ports,
        },
    }))
}

/// The networks that the pods of a Deployment are attached to.
pub(in super::super) fn networks(deployment: &Deployment) -> Option<&str> {
    let template = &deployment.spec.as_ref()?.template;
    Some(template.metadata.as_ref()?.annotations.as_ref()?.get(NETWORKS)?)
}

/// The first bytes of a hash, in hexadecimal digits.
fn hash(text: &str, bytes: usize) -> String {
    digest(&SHA256, text.as_bytes()).as_ref().iter().take(bytes).fold(String::new(), |mut digits, byte| {
        write!(digits, "{byte:02x}").expect("a string takes what is written");
        digits
    })
}

fn of_json<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).expect("it has the fields of its kind")
}
