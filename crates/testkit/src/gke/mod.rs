//! A stand-in for Google's token endpoint, Kubernetes Engine API and metadata server, on loopback. It enforces the
//! rules of the real ones: assertions are verified, tokens end, and answers have the shapes of Google's. A real API
//! server whose token webhook it is takes the same tokens, as one of GKE does.

mod assertion;
mod serve;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The account whose key the stand-in knows.
pub const EMAIL: &str = "mirror@example.iam.gserviceaccount.com";
/// The key of that account. Both keys were made for these tests and are used nowhere else.
const KNOWN_KEY: &str = include_str!("known-key.pem");
/// A key that belongs to nobody.
const UNKNOWN_KEY: &str = include_str!("unknown-key.pem");
const KEY_ID: &str = "known-key";
const CLIENT_ID: &str = "client.apps.googleusercontent.com";
const CLIENT_SECRET: &str = "client-secret";
const REFRESH_TOKEN: &str = "refresh-token";

/// A running stand-in; ends when dropped.
pub struct FakeGke {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    serving: JoinHandle<()>,
}

/// Which requests a fault is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// For a token.
    Token,
    /// For the record of a cluster.
    Cluster,
    /// To the metadata server.
    Metadata,
    /// Of an API server, about a token.
    TokenReview,
}

/// How requests are answered instead of properly.
#[derive(Debug, Clone)]
pub enum GkeFault {
    /// With this status and these headers.
    Status(u16, Vec<(&'static str, String)>),
    /// With something that is no JSON.
    Garbage,
    /// Later.
    Delay(Duration),
}

/// A request that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GkeRequest {
    /// Method and path.
    pub line: String,
    /// The status of the answer.
    pub status: u16,
}

#[derive(Default)]
struct State {
    token_uri: String,
    token_lifetime: Duration,
    tokens: BTreeMap<String, Instant>,
    issued: u64,
    clusters: BTreeMap<String, Value>,
    forbidden: bool,
    key_disabled: bool,
    faults: BTreeMap<Call, GkeFault>,
    requests: Vec<GkeRequest>,
}

impl FakeGke {
    /// Starts a stand-in without clusters. Tokens live for an hour.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("binding the GKE stand-in")?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State {
            token_uri: format!("http://{address}/token"),
            token_lifetime: Duration::from_hours(1),
            ..State::default()
        }));
        let serving = tokio::spawn(serve::accept(listener, state.clone()));
        Ok(Self { address, state, serving })
    }

    /// Where the Kubernetes Engine API is.
    pub fn container_endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where a Kubernetes API server asks whether a token is good, and whose it is.
    pub fn token_review_url(&self) -> String {
        format!("http://{}/tokenreview", self.address)
    }

    /// The host of the metadata server.
    pub fn metadata_host(&self) -> String {
        self.address.to_string()
    }

    /// The key file of an account that may read clusters.
    pub fn key_file(&self) -> String {
        self.key(KNOWN_KEY)
    }

    /// The same account with a key that is not its own.
    pub fn wrong_key_file(&self) -> String {
        self.key(UNKNOWN_KEY)
    }

    fn key(&self, private_key: &str) -> String {
        json!({
            "type": "service_account",
            "project_id": "example",
            "private_key_id": KEY_ID,
            "private_key": private_key,
            "client_email": EMAIL,
            "token_uri": self.state.lock().token_uri,
        })
        .to_string()
    }

    /// The credentials file of a user that may read clusters.
    pub fn user_file(&self) -> String {
        json!({
            "type": "authorized_user",
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "refresh_token": REFRESH_TOKEN,
            "token_uri": self.state.lock().token_uri,
        })
        .to_string()
    }

    /// Sets the record of a cluster, by `projects/P/locations/L/clusters/C`.
    pub fn set_cluster(&self, name: &str, record: Value) {
        self.state.lock().clusters.insert(name.to_owned(), record);
    }

    /// How long tokens live from now on.
    pub fn set_token_lifetime(&self, lifetime: Duration) {
        self.state.lock().token_lifetime = lifetime;
    }

    /// Ends all tokens.
    pub fn revoke_tokens(&self) {
        self.state.lock().tokens.clear();
    }

    /// Whether the account's key is disabled.
    pub fn disable_key(&self, disabled: bool) {
        self.state.lock().key_disabled = disabled;
    }

    /// Whether the account may not read clusters.
    pub fn forbid(&self, forbidden: bool) {
        self.state.lock().forbidden = forbidden;
    }

    /// Answers calls of a kind in this way; none for properly.
    pub fn set_fault(&self, call: Call, fault: Option<GkeFault>) {
        let mut state = self.state.lock();
        match fault {
            Some(fault) => drop(state.faults.insert(call, fault)),
            None => drop(state.faults.remove(&call)),
        }
    }

    /// Requests so far.
    pub fn requests(&self) -> Vec<GkeRequest> {
        self.state.lock().requests.clone()
    }
}

impl Drop for FakeGke {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl State {
    fn issue(&mut self) -> Value {
        self.issued += 1;
        let token = format!("ya29.token-{}", self.issued);
        self.tokens.insert(token.clone(), Instant::now() + self.token_lifetime);
        json!({ "access_token": token, "token_type": "Bearer", "expires_in": self.token_lifetime.as_secs() })
    }

    fn is_valid(&self, token: &str) -> bool {
        self.tokens.get(token).is_some_and(|ends| *ends > Instant::now())
    }
}
