//! Another program that works on the same account. What it does is in no log of calls.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::Ipv4Net;
use parking_lot::Mutex;

use super::account::Account;
use super::world::Wish;

/// Attaches and detaches addresses beside the operator. Clones are the same program.
#[derive(Clone)]
pub struct Neighbour {
    pub(super) account: Arc<Mutex<Account>>,
}

/// The interface of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrimaryInterface {
    /// Its id.
    pub id: String,
    /// The range of its subnet.
    pub subnet: Ipv4Net,
    /// How many addresses it can have beside the primary one.
    pub capacity: usize,
    /// Addresses that it has beside the primary one.
    pub secondary: BTreeSet<Ipv4Addr>,
}

impl Neighbour {
    /// The interface of a running instance.
    pub fn interface(&self, instance: &str) -> Option<PrimaryInterface> {
        let account = self.account.lock();
        let id = account.world.instances.get(instance)?.interface.as_ref()?;
        let interface = account.world.interfaces.get(id)?;
        Some(PrimaryInterface {
            id: id.clone(),
            subnet: account.world.subnets.get(&interface.subnet)?.cidr,
            capacity: interface.limit.saturating_sub(1 + interface.prefixes.len()),
            secondary: interface.secondary.clone(),
        })
    }

    /// Attaches an address; false if EC2 refuses it.
    pub fn attach(&self, interface: &str, address: Ipv4Addr) -> bool {
        let mut account = self.account.lock();
        let assigned = account.world.assign(interface, Wish::Addresses(vec![address]), false);
        if let Ok(assigned) = &assigned {
            account.changed(&assigned.changed);
        }
        assigned.is_ok()
    }

    /// Detaches an address; false if it was not there.
    pub fn detach(&self, interface: &str, address: Ipv4Addr) -> bool {
        let mut account = self.account.lock();
        let is_done = account.world.unassign(interface, &[address]).is_ok();
        account.changed(&BTreeSet::from([interface.to_owned()]));
        is_done
    }
}
