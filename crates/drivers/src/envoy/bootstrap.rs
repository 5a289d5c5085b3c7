//! What Envoy reads when it starts: who it is, and where its resources come from.

use std::net::IpAddr;
use std::path::Path;

use portolan_core::gateway::unit::UnitId;
use serde_json::{Value, json};

/// Name of the static cluster that its resources come from. No name of a unit's cluster is like it: those have slashes.
const CONTROL_PLANE: &str = "portolan";

/// The DNS name in the certificate of the xDS server, whatever name it is reached by.
pub const XDS_SERVER_NAME: &str = "xds.portolan";

/// Where the files of an Envoy in a container are.
#[derive(Debug, Clone, Copy)]
pub struct Folders<'a> {
    /// The bootstrap and the other files of [`ContainerFiles`]; and `tls.crt`, `tls.key` and `ca.crt`, read again when
    /// the folder changes.
    pub config: &'a str,
    /// It can write here, and nobody else can.
    pub run: &'a str,
}

/// How an Envoy in a container is set up.
#[derive(Debug, Clone, Copy)]
pub struct ContainerSetup<'a> {
    /// A name or address, and a port.
    pub xds_server: (&'a str, u16),
    pub folders: Folders<'a>,
    /// It listens here once it is configured, and answers nothing of use.
    pub ready: (IpAddr, u16),
}

/// The files that an Envoy in a container reads, besides its certificates.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerFiles {
    /// What it is started with.
    pub bootstrap: Value,
    /// By name: where its certificate, and the authority that it trusts, are.
    pub secrets: [(&'static str, Value); 2],
}

/// The bootstrap of a unit's Envoy beside this process.
pub(super) fn of_process(unit: &UnitId, xds_socket: &Path, admin_socket: &Path) -> Value {
    let endpoint = json!({ "pipe": { "path": xds_socket } });
    let control_plane = control_plane("STATIC", &endpoint, &json!({}));
    bootstrap(unit, admin_socket, &control_plane)
}

/// The files of a unit's Envoy in a container.
pub fn of_container(unit: &UnitId, setup: ContainerSetup<'_>) -> ContainerFiles {
    let ContainerSetup { xds_server: (host, port), folders: Folders { config, run }, ready } = setup;
    let endpoint = json!({ "socket_address": { "address": host, "port_value": port } });
    let discovery = if host.parse::<IpAddr>().is_ok() { "STATIC" } else { "STRICT_DNS" };
    // so that the loss of the server's node is noticed
    let keepalive = json!({ "connection_keepalive": { "interval": "10s", "timeout": "5s" } });
    let mut control_plane = control_plane(discovery, &endpoint, &keepalive);
    if discovery == "STRICT_DNS" {
        control_plane["dns_lookup_family"] = json!("ALL");
    }
    control_plane["transport_socket"] = tls(config);
    let mut bootstrap = bootstrap(unit, &Path::new(run).join("admin.sock"), &control_plane);
    for kind in ["cds_config", "lds_config"] {
        // else it would be ready, with nothing, while nobody configures it
        bootstrap["dynamic_resources"][kind]["initial_fetch_timeout"] = json!("0s");
    }
    bootstrap["static_resources"]["listeners"] = json!([ready_listener(ready)]);
    let watched = json!({ "path": config });
    let file = |name: &str| json!({ "filename": format!("{config}/{name}") });
    let client = json!({
        "certificate_chain": file("tls.crt"), "private_key": file("tls.key"), "watched_directory": watched,
    });
    let authority = json!({ "trusted_ca": file("ca.crt"), "watched_directory": watched });
    let secrets = [
        (CLIENT_FILE, secret("client", "tls_certificate", &client)),
        (AUTHORITY_FILE, secret("authority", "validation_context", &authority)),
    ];
    ContainerFiles { bootstrap, secrets }
}

const CLIENT_FILE: &str = "client.json";
const AUTHORITY_FILE: &str = "authority.json";

fn bootstrap(unit: &UnitId, admin_socket: &Path, control_plane: &Value) -> Value {
    let ads = json!({ "ads": {}, "resource_api_version": "V3" });
    json!({
        "node": { "id": unit.to_string(), "cluster": &*unit.namespace },
        "admin": { "address": { "pipe": { "path": admin_socket, "mode": 0o600 } } },
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": true,
                "grpc_services": [{
                    "envoy_grpc": {
                        "cluster_name": CONTROL_PLANE,
                        // Envoy's own is half a second to 30 seconds, for servers that serve many
                        "retry_policy": { "retry_back_off": { "base_interval": "0.1s", "max_interval": "2s" } },
                    },
                }],
            },
            "cds_config": ads,
            "lds_config": ads,
        },
        "static_resources": { "clusters": [control_plane] },
    })
}

fn control_plane(discovery: &str, address: &Value, http2: &Value) -> Value {
    let endpoint = json!({ "endpoint": { "address": address } });
    json!({
        "name": CONTROL_PLANE,
        "type": discovery,
        "connect_timeout": "2s",
        "load_assignment": { "cluster_name": CONTROL_PLANE, "endpoints": [{ "lb_endpoints": [endpoint] }] },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": { "http2_protocol_options": http2 },
            },
        },
    })
}

/// TLS to the xDS server, with certificates from files.
fn tls(config: &str) -> Value {
    let from = |name: &str, file: &str| {
        let source = json!({ "path": format!("{config}/{file}"), "watched_directory": { "path": config } });
        json!({ "name": name, "sds_config": { "path_config_source": source, "resource_api_version": "V3" } })
    };
    let server = json!({ "san_type": "DNS", "matcher": { "exact": XDS_SERVER_NAME } });
    json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "sni": XDS_SERVER_NAME,
            "common_tls_context": {
                // as a client Envoy offers no more than 1.2 by itself
                "tls_params": { "tls_minimum_protocol_version": "TLSv1_3", "tls_maximum_protocol_version": "TLSv1_3" },
                "alpn_protocols": ["h2"],
                "tls_certificate_sds_secret_configs": [from("client", CLIENT_FILE)],
                "combined_validation_context": {
                    "default_validation_context": { "match_typed_subject_alt_names": [server] },
                    "validation_context_sds_secret_config": from("authority", AUTHORITY_FILE),
                },
            },
        },
    })
}

fn secret(name: &str, kind: &str, content: &Value) -> Value {
    let secret = json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "name": name, kind: content,
    });
    json!({ "resources": [secret] })
}

/// It accepts connections once Envoy has its first resources, and closes them.
fn ready_listener((address, port): (IpAddr, u16)) -> Value {
    let mut socket = json!({ "address": address, "port_value": port });
    if address.is_ipv6() {
        socket["ipv4_compat"] = json!(true);
    }
    let filter = json!({
        "name": "envoy.filters.network.direct_response",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.direct_response.v3.Config",
            "response": { "inline_string": "ready\n" },
        },
    });
    json!({ "name": "ready", "address": { "socket_address": socket }, "filter_chains": [{ "filters": [filter] }] })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn unit() -> UnitId {
        UnitId { namespace: "egw-acme".into(), name: "web".into() }
    }

    fn setup(host: &str) -> ContainerSetup<'_> {
        let folders = Folders { config: "/etc/envoy", run: "/run/envoy" };
        ContainerSetup { xds_server: (host, 18000), folders, ready: (Ipv4Addr::UNSPECIFIED.into(), 18001) }
    }

    #[test]
    fn admin_not_on_network() {
        let bootstrap = of_process(&unit(), "/run/x/xds.sock".as_ref(), "/run/x/admin.sock".as_ref());
        let admin = |path: &str| json!({ "address": { "pipe": { "path": path, "mode": 0o600 } } });
        assert_eq!(bootstrap["admin"], admin("/run/x/admin.sock"));
        assert!(!bootstrap.to_string().contains("socket_address"), "{bootstrap}");
        assert_eq!(bootstrap["node"], json!({ "id": "egw-acme/web", "cluster": "egw-acme" }));
        let files = of_container(&unit(), setup("portolan-xds.portolan.svc"));
        assert_eq!(files.bootstrap["admin"], admin("/run/envoy/admin.sock"));
        assert_eq!(files.bootstrap["node"], bootstrap["node"]);
    }

    #[test]
    fn an_address_is_not_looked_up_and_a_name_is() {
        let discovery = |host: &str| {
            let files = of_container(&unit(), setup(host));
            files.bootstrap["static_resources"]["clusters"][0]["type"].clone()
        };
        assert_eq!(discovery("10.96.0.7"), "STATIC");
        assert_eq!(discovery("fd00::7"), "STATIC");
        assert_eq!(discovery("portolan-xds.portolan.svc"), "STRICT_DNS");
    }
}
