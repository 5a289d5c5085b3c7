//! An account: its world, what is allowed in it, and what was called.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant, SystemTime};

use jiff::SignedDuration;
use tokio::sync::oneshot;

use super::call::{Answered, Ec2Call, Ec2Fault};
use super::describe;
use super::describe::Disrupted;
use super::parameters::Parameters;
use super::response::{Refusal, refused, wrap};
use super::throttle::Buckets;
use super::views::Views;
use super::world::{Wish, World};
use crate::faults::Phase;

pub(super) struct Account {
    pub(super) world: World,
    pub(super) views: Views,
    pub(super) buckets: Buckets,
    pub(super) policy: Policy,
    pub(super) random: fastrand::Rng,
    pub(super) faults: BTreeMap<String, VecDeque<Ec2Fault>>,
    pub(super) kill: Option<Kill>,
    pub(super) is_dead: bool,
    pub(super) writes: u32,
    pub(super) latency: Duration,
    pub(super) clock_ahead: SignedDuration,
    pub(super) disrupted: Disrupted,
    /// How likely a stranger takes or frees an address after a call.
    pub(super) strangers: f64,
    pub(super) calls: Vec<Ec2Call>,
    pub(super) violations: Vec<String>,
}

/// What calls are allowed.
#[derive(Default)]
pub(super) struct Policy {
    pub(super) denied: BTreeSet<String>,
    /// Writes are for interfaces with this tag only.
    pub(super) tag: Option<String>,
    /// Writes are for interfaces in these subnets only.
    pub(super) subnets: Option<BTreeSet<String>>,
}

/// The replica that calls is killed at a write.
pub(super) struct Kill {
    pub(super) at_write: u32,
    pub(super) phase: Phase,
    pub(super) killed: Option<oneshot::Sender<()>>,
}

impl Account {
    pub(super) fn new() -> Self {
        Self {
            world: World::default(),
            views: Views::default(),
            buckets: Buckets::default(),
            policy: Policy::default(),
            random: fastrand::Rng::with_seed(7),
            faults: BTreeMap::new(),
            kill: None,
            is_dead: false,
            writes: 0,
            latency: Duration::ZERO,
            clock_ahead: SignedDuration::ZERO,
            disrupted: Disrupted::default(),
            strangers: 0.0,
            calls: Vec::new(),
            violations: Vec::new(),
        }
    }

    pub(super) fn now(&self) -> SystemTime {
        let ahead = self.clock_ahead.unsigned_abs();
        let now = SystemTime::now();
        if self.clock_ahead.is_negative() { now - ahead } else { now + ahead }
    }

    /// Shows reads the state of these interfaces, sooner or later, and checks the rules.
    pub(super) fn changed(&mut self, interfaces: &BTreeSet<String>) {
        for id in interfaces {
            self.views.publish(id, self.world.interfaces.get(id).cloned(), &mut self.random);
        }
        let broken = self.world.violations(interfaces);
        self.violations.extend(broken);
    }

    pub(super) fn log(&mut self, parameters: &Parameters, answered: Answered) {
        let action = parameters.get("Action").unwrap_or_default().to_owned();
        self.calls.push(Ec2Call { action, parameters: parameters.pairs(), answered, at: Instant::now() });
    }

    pub(super) fn execute(&mut self, parameters: &Parameters) -> Result<String, Refusal> {
        let action = parameters.needed("Action")?;
        if parameters.get("Version") != Some("2016-11-15") {
            return refused(400, "NoSuchVersion", "The requested version is not supported");
        }
        if !self.buckets.take(action) {
            return refused(503, "RequestLimitExceeded", "Request limit exceeded.");
        }
        let is_read = action.starts_with("Describe");
        let is_allowed = self.is_allowed(action, parameters.get("NetworkInterfaceId").filter(|_| !is_read));
        if !is_allowed {
            return refused(403, "UnauthorizedOperation", "You are not authorized to perform this operation.");
        }
        if is_read && parameters.get("DryRun") == Some("true") {
            let message = "Request would have succeeded, but DryRun flag is set.";
            return refused(412, "DryRunOperation", message);
        }
        match action {
            "DescribeInstances" => describe::instances(&self.world, &self.views.seen(), &self.disrupted, parameters),
            "DescribeNetworkInterfaces" => describe::interfaces(&self.world, &self.views.seen(), parameters),
            "DescribeSubnets" => describe::subnets(&self.world, parameters),
            "DescribeInstanceTypes" => describe::types(parameters),
            "AssignPrivateIpAddresses" => self.assign(parameters),
            "UnassignPrivateIpAddresses" => self.unassign(parameters),
            _ => refused(400, "InvalidAction", format!("The action {action} is not valid for this web service.")),
        }
    }

    fn is_allowed(&self, action: &str, interface: Option<&str>) -> bool {
        let Policy { denied, tag, subnets } = &self.policy;
        let interface = interface.and_then(|id| self.world.interfaces.get(id));
        !denied.contains(action)
            && interface.is_none_or(|interface| {
                tag.as_ref().is_none_or(|tag| interface.tags.contains(tag))
                    && subnets.as_ref().is_none_or(|subnets| subnets.contains(&interface.subnet))
            })
    }

    fn assign(&mut self, parameters: &Parameters) -> Result<String, Refusal> {
        parameters.check_names(&[
            "NetworkInterfaceId",
            "PrivateIpAddress",
            "SecondaryPrivateIpAddressCount",
            "AllowReassignment",
        ])?;
        let (id, addresses) = (parameters.needed("NetworkInterfaceId")?.to_owned(), parameters.addresses()?);
        let count = parameters.get("SecondaryPrivateIpAddressCount");
        let wish = match (count, addresses.is_empty()) {
            (None, false) => Wish::Addresses(addresses),
            (Some(count), true) => match count.parse() {
                Ok(count) => Wish::Count(count),
                Err(_) => return refused(400, "InvalidParameterValue", "the count is not a number"),
            },
            (Some(_), false) => {
                let message = "privateIpAddresses and secondaryPrivateIpAddressCount exclude each other";
                return refused(400, "InvalidParameterCombination", message);
            }
            (None, true) => return refused(400, "MissingParameter", "Either addresses or a count is needed"),
        };
        let assigned = self.world.assign(&id, wish, parameters.get("AllowReassignment") == Some("true"))?;
        self.changed(&assigned.changed);
        let fresh = assigned.fresh.iter();
        let items: Vec<String> =
            fresh.map(|address| format!("<item><privateIpAddress>{address}</privateIpAddress></item>")).collect();
        let items = items.concat();
        Ok(wrap(
            "AssignPrivateIpAddresses",
            &format!(
                "<networkInterfaceId>{id}</networkInterfaceId>\
                 <assignedPrivateIpAddressesSet>{items}</assignedPrivateIpAddressesSet>"
            ),
        ))
    }

    fn unassign(&mut self, parameters: &Parameters) -> Result<String, Refusal> {
        parameters.check_names(&["NetworkInterfaceId", "PrivateIpAddress"])?;
        let (id, addresses) = (parameters.needed("NetworkInterfaceId")?.to_owned(), parameters.addresses()?);
        parameters.needed("PrivateIpAddress.1")?;
        self.world.unassign(&id, &addresses)?;
        self.changed(&BTreeSet::from([id]));
        Ok(wrap("UnassignPrivateIpAddresses", "<return>true</return>"))
    }

    /// A stranger takes an address, or frees one.
    pub(super) fn strangers_act(&mut self) {
        if self.strangers == 0.0 || self.random.f64() >= self.strangers {
            return;
        }
        let theirs: Vec<String> = self.strange_interfaces();
        if !theirs.is_empty() && self.random.bool() {
            let id = theirs[self.random.usize(..theirs.len())].clone();
            self.world.interfaces.remove(&id);
            self.changed(&BTreeSet::from([id]));
            return;
        }
        let subnets: Vec<String> = self.world.subnets.keys().cloned().collect();
        if subnets.is_empty() {
            return;
        }
        let subnet = &subnets[self.random.usize(..subnets.len())];
        let free = self.world.free(subnet);
        if !free.is_empty() {
            let address = free[self.random.usize(..free.len())];
            self.stranger(subnet, address);
        }
    }

    pub(super) fn stranger(&mut self, subnet: &str, address: Ipv4Addr) -> String {
        let id = self.world.new_interface(subnet, address, None, 50);
        self.changed(&BTreeSet::from([id.clone()]));
        id
    }

    pub(super) fn strange_interfaces(&self) -> Vec<String> {
        let strange = self.world.interfaces.values().filter(|interface| interface.instance.is_none());
        strange.map(|interface| interface.id.clone()).collect()
    }
}
