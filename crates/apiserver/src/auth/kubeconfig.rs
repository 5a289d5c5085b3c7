//! The kubeconfig of an API server, everything embedded.

use std::io::ErrorKind;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use portolan_certs::SignedCertificate;
use serde_json::{Value, json};

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

/// Writes it atomically, readable by its owner only. A file with anything that [`render`] does not make under this name
/// is somebody's own: false, and it is left as it is.
pub fn write(path: &Path, name: &str, kubeconfig: &str) -> std::io::Result<bool> {
    match std::fs::read_to_string(path) {
        Ok(text) if !is_ours(&text, name) => return Ok(false),
        Err(cause) if cause.kind() == ErrorKind::InvalidData => return Ok(false),
        Err(cause) if cause.kind() != ErrorKind::NotFound => return Err(cause),
        Ok(_) | Err(_) => write_private(path, kubeconfig)?,
    }
    Ok(true)
}

/// kubectl may have rewritten it, to add a default namespace for example.
fn is_ours(text: &str, name: &str) -> bool {
    if text.trim().is_empty() {
        return true;
    }
    let Ok(config) = serde_saphyr::from_str::<Value>(text) else { return false };
    let by_token = format!("{name}-token");
    let is_our_name = |entry: &Value| entry["name"] == name || entry["name"] == *by_token;
    let has_only_ours = |list| config[list].as_array().is_some_and(|entries| entries.iter().all(is_our_name));
    config["kind"] == "Config" && ["clusters", "users", "contexts"].into_iter().all(has_only_ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_kubeconfig_of_the_same_name_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let ours = r#"{"kind":"Config","clusters":[{"name":"ours"}],"users":[{"name":"ours-token"}],"contexts":[]}"#;
        let edited =
            "kind: Config\nclusters:\n- name: ours\nusers: []\ncontexts:\n- name: ours\n  context: {namespace: a}\n";
        assert!(write(&path, "ours", ours).unwrap(), "there is no file yet");
        for text in ["", ours, edited] {
            std::fs::write(&path, text).unwrap();
            assert!(write(&path, "ours", "new").unwrap(), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        }
        let merged = edited.replace("users: []", "users:\n- name: admin-of-production");
        for text in [merged.as_str(), "notes of mine", "{}", "- a\n- b", "\u{0}"] {
            std::fs::write(&path, text).unwrap();
            assert!(!write(&path, "ours", "new").unwrap(), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(!write(&path, "ours", "new").unwrap(), "it is not even text");
    }
}
