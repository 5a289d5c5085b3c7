//! Kubeconfig files, written as JSON, which every reader of YAML reads.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

/// A client certificate and its key, both PEM.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// A kubeconfig with one context, its certificates in it, so that the file can be copied anywhere.
pub(crate) fn kubeconfig(server: &str, ca: Option<&str>, identity: Option<&Identity>) -> Value {
    let mut cluster = json!({ "server": server });
    if let Some(ca) = ca {
        cluster["certificate-authority-data"] = base64(ca);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "testkit", "cluster": cluster }],
        "users": [{ "name": "testkit", "user": identity.map_or_else(|| json!({}), user) }],
        "contexts": [{ "name": "testkit", "context": { "cluster": "testkit", "user": "testkit" } }],
        "current-context": "testkit",
    })
}

/// The `user` section of a kubeconfig.
pub(crate) fn user(identity: &Identity) -> Value {
    json!({
        "client-certificate-data": base64(&identity.certificate),
        "client-key-data": base64(&identity.key),
    })
}

fn base64(text: &str) -> Value {
    serde_json::to_value(ByteString(text.as_bytes().to_vec())).expect("bytes become a JSON string")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kube_reads_what_is_written() {
        let identity = Identity { certificate: "cert".into(), key: "key".into() };
        let text = kubeconfig("https://127.0.0.1:1", Some("ca"), Some(&identity)).to_string();
        let read = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(read.clusters[0].cluster.as_ref().unwrap().server.as_deref(), Some("https://127.0.0.1:1"));
        assert_eq!(read.auth_infos[0].auth_info.as_ref().unwrap().client_certificate_data.as_deref(), Some("Y2VydA=="));
    }
}
