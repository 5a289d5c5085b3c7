//! The instance metadata service, version 2: nothing without a token, and a token only by PUT.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt as _;
use http::Method;
use http::request::Parts;
use parking_lot::Mutex;
use serde_json::json;

use super::REGION;
use super::keys::KeyRing;
use super::server::{Answer, Cut, Server, text};

/// A running metadata service; ends when dropped.
pub struct FakeImds {
    server: Server,
    state: Arc<Mutex<State>>,
}

struct State {
    keys: KeyRing,
    role: Option<String>,
    lifetime: Duration,
    /// Tokens and when they end.
    tokens: Vec<(String, Instant)>,
    is_too_far: bool,
    requests: u32,
}

impl FakeImds {
    /// Starts the service of an instance with a role. Its keys live for an hour.
    pub async fn start(keys: KeyRing, role: Option<&str>) -> anyhow::Result<Self> {
        let state = Arc::new(Mutex::new(State {
            keys,
            role: role.map(str::to_owned),
            lifetime: Duration::from_hours(1),
            tokens: Vec::new(),
            is_too_far: false,
            requests: 0,
        }));
        let shared = state.clone();
        let handler = move |head: Parts, _body: Bytes| {
            let answer = shared.lock().answer(&head);
            async move { answer }.boxed()
        };
        Ok(Self { server: Server::start(Arc::new(handler)).await?, state })
    }

    /// Where it is.
    pub fn endpoint(&self) -> String {
        self.server.url()
    }

    /// How long keys live from now on.
    pub fn set_lifetime(&self, lifetime: Duration) {
        self.state.lock().lifetime = lifetime;
    }

    /// Whether answers to PUT do not arrive, as with a hop limit of 1 in a pod.
    pub fn set_too_far(&self, is_too_far: bool) {
        self.state.lock().is_too_far = is_too_far;
    }

    /// How many requests came.
    pub fn requests(&self) -> u32 {
        self.state.lock().requests
    }
}

impl State {
    fn answer(&mut self, head: &Parts) -> Result<Answer, Cut> {
        self.requests += 1;
        let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        let path = head.uri.path();
        if head.method == Method::PUT && path == "/latest/api/token" {
            if self.is_too_far {
                return Err(Cut);
            }
            let ttl = header("x-aws-ec2-metadata-token-ttl-seconds").and_then(|ttl| ttl.parse::<u64>().ok());
            let Some(ttl) = ttl.filter(|ttl| (1..=21600).contains(ttl)) else { return Ok(plain(400, "")) };
            let token = format!("imds-token-{}", self.tokens.len());
            self.tokens.push((token.clone(), Instant::now() + Duration::from_secs(ttl)));
            return Ok(plain(200, &token));
        }
        let token = header("x-aws-ec2-metadata-token").unwrap_or_default();
        if !self.tokens.iter().any(|(known, end)| known == token && *end > Instant::now()) {
            return Ok(plain(401, ""));
        }
        let roles = "/latest/meta-data/iam/security-credentials/";
        Ok(match (path, &self.role) {
            ("/latest/meta-data/placement/region", _) => plain(200, REGION),
            (path, Some(role)) if path == roles => plain(200, role),
            (path, Some(role)) if path.strip_prefix(roles) == Some(role) => {
                let key = self.keys.issue(Some(self.lifetime));
                let body = json!({
                    "Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z",
                    "AccessKeyId": key.id, "SecretAccessKey": key.secret, "Token": key.token,
                    "Expiration": key.expiration(),
                });
                text(200, "text/plain", body.to_string())
            }
            _ => plain(404, ""),
        })
    }
}

fn plain(status: u16, body: &str) -> Answer {
    text(status, "text/plain", body.to_owned())
}
