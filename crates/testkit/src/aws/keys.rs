//! Access keys that the stand-ins know. STS and the metadata service give them out, EC2 verifies them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use parking_lot::Mutex;

/// Keys, shared by the stand-ins of one account.
#[derive(Clone, Default)]
pub struct KeyRing(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    keys: BTreeMap<String, Key>,
    issued: u64,
}

/// Keys that do not end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticKeys {
    /// The public part.
    pub access_key_id: String,
    /// The secret part.
    pub secret_access_key: String,
}

#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) id: String,
    pub(super) secret: String,
    pub(super) token: Option<String>,
    pub(super) expires: Option<SystemTime>,
}

impl Key {
    pub(super) fn expiration(&self) -> String {
        let end = self.expires.and_then(|end| Timestamp::try_from(end).ok()).unwrap_or(Timestamp::MAX);
        end.strftime("%Y-%m-%dT%H:%M:%S%.fZ").to_string()
    }
}

impl KeyRing {
    /// Makes keys that do not end.
    pub fn make(&self) -> StaticKeys {
        let key = self.issue(None);
        StaticKeys { access_key_id: key.id, secret_access_key: key.secret }
    }

    /// Forgets a key: calls signed with it are refused.
    pub fn revoke(&self, access_key_id: &str) {
        self.0.lock().keys.remove(access_key_id);
    }

    /// How many keys were made.
    pub fn issued(&self) -> u64 {
        self.0.lock().issued
    }

    /// Makes keys; with a session token if they end.
    pub(super) fn issue(&self, lifetime: Option<Duration>) -> Key {
        let mut state = self.0.lock();
        state.issued += 1;
        let (kind, number) = (if lifetime.is_some() { "ASIA" } else { "AKIA" }, state.issued);
        let key = Key {
            id: format!("{kind}{number:016}"),
            secret: format!("very/secret+{number:027}"),
            token: lifetime.map(|_| format!("session//token+{number:040}==")),
            expires: lifetime.map(|lifetime| SystemTime::now() + lifetime),
        };
        state.keys.insert(key.id.clone(), key.clone());
        key
    }

    pub(super) fn find(&self, id: &str) -> Option<Key> {
        self.0.lock().keys.get(id).cloned()
    }
}
