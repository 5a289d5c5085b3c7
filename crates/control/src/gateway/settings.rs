//! How gateway runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use portolan_core::gateway::{Limits, Settings};
use portolan_core::net::AddressSet;
use portolan_drivers::envoy::Proxies;

use crate::runtime::clock::millis;

/// How gateway runs.
#[derive(Clone)]
pub struct Options {
    /// What runs Envoys.
    pub proxies: Arc<dyn Proxies>,
    /// Limits of accounts that have none of their own.
    pub limits: Limits,
    /// A released address is given again after this time.
    pub address_quarantine: Duration,
    /// A released key or id is given again after this time.
    pub key_quarantine: Duration,
    /// Connections of a load balancer that is deleted end within this time.
    pub drain: Duration,
    /// Endpoints must not be here.
    pub deny: AddressSet,
    /// Endpoints may be here although it is denied.
    pub allow: AddressSet,
    /// Images that groups may name; `*` matches any text.
    pub images: Vec<String>,
    /// Namespace of the operator.
    pub own_namespace: String,
}

/// Envoy gets this long beyond the drain time to let go of a load balancer.
const BEYOND_DRAIN: Duration = Duration::from_mins(1);

impl Options {
    /// The usual settings.
    pub fn with(proxies: Arc<dyn Proxies>) -> Self {
        Self {
            proxies,
            limits: Limits::default(),
            address_quarantine: Duration::from_mins(1),
            key_quarantine: Duration::from_hours(1),
            drain: Duration::from_secs(10),
            deny: AddressSet::default(),
            allow: AddressSet::default(),
            images: Vec::new(),
            own_namespace: String::new(),
        }
    }

    /// What the planner needs of them.
    pub(super) fn planner(&self) -> Settings {
        Settings {
            limits: self.limits,
            address_quarantine: millis(self.address_quarantine),
            key_quarantine: millis(self.key_quarantine),
            drain_limit: millis(self.drain + BEYOND_DRAIN),
            deny: self.deny.clone(),
            allow: self.allow.clone(),
            own_namespace: self.own_namespace.as_str().into(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("limits", &self.limits).field("drain", &self.drain).finish_non_exhaustive()
    }
}
