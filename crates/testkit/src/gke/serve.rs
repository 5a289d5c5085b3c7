//! Answers requests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Collected, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{CLIENT_ID, CLIENT_SECRET, Call, EMAIL, GkeFault, GkeRequest, REFRESH_TOKEN, State, assertion};

type Answer = Response<Full<Bytes>>;

/// Takes connections until aborted.
pub(super) async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let state = state.clone();
        connections.spawn(async move {
            let service = service_fn(|request| answer(state.clone(), request));
            // An error is a connection closed by the client.
            http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.unwrap_or_default();
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(state: Arc<Mutex<State>>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    let fault = call(&head).and_then(|call| state.lock().faults.get(&call).cloned());
    if let Some(GkeFault::Delay(pause)) = &fault {
        tokio::time::sleep(*pause).await;
    }
    let mut state = state.lock();
    let answer = match fault {
        Some(GkeFault::Status(status, headers)) => {
            let mut answer = json_answer(status, &json!({ "error": { "code": status, "message": "injected fault" } }));
            for (name, value) in headers {
                answer.headers_mut().insert(name, value.parse().expect("tests give good headers"));
            }
            answer
        }
        Some(GkeFault::Garbage) => Response::new(Full::from("<html>sorry</html>")),
        Some(GkeFault::Delay(_)) | None => proper(&mut state, &head, &body),
    };
    let line = format!("{} {}", head.method, head.uri.path());
    state.requests.push(GkeRequest { line, status: answer.status().as_u16() });
    Ok(answer)
}

fn call(head: &Parts) -> Option<Call> {
    match head.uri.path() {
        "/token" => Some(Call::Token),
        "/tokenreview" => Some(Call::TokenReview),
        path if path.starts_with("/v1/projects/") => Some(Call::Cluster),
        path if path.starts_with("/computeMetadata/") => Some(Call::Metadata),
        _ => None,
    }
}

fn proper(state: &mut State, head: &Parts, body: &Bytes) -> Answer {
    match (call(head), &head.method) {
        (Some(Call::Token), &Method::POST) => token(state, head, body),
        (Some(Call::Cluster), &Method::GET) => cluster(state, head),
        (Some(Call::Metadata), &Method::GET) => metadata(state, head),
        (Some(Call::TokenReview), &Method::POST) => token_review(state, body),
        _ => json_answer(404, &json!({ "error": { "code": 404, "message": "no such method" } })),
    }
}

fn token(state: &mut State, head: &Parts, body: &Bytes) -> Answer {
    let is_form = head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind == "application/x-www-form-urlencoded");
    let form: BTreeMap<String, String> = form_urlencoded::parse(body).into_owned().collect();
    let field = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
    let refused =
        |description: &str| json_answer(400, &json!({ "error": "invalid_grant", "error_description": description }));
    match field("grant_type") {
        _ if !is_form => json_answer(400, &json!({ "error": "invalid_request" })),
        "urn:ietf:params:oauth:grant-type:jwt-bearer" => {
            if state.key_disabled {
                return refused("Invalid JWT Signature.");
            }
            match assertion::verify(field("assertion"), &state.token_uri) {
                Ok(()) => json_answer(200, &state.issue()),
                Err(problem) => refused(&problem.to_string()),
            }
        }
        "refresh_token" => {
            let given = [field("client_id"), field("client_secret"), field("refresh_token")];
            if given == [CLIENT_ID, CLIENT_SECRET, REFRESH_TOKEN] {
                json_answer(200, &state.issue())
            } else {
                refused("Bad Request")
            }
        }
        _ => json_answer(400, &json!({ "error": "unsupported_grant_type" })),
    }
}

fn cluster(state: &State, head: &Parts) -> Answer {
    let header = head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let error = |code: u16, message: &str| json_answer(code, &json!({ "error": { "code": code, "message": message } }));
    if !header.strip_prefix("Bearer ").is_some_and(|token| state.is_valid(token)) {
        return error(401, "Request had invalid authentication credentials.");
    }
    if state.forbidden {
        return error(403, "Required \"container.clusters.get\" permission(s).");
    }
    let name = head.uri.path().trim_start_matches("/v1/");
    match state.clusters.get(name) {
        Some(record) => json_answer(200, record),
        None => error(404, &format!("Not found: {name}.")),
    }
}

fn metadata(state: &mut State, head: &Parts) -> Answer {
    if head.headers.get("Metadata-Flavor").is_none_or(|flavor| flavor != "Google") {
        return Response::builder().status(StatusCode::FORBIDDEN).body(Full::default()).expect("an answer");
    }
    let mut answer = json_answer(200, &state.issue());
    answer.headers_mut().insert("Metadata-Flavor", "Google".parse().expect("a header"));
    answer
}

fn token_review(state: &State, body: &Bytes) -> Answer {
    let Ok(mut review) = serde_json::from_slice::<Value>(body) else {
        return json_answer(400, &json!({ "error": "not a TokenReview" }));
    };
    let token = review["spec"]["token"].as_str().unwrap_or_default();
    review["status"] = if state.is_valid(token) {
        json!({ "authenticated": true, "user": { "username": EMAIL, "groups": ["system:authenticated"] } })
    } else {
        json!({ "authenticated": false })
    };
    json_answer(200, &review)
}

fn json_answer(status: u16, body: &Value) -> Answer {
    let answer = Response::builder().status(status).header(CONTENT_TYPE, "application/json");
    answer.body(Full::from(body.to_string())).expect("an answer")
}
