//! What Envoy reads when it starts: who it is, and where its resources come from.

use std::path::Path;

use portolan_core::gateway::unit::UnitId;
use serde_json::{Value, json};

/// Name of the static cluster that its resources come from. No name of a unit's cluster is like it: those have slashes.
const CONTROL_PLANE: &str = "portolan";

/// The bootstrap of a unit's Envoy.
pub(super) fn bootstrap(unit: &UnitId, xds_socket: &Path, admin_socket: &Path) -> Value {
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
        "static_resources": { "clusters": [control_plane(xds_socket)] },
    })
}

fn control_plane(socket: &Path) -> Value {
    let endpoint = json!({ "endpoint": { "address": { "pipe": { "path": socket } } } });
    json!({
        "name": CONTROL_PLANE,
        "type": "STATIC",
        "connect_timeout": "2s",
        "load_assignment": { "cluster_name": CONTROL_PLANE, "endpoints": [{ "lb_endpoints": [endpoint] }] },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": { "http2_protocol_options": {} },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_not_on_network() {
        let unit = UnitId { namespace: "egw-acme".into(), name: "web".into() };
        let bootstrap = bootstrap(&unit, "/run/x/xds.sock".as_ref(), "/run/x/admin.sock".as_ref());
        let admin = json!({ "address": { "pipe": { "path": "/run/x/admin.sock", "mode": 0o600 } } });
        assert_eq!(bootstrap["admin"], admin);
        assert!(!bootstrap.to_string().contains("socket_address"), "{bootstrap}");
        assert_eq!(bootstrap["node"], json!({ "id": "egw-acme/web", "cluster": "egw-acme" }));
    }
}
