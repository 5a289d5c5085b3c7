//! The kubeconfig of an API server, everything embedded.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::authority::{Signed, write_private};

/// What a kubeconfig proves its user with.
pub enum Credential<'a> {
    Certificate(&'a Signed),
    Token(&'a str),
}

/// A kubeconfig for `server` (`https://host:port`), whose certificate comes from `authority` (PEM).
///
/// It is JSON, which is YAML, too.
pub fn render(name: &str, server: &str, authority: &str, credential: &Credential<'_>) -> String {
    let user = match credential {
        Credential::Certificate(signed) => json!({
            "client-certificate-data": STANDARD.encode(&signed.certificate),
            "client-key-data": STANDARD.encode(&signed.key),
        }),
        Credential::Token(token) => json!({ "token": token }),
    };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{ "name": name, "cluster": { "server": server, "certificate-authority-data": STANDARD.encode(authority) } }],
        "users": [{ "name": name, "user": user }],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
    });
    yaml(&config)
}

/// Writes it for its owner's eyes only, whole or not at all.
pub fn write(path: &Path, kubeconfig: &str) -> std::io::Result<()> {
    write_private(path, kubeconfig)
}

fn yaml(config: &Value) -> String {
    format!("{config:#}\n")
}
