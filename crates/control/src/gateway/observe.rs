//! What gateway reads of the cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use portolan_api::address_claim::AddressClaim;
use portolan_api::gateway::{Account, Egw, Endpoint, LoadBalancer, NodeConfig, ServiceGroup, ServicePrefix};

use crate::runtime::store::{Key, Store};
use crate::runtime::watch::{Selection, Watches};

/// Objects of the cluster.
#[derive(Clone)]
pub struct Cache {
    pub(super) namespaces: Store<Namespace>,
    pub(super) egws: Store<Egw>,
    pub(super) accounts: Store<Account>,
    pub(super) node_configs: Store<NodeConfig>,
    pub(super) prefixes: Store<ServicePrefix>,
    pub(super) groups: Store<ServiceGroup>,
    pub(super) load_balancers: Store<LoadBalancer>,
    pub(super) endpoints: Store<Endpoint>,
    pub(super) claims: Store<AddressClaim>,
}

/// Keys of objects that changed.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) namespaces: BTreeSet<Arc<Key>>,
    pub(super) egws: BTreeSet<Arc<Key>>,
    pub(super) accounts: BTreeSet<Arc<Key>>,
    pub(super) node_configs: BTreeSet<Arc<Key>>,
    pub(super) prefixes: BTreeSet<Arc<Key>>,
    pub(super) groups: BTreeSet<Arc<Key>>,
    pub(super) load_balancers: BTreeSet<Arc<Key>>,
    pub(super) endpoints: BTreeSet<Arc<Key>>,
    pub(super) claims: BTreeSet<Arc<Key>>,
}

impl Cache {
    /// Watches everything.
    pub(super) fn watched(watches: &mut Watches) -> Self {
        Self {
            namespaces: watches.add(Selection { trim: |namespace| namespace.spec = None, ..Selection::default() }),
            egws: watches.add(Selection::default()),
            accounts: watches.add(Selection::default()),
            node_configs: watches.add(Selection::default()),
            prefixes: watches.add(Selection::default()),
            groups: watches.add(Selection::default()),
            load_balancers: watches.add(Selection::default()),
            endpoints: watches.add(Selection::default()),
            claims: watches.add(Selection::default()),
        }
    }

    /// What changed since the last call.
    pub(super) fn take_changes(&self) -> Changes {
        Changes {
            namespaces: self.namespaces.take_changes(),
            egws: self.egws.take_changes(),
            accounts: self.accounts.take_changes(),
            node_configs: self.node_configs.take_changes(),
            prefixes: self.prefixes.take_changes(),
            groups: self.groups.take_changes(),
            load_balancers: self.load_balancers.take_changes(),
            endpoints: self.endpoints.take_changes(),
            claims: self.claims.take_changes(),
        }
    }

    /// Everything there is.
    pub(super) fn all(&self) -> Changes {
        Changes {
            namespaces: self.namespaces.keys(),
            egws: self.egws.keys(),
            accounts: self.accounts.keys(),
            node_configs: self.node_configs.keys(),
            prefixes: self.prefixes.keys(),
            groups: self.groups.keys(),
            load_balancers: self.load_balancers.keys(),
            endpoints: self.endpoints.keys(),
            claims: self.claims.keys(),
        }
    }
}
