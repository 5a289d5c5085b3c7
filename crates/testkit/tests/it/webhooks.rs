//! The API server shows webhooks a client certificate that they can check.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::Arc,
};

use k8s_openapi::{
    ByteString,
    api::{admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::ConfigMap},
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use portolan_testkit::ControlPlane;
use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use serde_json::json;

use super::setting::until;

#[tokio::test]
async fn a_webhook_can_tell_the_api_server_by_its_certificate() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("webhook").await.unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let (config, ca) = server_config(plane.webhook_client_ca_pem());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            refuse_all(stream.unwrap(), &config);
        }
    });

    let hooks: Api<ValidatingWebhookConfiguration> = Api::all(plane.client());
    let hook = serde_json::from_value(json!({
        "metadata": { "name": namespace },
        "webhooks": [{
            "name": "refuse.testkit.portolan.dev",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": { "url": url, "caBundle": ByteString(ca.into_bytes()) },
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] }],
        }],
    }))
    .unwrap();
    hooks.create(&PostParams::default(), &hook).await.unwrap();

    let maps: Api<ConfigMap> = Api::namespaced(plane.client(), &namespace);
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "generateName": "any-" } })).unwrap();
    let refused = until("the API server calls the webhook", async || {
        maps.create(&PostParams::default(), &map).await.err().map(|error| error.to_string())
    })
    .await;
    hooks.delete(&namespace, &DeleteParams::default()).await.unwrap();
    assert!(refused.contains("refused, and the certificate was good"), "{refused}");
}

/// A server that talks only to clients with a certificate of the given CA; and the CA of its own.
fn server_config(client_ca: &str) -> (Arc<ServerConfig>, String) {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(client_ca.as_bytes()).unwrap()).unwrap();
    let verifier = WebPkiClientVerifier::builder(roots.into()).build().unwrap();
    let key = PrivateKeyDer::from_pem_slice(own.signing_key.serialize_pem().as_bytes()).unwrap();
    let config = ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![own.cert.der().clone()], key)
        .unwrap();
    (Arc::new(config), own.cert.pem())
}

/// Answers one review with a refusal and closes the connection; a client without a good certificate gets none.
fn refuse_all(stream: TcpStream, config: &Arc<ServerConfig>) {
    let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(config)).unwrap(), stream);
    let mut text = String::new();
    let mut bytes = [0; 4096];
    let body = loop {
        let Ok(length) = stream.read(&mut bytes) else { return };
        text.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
        if let Some((_, body)) = text.split_once("\r\n\r\n")
            && let Ok(review) = serde_json::from_str::<serde_json::Value>(body)
        {
            break review;
        }
        if length == 0 {
            return;
        }
    };
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": body["request"]["uid"],
            "allowed": false,
            "status": { "message": "refused, and the certificate was good" },
        },
    })
    .to_string();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n", answer.len());
    stream.write_all(format!("{head}connection: close\r\n\r\n{answer}").as_bytes()).unwrap();
    stream.conn.send_close_notify();
    stream.flush().unwrap();
}
