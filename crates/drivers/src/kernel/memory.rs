//! A kernel that is a state, for tests and for nodes that are simulated.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use super::ruleset::TUNNEL_LINK;
use super::{
    Delta, Elements, Kernel, KernelError, KernelState, Link, Mark, Network, Ruleset, RulesetChange, Tunnel,
    TunnelChange,
};

/// Stores what is applied, and refuses what the kernel would refuse. Clones are the same kernel.
#[derive(Clone, Default)]
pub struct MemoryKernel {
    inner: Arc<(Mutex<Inner>, Condvar)>,
}

#[derive(Default)]
struct Inner {
    state: KernelState,
    links: BTreeMap<String, Link>,
    announced: Vec<BTreeSet<IpAddr>>,
    forgotten: Vec<(Mark, u32)>,
    writes: u64,
    has_changed: bool,
}

impl MemoryKernel {
    /// A kernel with these links.
    pub fn new(links: BTreeMap<String, Link>) -> Self {
        let kernel = Self::default();
        kernel.inner.0.lock().links = links;
        kernel
    }

    /// How many changes were applied.
    pub fn writes(&self) -> u64 {
        self.inner.0.lock().writes
    }

    /// What was announced, in order.
    pub fn announced(&self) -> Vec<BTreeSet<IpAddr>> {
        self.inner.0.lock().announced.clone()
    }

    /// Which flows were ended, in order.
    pub fn forgotten(&self) -> Vec<(Mark, u32)> {
        self.inner.0.lock().forgotten.clone()
    }

    /// Changes the state behind the back of whoever applies.
    pub fn interfere(&self, change: impl FnOnce(&mut KernelState)) {
        let mut inner = self.inner.0.lock();
        change(&mut inner.state);
        inner.has_changed = true;
        self.inner.1.notify_all();
    }
}

impl Kernel for MemoryKernel {
    fn dump(&mut self) -> Result<KernelState, KernelError> {
        Ok(self.inner.0.lock().state.clone())
    }

    fn apply(&mut self, delta: &Delta) -> Result<(), KernelError> {
        let mut inner = self.inner.0.lock();
        if !delta.is_empty() {
            inner.writes += 1;
        }
        inner.state.network.proxies.retain(|address| !delta.remove.proxies.contains(address));
        let tunnel = inner.change_tunnel(delta.tunnel.as_ref());
        inner.state.settings.extend(&delta.settings);
        inner.state.change_ruleset(delta)?;
        if tunnel.is_err() && delta.ruleset.is_some() && inner.state.ruleset != Ruleset::Absent {
            let missing = format!("no chain of {TUNNEL_LINK}");
            (inner.state.ruleset, inner.state.elements) = (Ruleset::Damaged([missing].into()), Elements::default());
        }
        tunnel?;
        inner.state.network.remove(&delta.remove);
        let network = &mut inner.state.network;
        let add = delta.add.clone();
        network.addresses.extend(add.addresses);
        network.rules.extend(add.rules);
        network.routes.extend(add.routes);
        network.neighbours.extend(add.neighbours);
        network.peers.extend(add.peers);
        network.proxies.extend(add.proxies);
        Ok(())
    }

    fn announce(&mut self, addresses: &BTreeSet<IpAddr>) -> Result<(), KernelError> {
        self.inner.0.lock().announced.push(addresses.clone());
        Ok(())
    }

    fn links(&mut self) -> Result<BTreeMap<String, Link>, KernelError> {
        Ok(self.inner.0.lock().links.clone())
    }

    fn wait_for_change(&mut self, at_most: Duration) -> Result<bool, KernelError> {
        let deadline = Instant::now() + at_most;
        let mut inner = self.inner.0.lock();
        while !inner.has_changed {
            if self.inner.1.wait_until(&mut inner, deadline).timed_out() {
                break;
            }
        }
        Ok(std::mem::take(&mut inner.has_changed))
    }

    fn forget_flows(&mut self, mark: Mark, mask: u32) -> Result<(), KernelError> {
        self.inner.0.lock().forgotten.push((mark, mask));
        Ok(())
    }
}

impl Inner {
    fn change_tunnel(&mut self, change: Option<&TunnelChange>) -> Result<(), KernelError> {
        match change {
            None => {}
            Some(TunnelChange::Create(_)) if self.state.tunnel.is_some() => {
                return Err(refused("a link", Errno::EXIST));
            }
            Some(TunnelChange::Create(tunnel)) => self.create(tunnel)?,
            Some(TunnelChange::Recreate(tunnel)) => {
                self.state.delete_tunnel()?;
                self.create(tunnel)?;
            }
            Some(TunnelChange::Update(tunnel)) => match &mut self.state.tunnel {
                Some(actual) => *actual = tunnel.clone(),
                None => return Err(refused("a link", Errno::NODEV)),
            },
            Some(TunnelChange::Delete) => self.state.delete_tunnel()?,
        }
        if self.state.tunnel.as_ref().is_some_and(|tunnel| !tunnel.is_up) {
            self.state.network = self.state.network.without_tunnel();
        }
        Ok(())
    }

    fn create(&mut self, tunnel: &Tunnel) -> Result<(), KernelError> {
        if !self.links.contains_key(&tunnel.parent) {
            return Err(KernelError::NoLink { name: tunnel.parent.clone() });
        }
        self.state.tunnel = Some(tunnel.clone());
        Ok(())
    }
}

impl KernelState {
    fn delete_tunnel(&mut self) -> Result<(), KernelError> {
        if self.tunnel.take().is_none() {
            return Err(refused("a link", Errno::NODEV));
        }
        self.network = self.network.without_tunnel();
        Ok(())
    }

    /// All of it, or nothing.
    fn change_ruleset(&mut self, delta: &Delta) -> Result<(), KernelError> {
        let mut changed = (self.ruleset.clone(), self.elements.clone());
        match &delta.ruleset {
            Some(RulesetChange::Load(parameters)) => {
                changed = (Ruleset::Loaded(parameters.clone()), Elements::default());
            }
            Some(RulesetChange::Delete) => changed = Default::default(),
            None => {}
        }
        let (ruleset, elements) = &mut changed;
        let touched = !(delta.remove_elements.is_empty() && delta.add_elements.is_empty());
        if (touched && *ruleset == Ruleset::Absent) || !elements.remove(&delta.remove_elements) {
            return Err(refused("an element", Errno::NOENT));
        }
        elements.extend(delta.add_elements.clone());
        (self.ruleset, self.elements) = changed;
        Ok(())
    }
}

impl Network {
    /// What is gone already is no error.
    fn remove(&mut self, gone: &Self) {
        self.addresses.retain(|one| !gone.addresses.contains(one));
        self.rules.retain(|one| !gone.rules.contains(one));
        self.routes.retain(|key, _| !gone.routes.contains_key(key));
        self.neighbours.retain(|key, _| !gone.neighbours.contains_key(key));
        self.peers.retain(|key, _| !gone.peers.contains_key(key));
        self.proxies.retain(|one| !gone.proxies.contains(one));
    }
}

fn refused(what: &str, cause: Errno) -> KernelError {
    KernelError::Refused { what: what.to_owned(), cause }
}
