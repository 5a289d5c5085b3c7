//! Users and their groups.

use portolan_certs::Identity;
use serde_json::{Value, json};

/// The group with all rights.
pub const MASTERS: &str = "system:masters";
pub(super) const AUTHENTICATED: &str = "system:authenticated";
pub(super) const ANONYMOUS: &str = "system:anonymous";

/// The user of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
}

impl User {
    pub fn new(name: impl Into<String>, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        Self { name: name.into(), groups }
    }

    pub(super) fn anonymous() -> Self {
        Self::new(ANONYMOUS, &["system:unauthenticated"])
    }

    pub(super) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|mine| mine == group)
    }

    /// Adds the group of all authenticated users.
    pub(super) fn authenticated(mut self) -> Self {
        if !self.is_in(AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// The `UserInfo` object.
    pub fn to_json(&self) -> Value {
        json!({ "username": self.name, "groups": self.groups })
    }
}

impl From<&Identity> for User {
    /// The user of a client certificate: its common name, in the groups of its organizations.
    fn from(identity: &Identity) -> Self {
        Self { name: identity.common_name.clone(), groups: identity.organizations.clone() }
    }
}
