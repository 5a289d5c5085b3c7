//! A webhook server for tests: the path it is called on says how it answers.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::super::Caller;

/// A webhook server whose path says how it answers, and who came by.
pub(super) struct Server {
    pub(super) port: u16,
    pub(super) certificate: String,
    tasks: TaskTracker,
    pub(super) requests: Arc<Mutex<Vec<(String, Value)>>>,
    pub(super) connections: Arc<AtomicUsize>,
}

impl Server {
    pub(super) async fn start(name: &str) -> Self {
        let issued = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(issued.signing_key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![issued.cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            port: listener.local_addr().unwrap().port(),
            certificate: issued.cert.pem(),
            tasks: TaskTracker::new(),
            requests: Arc::default(),
            connections: Arc::default(),
        };
        let (tasks, requests, connections) =
            (server.tasks.clone(), Arc::clone(&server.requests), Arc::clone(&server.connections));
        server.tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, requests) = (acceptor.clone(), Arc::clone(&requests));
                connections.fetch_add(1, Ordering::Relaxed);
                tasks.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| respond(request, Arc::clone(&requests)));
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await
                        .ok();
                });
            }
        });
        server
    }

    pub(super) fn hook(&self, path: &str) -> Value {
        json!({
            "name": "x.hook.io",
            "clientConfig": { "url": format!("https://127.0.0.1:{}/{path}", self.port), "caBundle": STANDARD.encode(&self.certificate) },
            "rules": [{ "operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] }],
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
        })
    }

    pub(super) fn caller(&self) -> Arc<Caller> {
        Arc::new(Caller::new(self.tasks.clone()))
    }
}

async fn respond(
    request: Request<Incoming>,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().to_string();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    requests.lock().push((path.clone(), review.clone()));
    let mut answer = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": { "uid": review["request"]["uid"], "allowed": true },
    });
    let patch = |operations: Value| STANDARD.encode(operations.to_string());
    let response = &mut answer["response"];
    let mut status = 200;
    let mut raw = None;
    let word = path.split('?').next().unwrap().trim_matches('/').to_owned();
    match word.as_str() {
        "deny" => response["allowed"] = json!(false),
        "denymsg" => {
            *response = json!({ "uid": response["uid"], "allowed": false, "status": { "message": "no way" }, "warnings": ["careful"] });
        }
        "denyreason" => *response = json!({ "uid": response["uid"], "allowed": false, "status": { "reason": "Odd" } }),
        "denycode" => {
            let details = json!({ "name": "x", "kind": "Y", "causes": [{ "reason": "FieldValueInvalid", "message": "m", "field": "f" }] });
            *response = json!({ "uid": response["uid"], "allowed": false, "status": { "code": 422, "reason": "Invalid", "message": "bad", "details": details } });
        }
        "warn" => response["warnings"] = json!(["w1", "w 2"]),
        "uid" => response["uid"] = json!("x"),
        "kind" => answer["kind"] = json!("Foo"),
        "noresp" => answer["response"] = json!(null),
        "nokind" => answer = json!({ "response": response }),
        "slow" => tokio::time::sleep(std::time::Duration::from_secs(5)).await,
        "500" | "404" | "403" | "401" | "302" => {
            (status, raw) = (word.parse().unwrap(), Some(Bytes::from_static(b"nope")));
        }
        "garbage" => raw = Some(Bytes::from_static(b"not json")),
        "empty" => raw = Some(Bytes::new()),
        "truncated" => raw = Some(Bytes::from_static(b"{\"kind\":")),
        "patchtype" => response["patchType"] = json!("JSONPatch"),
        "patchnotype" => response["patch"] = json!(patch(json!([]))),
        "patchother" => {
            *response = json!({ "uid": response["uid"], "allowed": true, "patchType": "Foo", "patch": patch(json!([{ "op": "remove", "path": "/data" }])) });
        }
        "badb64" => {
            *response = json!({ "uid": response["uid"], "allowed": true, "patchType": "JSONPatch", "patch": "!!!" });
        }
        "badpatch" => {
            *response = json!({ "uid": response["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch(json!([{ "op": "remove", "path": "/nothing" }])) });
        }
        "badpatch2" => {
            *response = json!({ "uid": response["uid"], "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode("xx") });
        }
        "testpatch" => {
            *response = json!({ "uid": response["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch(json!([{ "op": "test", "path": "/data", "value": 1 }])) });
        }
        // Adds its own name to a list, so that the order of calls can be read from the object.
        add if add.starts_with("add-") => {
            let mut calls = review["request"]["object"]["data"]["calls"].as_str().unwrap_or_default().to_owned();
            calls.push_str(add.trim_start_matches("add-"));
            *response = json!({ "uid": response["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch(json!([{ "op": "add", "path": "/data/calls", "value": calls }])) });
        }
        _ => {}
    }
    let body = raw.unwrap_or_else(|| Bytes::from(answer.to_string()));
    Ok(Response::builder().status(status).header("content-type", "application/json").body(Full::new(body)).unwrap())
}
