//! Who may act for an account.
//!
//! Whether an account exists must not show: a login that does not prove it takes the same steps and is given the same
//! answer, on the beats of a clock that is slower than any of the steps.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, header};
use parking_lot::Mutex;
use portolan_core::gateway::namespace_of;
use ring::hmac;
use ring::rand::SystemRandom;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::htpasswd;
use super::metrics::Metrics;
use super::reason;
use super::refusal::{Refusal, Refused};
use super::throttle::Failures;
use super::wishes::is_label;
use super::writes::{Failed, Writes};

/// The Secret in an account's namespace, and its key.
const USERS: (&str, &str) = ("api-users", "auth");
/// A verified password is good for this long, and a token for a part of it.
const PASSWORD_KEPT: Duration = Duration::from_mins(1);
const TOKEN_KEPT: Duration = Duration::from_secs(10);
const MOST_KEPT: usize = 10_000;
/// Passwords that are hashed at the same time.
const HASHED_AT_ONCE: usize = 2;
/// Longer names and passwords are nobody's.
const LONGEST: usize = 4096;
/// Refused logins are answered at multiples of it.
const BEAT: Duration = Duration::from_millis(250);

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) source: IpAddr,
    /// The accounts that its certificate proves; none without a certificate.
    pub(super) accounts: Option<Arc<[String]>>,
}

type Digest = [u8; 32];

pub(super) struct Logins {
    writes: Writes,
    metrics: Metrics,
    /// Credentials are known by a hash with this key, which no one else has.
    key: hmac::Key,
    /// What was proven, and until when that holds.
    proven: Mutex<BTreeMap<Digest, Instant>>,
    /// Credentials that are being verified: many requests with the same ones wait for the first.
    under_way: Mutex<BTreeMap<Digest, Arc<tokio::sync::Mutex<()>>>>,
    failures: Failures,
    hashing: Arc<Semaphore>,
}

enum Credentials {
    Basic { user: String, password: Vec<u8> },
    Bearer(String),
}

enum Verdict {
    Proven(Duration),
    /// It is someone, but not this account.
    Foreign,
    /// It is no one.
    Unknown,
}

impl Logins {
    /// None if the system has no randomness.
    pub(super) fn new(writes: Writes, metrics: Metrics) -> Option<Self> {
        Some(Self {
            writes,
            metrics,
            key: hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).ok()?,
            proven: Mutex::default(),
            under_way: Mutex::default(),
            failures: Failures::default(),
            hashing: Arc::new(Semaphore::new(HASHED_AT_ONCE)),
        })
    }

    /// Ok if the request may act for the account.
    pub(super) async fn prove(&self, account: &str, headers: &HeaderMap, peer: &Peer) -> Refused<()> {
        if peer.accounts.as_ref().is_some_and(|accounts| accounts.iter().any(|proven| proven == account)) {
            return Ok(());
        }
        if !headers.contains_key(header::AUTHORIZATION) && peer.accounts.is_some() {
            return Err(foreign());
        }
        let credentials = credentials(headers).ok_or_else(unknown)?;
        let digest = self.digest(account, &credentials);
        let began = Instant::now();
        // before the credentials are looked at: the answer would be one more guess
        if let Some(left) = self.failures.blocked(peer.source) {
            return Err(too_many(left));
        }
        let first = Arc::clone(self.under_way.lock().entry(digest).or_default());
        let turn = first.lock().await;
        let judged = self.judge(account, &credentials, digest, peer.source).await;
        drop(turn);
        drop(first);
        self.forget_turn(digest);
        let refusal = match judged? {
            Verdict::Proven(_) => return Ok(()),
            Verdict::Foreign => foreign(),
            Verdict::Unknown => unknown(),
        };
        self.metrics.login_failures.inc();
        tokio::time::sleep_until(next_beat(began)).await;
        Err(refusal)
    }

    /// Nobody else waits for these credentials.
    fn forget_turn(&self, digest: Digest) {
        let mut under_way = self.under_way.lock();
        if under_way.get(&digest).is_some_and(|shared| Arc::strong_count(shared) == 1) {
            under_way.remove(&digest);
        }
    }

    async fn judge(
        &self,
        account: &str,
        credentials: &Credentials,
        digest: Digest,
        source: IpAddr,
    ) -> Refused<Verdict> {
        let now = Instant::now();
        if let Some(until) = self.proven.lock().get(&digest).filter(|until| **until > now) {
            return Ok(Verdict::Proven(*until - now));
        }
        let attempt = self.failures.attempt(source).map_err(too_many)?;
        let verdict = match credentials {
            Credentials::Basic { user, password } => self.check_password(account, user, password).await,
            Credentials::Bearer(token) => self.check_token(account, token).await,
        };
        match verdict {
            Ok(Verdict::Proven(kept)) => {
                attempt.forgive();
                self.keep(digest, kept);
                Ok(Verdict::Proven(kept))
            }
            Ok(verdict @ (Verdict::Foreign | Verdict::Unknown)) => Ok(verdict),
            Err(failed) => {
                attempt.forgive();
                Err(Refusal::from(failed))
            }
        }
    }

    async fn check_password(&self, account: &str, user: &str, password: &[u8]) -> Result<Verdict, Failed> {
        // a name that no account has is asked for like any other
        let asked = if is_account(account) { account } else { "-" };
        let (name, key) = USERS;
        let file = match self.writes.secret(&namespace_of(asked), name, key).await {
            Ok(file) => file.unwrap_or_default(),
            Err(Failed::Gone) => Vec::new(),
            Err(failed) => return Err(failed),
        };
        let file = String::from_utf8(file).unwrap_or_default();
        let (hash, password) = (htpasswd::hash_of(&file, user).to_owned(), password.to_vec());
        let ticket = Arc::clone(&self.hashing).acquire_owned().await;
        let hashed = tokio::task::spawn_blocking(move || {
            let _ticket = ticket;
            htpasswd::verify(&password, &hash)
        });
        let is_right = hashed.await.unwrap_or(false) && is_account(account);
        Ok(if is_right { Verdict::Proven(PASSWORD_KEPT) } else { Verdict::Foreign })
    }

    async fn check_token(&self, account: &str, token: &str) -> Result<Verdict, Failed> {
        let Some(user) = self.writes.review(token).await? else { return Ok(Verdict::Unknown) };
        let namespace = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
        let is_own = namespace.is_some_and(|(namespace, _)| namespace == namespace_of(account));
        Ok(if is_own && is_account(account) { Verdict::Proven(TOKEN_KEPT) } else { Verdict::Foreign })
    }

    fn keep(&self, digest: Digest, kept: Duration) {
        let now = Instant::now();
        let mut proven = self.proven.lock();
        if proven.len() >= MOST_KEPT {
            proven.retain(|_, until| *until > now);
        }
        if proven.len() < MOST_KEPT {
            proven.insert(digest, now + kept);
        }
    }

    fn digest(&self, account: &str, credentials: &Credentials) -> Digest {
        let mut hash = hmac::Context::with_key(&self.key);
        let mut part = |bytes: &[u8]| {
            hash.update(&bytes.len().to_be_bytes());
            hash.update(bytes);
        };
        part(account.as_bytes());
        match credentials {
            Credentials::Basic { user, password } => [b"basic", user.as_bytes(), password].into_iter().for_each(part),
            Credentials::Bearer(token) => [&b"bearer"[..], token.as_bytes()].into_iter().for_each(part),
        }
        let mut digest = Digest::default();
        digest.copy_from_slice(hash.sign().as_ref());
        digest
    }
}

/// True if an account can have the name.
fn is_account(name: &str) -> bool {
    is_label(name) && name.len() <= 59
}

fn credentials(headers: &HeaderMap) -> Option<Credentials> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (all.next()?, all.next()) else { return None };
    let (scheme, rest) = value.to_str().ok().filter(|value| value.len() <= LONGEST)?.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(Credentials::Bearer(rest.trim().to_owned())).filter(|_| !rest.trim().is_empty());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(rest.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let user = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    Some(Credentials::Basic { user, password: decoded[colon + 1..].to_vec() })
}

fn next_beat(began: Instant) -> Instant {
    let beats = began.elapsed().as_millis() / BEAT.as_millis() + 1;
    began + BEAT * u32::try_from(beats).unwrap_or(u32::MAX / 250)
}

fn unknown() -> Refusal {
    Refusal::new(reason::UNAUTHORIZED, "log in with a user of the account, a token of its namespace or its certificate")
        .header(header::WWW_AUTHENTICATE, "Basic realm=\"portolan gateway\", charset=\"UTF-8\"")
}

fn foreign() -> Refusal {
    Refusal::new(reason::FORBIDDEN, "this login does not prove that account: check both")
}

fn too_many(left: Duration) -> Refusal {
    Refusal::new(reason::TOO_MANY_LOGINS, "too many logins from here have failed: check the password, and wait")
        .retry_after(left.as_secs() + 1)
}
