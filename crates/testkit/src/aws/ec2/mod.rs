//! EC2's Query API: the six actions that Portolan uses, with EC2's rules.

mod account;
mod call;
mod describe;
mod neighbour;
mod parameters;
mod response;
mod serve;
mod throttle;
mod views;
mod world;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::request::Parts;
use ipnet::Ipv4Net;
use jiff::SignedDuration;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::keys::{KeyRing, StaticKeys};
use super::server::Server;
use crate::faults::Phase;
use account::{Account, Kill};
pub use call::{Answered, Ec2Call, Ec2Fault};
pub use neighbour::{Neighbour, PrimaryInterface};
pub use throttle::Throttle;
use world::{Instance, Subnet};

/// A running EC2; ends when dropped.
pub struct FakeEc2 {
    server: Server,
    account: Arc<Mutex<Account>>,
    keys: KeyRing,
    own: StaticKeys,
}

/// An instance that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Its id.
    pub instance: String,
    /// Its interface with device index 0.
    pub interface: String,
    /// The primary address of that.
    pub primary: Ipv4Addr,
}

impl FakeEc2 {
    /// Starts an EC2 without anything in it.
    pub async fn start() -> anyhow::Result<Self> {
        let keys = KeyRing::default();
        let account = Arc::new(Mutex::new(Account::new()));
        let shared = (account.clone(), keys.clone());
        let handler = move |head: Parts, body: Bytes| {
            let (account, keys) = shared.clone();
            serve::answer(account, keys, head, body).boxed()
        };
        let own = keys.make();
        Ok(Self { server: Server::start(Arc::new(handler)).await?, account, keys, own })
    }

    /// Where it is.
    pub fn endpoint(&self) -> String {
        self.server.url()
    }

    /// The keys that it knows.
    pub fn keys(&self) -> &KeyRing {
        &self.keys
    }

    /// Keys that are valid for ever.
    pub fn own_keys(&self) -> &StaticKeys {
        &self.own
    }

    /// Adds a subnet and gives its id.
    pub fn add_subnet(&self, zone: &str, cidr: Ipv4Net) -> String {
        let mut account = self.account.lock();
        let id = account.world.id("subnet");
        account.world.subnets.insert(id.clone(), Subnet { zone: zone.to_owned(), cidr: cidr.trunc() });
        id
    }

    /// Starts instances in one reservation. They are pending until [`boot`](Self::boot).
    pub fn run(&self, subnet: &str, instance_type: &str, count: usize) -> Vec<Ran> {
        let mut account = self.account.lock();
        let reservation = account.world.id("r");
        let zone = account.world.subnets[subnet].zone.clone();
        let free = account.world.free(subnet);
        assert!(free.len() >= count, "the subnet has room for {} instances", free.len());
        let mut ran = Vec::new();
        for primary in free.into_iter().take(count) {
            let instance = account.world.id("i");
            let limit = world::limit(instance_type);
            let interface = account.world.new_interface(subnet, primary, Some(&instance), limit);
            let started = Instance {
                size: instance_type.to_owned(),
                state: "pending",
                reservation: reservation.clone(),
                zone: zone.clone(),
                subnet: subnet.to_owned(),
                interface: Some(interface.clone()),
                tags: BTreeSet::new(),
            };
            account.world.instances.insert(instance.clone(), started);
            account.changed(&BTreeSet::from([interface.clone()]));
            ran.push(Ran { instance, interface, primary });
        }
        ran
    }

    /// A pending or stopped instance runs.
    pub fn boot(&self, instance: &str) {
        self.set_state(instance, "running");
    }

    /// Stops an instance. It keeps its interface and addresses.
    pub fn stop(&self, instance: &str) {
        self.set_state(instance, "stopped");
    }

    /// Terminates an instance, with its interface. Its addresses are free.
    pub fn terminate(&self, instance: &str) {
        let mut account = self.account.lock();
        if let Some(interface) = account.world.terminate(instance) {
            account.changed(&BTreeSet::from([interface]));
        }
    }

    /// Forgets an instance, as EC2 does an hour after its end.
    pub fn forget(&self, instance: &str) {
        self.terminate(instance);
        self.account.lock().world.instances.remove(instance);
    }

    /// Tags an instance. The tag `two-interfaces` shows a second interface, before the first.
    pub fn tag_instance(&self, instance: &str, tag: &str) {
        let mut account = self.account.lock();
        account.world.instances.get_mut(instance).expect("the instance exists").tags.insert(tag.to_owned());
    }

    /// Tags an interface.
    pub fn tag_interface(&self, interface: &str, tag: &str) {
        let mut account = self.account.lock();
        account.world.interfaces.get_mut(interface).expect("the interface exists").tags.insert(tag.to_owned());
    }

    /// Delegates a prefix to an interface.
    pub fn delegate_prefix(&self, interface: &str, prefix: Ipv4Net) {
        let mut account = self.account.lock();
        account.world.interfaces.get_mut(interface).expect("the interface exists").prefixes.push(prefix);
        account.changed(&BTreeSet::from([interface.to_owned()]));
    }

    /// Binds a public address to a private one of an interface.
    pub fn associate(&self, public: Ipv4Addr, interface: &str, private: Ipv4Addr) {
        self.account.lock().world.elastic.insert(public, (interface.to_owned(), private));
    }

    /// The interface and private address that a public address belongs to.
    pub fn elastic(&self, public: Ipv4Addr) -> Option<(String, Ipv4Addr)> {
        self.account.lock().world.elastic.get(&public).cloned()
    }

    /// A stranger, such as a load balancer, makes an interface with this address.
    pub fn stranger_takes(&self, subnet: &str, address: Ipv4Addr) -> String {
        let mut account = self.account.lock();
        assert!(account.world.holder(subnet, address).is_none(), "{address} is in use");
        account.stranger(subnet, address)
    }

    /// A stranger deletes its interface.
    pub fn stranger_leaves(&self, interface: &str) {
        let mut account = self.account.lock();
        account.world.interfaces.remove(interface);
        account.changed(&BTreeSet::from([interface.to_owned()]));
    }

    /// Somebody else, such as another CNI, puts addresses on an interface of ours.
    pub fn others_assign(&self, interface: &str, addresses: &[Ipv4Addr]) {
        let mut account = self.account.lock();
        let wish = world::Wish::Addresses(addresses.to_vec());
        let assigned = account.world.assign(interface, wish, false);
        let assigned = assigned.unwrap_or_else(|refusal| unreachable!("the test asks for what cannot be: {refusal:?}"));
        account.changed(&assigned.changed);
    }

    /// Another program that works on this account.
    pub fn neighbour(&self) -> Neighbour {
        Neighbour { account: self.account.clone() }
    }

    /// How likely strangers take or free an address after each call.
    pub fn set_strangers(&self, probability: f64) {
        self.account.lock().strangers = probability;
    }

    /// Interfaces of strangers.
    pub fn strangers(&self) -> Vec<String> {
        self.account.lock().strange_interfaces()
    }

    /// Reads lag behind writes by a random part of this time, each interface by its own.
    pub fn set_lag(&self, lag: Duration) {
        self.account.lock().views.set_lag(lag);
    }

    /// Reads show all writes so far.
    pub fn settle(&self) {
        self.account.lock().views.settle();
    }

    /// How long each call takes.
    pub fn set_latency(&self, latency: Duration) {
        self.account.lock().latency = latency;
    }

    /// By how much the clock of EC2 is ahead of this machine's.
    pub fn set_clock_ahead(&self, ahead: SignedDuration) {
        self.account.lock().clock_ahead = ahead;
    }

    /// Rates per action; all buckets are full again.
    pub fn set_throttle(&self, reads: Throttle, writes: Throttle) {
        self.account.lock().buckets.set(reads, writes);
    }

    /// Whether an action is denied.
    pub fn deny(&self, action: &str, denied: bool) {
        set(&mut self.account.lock().policy.denied, action, denied);
    }

    /// Writes are allowed for interfaces with this tag only.
    pub fn require_tag(&self, tag: Option<&str>) {
        self.account.lock().policy.tag = tag.map(str::to_owned);
    }

    /// Writes are allowed for interfaces in these subnets only.
    pub fn require_subnets(&self, subnets: Option<&[&str]>) {
        let subnets = subnets.map(|subnets| subnets.iter().map(|subnet| (*subnet).to_owned()).collect());
        self.account.lock().policy.subnets = subnets;
    }

    /// The next call of an action goes wrong like this; several are used up one after the other.
    pub fn fault(&self, action: &str, fault: Ec2Fault) {
        self.account.lock().faults.entry(action.to_owned()).or_default().push_back(fault);
    }

    /// Whether calls without ids that concern a zone fail.
    pub fn disrupt_zone(&self, zone: &str, disrupted: bool) {
        set(&mut self.account.lock().disrupted.sweeps, zone, disrupted);
    }

    /// Whether all calls for instances of a zone fail.
    pub fn black_out_zone(&self, zone: &str, blacked_out: bool) {
        set(&mut self.account.lock().disrupted.wholly, zone, blacked_out);
    }

    /// At the n-th write from now on, the caller is killed, and gets no answer after that phase until
    /// [`revive`](Self::revive).
    pub fn kill_at_write(&self, number: u32, phase: Phase) -> oneshot::Receiver<()> {
        let (killed, receiver) = oneshot::channel();
        let mut account = self.account.lock();
        let at_write = account.writes + number;
        account.kill = Some(Kill { at_write, phase, killed: Some(killed) });
        receiver
    }

    /// Calls are answered again.
    pub fn revive(&self) {
        let mut account = self.account.lock();
        account.is_dead = false;
        account.kill = None;
    }

    /// Calls so far.
    pub fn calls(&self) -> Vec<Ec2Call> {
        self.account.lock().calls.clone()
    }

    /// Forgets calls so far.
    pub fn clear_calls(&self) {
        self.account.lock().calls.clear();
    }

    /// Secondary addresses of an interface, as they are in truth.
    pub fn secondary(&self, interface: &str) -> BTreeSet<Ipv4Addr> {
        let account = self.account.lock();
        account.world.interfaces.get(interface).map(|interface| interface.secondary.clone()).unwrap_or_default()
    }

    /// The interface that has an address in truth.
    pub fn holder(&self, subnet: &str, address: Ipv4Addr) -> Option<String> {
        self.account.lock().world.holder(subnet, address).map(|holder| holder.id.clone())
    }

    /// Rules broken after any call, or now; empty if all held.
    pub fn violations(&self) -> Vec<String> {
        let account = self.account.lock();
        let all = account.world.interfaces.keys().cloned().collect();
        let mut broken = account.violations.clone();
        broken.extend(account.world.violations(&all));
        broken
    }

    fn set_state(&self, instance: &str, state: &'static str) {
        let mut account = self.account.lock();
        account.world.instances.get_mut(instance).expect("the instance exists").state = state;
    }
}

fn set(members: &mut BTreeSet<String>, name: &str, is_member: bool) {
    if is_member {
        members.insert(name.to_owned());
    } else {
        members.remove(name);
    }
}
