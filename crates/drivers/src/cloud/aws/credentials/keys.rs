//! Keys to sign with.

use std::fmt;

use jiff::Timestamp;
use zeroize::Zeroizing;

/// Keys of an account.
pub(in super::super) struct Keys {
    pub(in super::super) access_key_id: String,
    pub(in super::super) secret: Zeroizing<String>,
    pub(in super::super) session_token: Option<Zeroizing<String>>,
    /// None for keys that do not end.
    pub(in super::super) expires: Option<Timestamp>,
}

// Secrets are in no log.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({}, until {:?})", self.access_key_id, self.expires)
    }
}

#[test]
fn no_secret_is_printed() {
    let secret = || Zeroizing::new("hidden".to_owned());
    let keys =
        Keys { access_key_id: "AKIA1".to_owned(), secret: secret(), session_token: Some(secret()), expires: None };
    let printed = format!("{keys:?}");
    assert!(printed.contains("AKIA1") && !printed.contains("hidden"), "{printed}");
}
