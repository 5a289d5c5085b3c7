//! The kubeconfig of an API server, everything embedded.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use portolan_certs::SignedCertificate;
use serde_json::json;

use super::authority::write_private;

/// A kubeconfig for `server` (`https://host:port`), whose certificate comes from `authority` (PEM); `client` proves who
/// its user is. A second context, `NAME-token`, does the same by bearer token.
///
/// It is JSON, which is YAML, too.
pub fn render(name: &str, server: &str, authority: &str, client: &SignedCertificate, token: &str) -> String {
    let by_token = format!("{name}-token");
    let user = json!({
        "client-certificate-data": STANDARD.encode(&client.certificate),
        "client-key-data": STANDARD.encode(&client.key),
    });
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{ "name": name, "cluster": { "server": server, "certificate-authority-data": STANDARD.encode(authority) } }],
        "users": [{ "name": name, "user": user }, { "name": by_token, "user": { "token": token } }],
        "contexts": [
            { "name": name, "context": { "cluster": name, "user": name } },
            { "name": by_token, "context": { "cluster": name, "user": by_token } },
        ],
    });
    format!("{config:#}\n")
}

/// Writes it atomically, readable by its owner only.
pub fn write(path: &Path, kubeconfig: &str) -> std::io::Result<()> {
    write_private(path, kubeconfig)
}
