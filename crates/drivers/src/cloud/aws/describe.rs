//! Reads instances, subnets and interfaces.
//!
//! A few instances are asked for by id. One id that does not exist fails such a call, so it is made again by filter,
//! which leaves out what does not exist. Many are found by a sweep over all that are not terminated; while a zone is
//! disrupted EC2 may fail calls that name no ids, so a sweep that fails is made zone by zone, and what a zone does not
//! answer for is asked for by id.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use portolan_core::ipam::{CloudError, CloudNode, CloudSubnet, InstanceId, InterfaceId, SubnetId, Zone};
use roxmltree::Node;

use super::client::{Action, Parameters, numbered};
use super::ec2::AwsCloud;
use super::error::{Failure, Meaning};
use super::instances::{
    ReadInstance, SeenInterface, SeenSubnet, next_page, read_instances, read_interface, read_subnet, read_type,
};
use super::limiter::Priority;
use super::xml;
use crate::cloud::NodeReport;
use crate::cloud::limits::address_limit;

impl AwsCloud {
    pub(super) async fn describe_nodes(&self, instances: &[InstanceId]) -> Result<NodeReport, CloudError> {
        let wanted: BTreeSet<InstanceId> = instances.iter().cloned().collect();
        let mut found = Found::default();
        if wanted.len() > MOST_IDS {
            self.sweep(&wanted, &mut found).await?;
        }
        // Those that a sweep did not show are terminated, or lack the tag.
        let missing: Vec<InstanceId> = wanted.iter().filter(|id| !found.has(id)).cloned().collect();
        for batch in missing.chunks(MOST_IDS) {
            match self.instances_by_id(batch).await {
                Ok(read) => found.add(read, &wanted),
                Err(_) if found.is_partial => found.unanswered.extend(batch.iter().cloned()),
                Err(failure) => return Err(failure.into_cloud(Action::DescribeInstances.name())),
            }
        }
        self.memory.zones.lock().retain(|id, _| wanted.contains(id) || !found.is_complete);
        for node in found.nodes.values() {
            self.memory.zones.lock().insert(node.instance.clone(), node.zone.clone());
        }
        self.fill_limits(&mut found.nodes).await;
        let Found { nodes, unanswered, .. } = found;
        Ok(NodeReport { nodes: nodes.into_values().collect(), unanswered })
    }

    /// All instances that are not terminated, at once or zone by zone.
    async fn sweep(&self, wanted: &BTreeSet<InstanceId>, found: &mut Found) -> Result<(), CloudError> {
        let failure = match self.instances_by_filter(&self.sweep_filters(None)).await {
            Ok(read) => {
                found.add(read, wanted);
                found.is_complete = true;
                return Ok(());
            }
            Err(failure) => failure,
        };
        let zones: BTreeSet<Zone> = self.memory.zones.lock().values().cloned().collect();
        if failure.meaning() != Meaning::Transient || zones.is_empty() {
            return Err(failure.into_cloud(Action::DescribeInstances.name()));
        }
        found.is_partial = true;
        for zone in zones {
            if let Ok(read) = self.instances_by_filter(&self.sweep_filters(Some(&zone))).await {
                found.add(read, wanted);
            }
        }
        Ok(())
    }

    fn sweep_filters(&self, zone: Option<&Zone>) -> Parameters {
        let states = ["pending", "running", "shutting-down", "stopping", "stopped"];
        let mut filters = vec![("instance-state-name", states.map(str::to_owned).to_vec())];
        if let Some(tag) = &self.options.tag {
            filters.push(("tag-key", vec![tag.clone()]));
        }
        if let Some(zone) = zone {
            filters.push(("availability-zone", vec![zone.to_string()]));
        }
        self::filters(&filters)
    }

    async fn instances_by_id(&self, ids: &[InstanceId]) -> Result<Vec<ReadInstance>, Failure> {
        let answer = self.client.call(Action::DescribeInstances, &numbered("InstanceId", ids), Priority::Verify).await;
        match answer {
            Ok(body) => xml::read(&body, read_instances),
            Err(failure) if failure.meaning() == Meaning::NoSuchInstance => {
                let ids = ids.iter().map(ToString::to_string).collect();
                self.instances_by_filter(&filters(&[("instance-id", ids)])).await
            }
            Err(failure) => Err(failure),
        }
    }

    async fn instances_by_filter(&self, filters: &Parameters) -> Result<Vec<ReadInstance>, Failure> {
        self.pages(Action::DescribeInstances, filters, Priority::Verify, |root, all: &mut Vec<ReadInstance>| {
            all.extend(read_instances(root));
            Paging::Continue
        })
        .await
    }

    /// Asks for the limits of types that are not known yet. Those that EC2 does not return are in our table.
    async fn fill_limits(&self, nodes: &mut BTreeMap<InstanceId, CloudNode>) {
        let types: BTreeSet<Arc<str>> = nodes.values().map(|node| node.instance_type.clone()).collect();
        let unknown: Vec<Arc<str>> = {
            let limits = self.memory.limits.lock();
            types.into_iter().filter(|name| !limits.contains_key(name)).collect()
        };
        for batch in unknown.chunks(MOST_IDS) {
            let parameters = numbered("InstanceType", batch);
            let answer = self.client.call(Action::DescribeInstanceTypes, &parameters, Priority::Verify).await;
            let read = answer.and_then(|body| {
                xml::read(&body, |root| {
                    xml::items(root, &["instanceTypeSet"]).filter_map(read_type).collect::<Vec<_>>()
                })
            });
            let mut limits = self.memory.limits.lock();
            match read {
                Ok(read) => limits.extend(read),
                // A later request would not return it either.
                Err(failure) if matches!(failure.meaning(), Meaning::Denied | Meaning::Unclear) => {
                    limits.extend(batch.iter().map(|name| (name.clone(), address_limit(name))));
                }
                Err(_) => {}
            }
        }
        let limits = self.memory.limits.lock();
        for node in nodes.values_mut() {
            let known = limits.get(&node.instance_type).copied();
            node.address_limit = known.unwrap_or_else(|| address_limit(&node.instance_type));
        }
    }

    pub(super) async fn describe_subnets(&self, subnets: &[SubnetId]) -> Result<Vec<CloudSubnet>, CloudError> {
        let mut described = Vec::new();
        for batch in subnets.chunks(MOST_IDS) {
            let seen = self.read_subnets(batch, Priority::Verify).await?;
            let ids: Vec<String> = seen.iter().map(|subnet| subnet.id.to_string()).collect();
            let mut used: BTreeMap<SubnetId, BTreeSet<Ipv4Addr>> = BTreeMap::new();
            if !ids.is_empty() {
                let filters = filters(&[("subnet-id", ids)]);
                for interface in self.interfaces(&filters, Priority::Verify, |_| false).await? {
                    used.entry(interface.subnet.clone()).or_default().extend(interface.addresses());
                }
            }
            described.extend(seen.into_iter().map(|SeenSubnet { id, zone, cidr, .. }| {
                let used = used.remove(&id).unwrap_or_default();
                CloudSubnet { id, zone, cidr, used }
            }));
        }
        Ok(described)
    }

    /// Subnets by id, or by filter when one of them does not exist.
    pub(super) async fn read_subnets(
        &self,
        ids: &[SubnetId],
        priority: Priority,
    ) -> Result<Vec<SeenSubnet>, CloudError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let action = Action::DescribeSubnets;
        let mut answer = self.client.call(action, &numbered("SubnetId", ids), priority).await;
        if answer.as_ref().is_err_and(|failure| failure.meaning() == Meaning::NoSuchSubnet) {
            let filters = filters(&[("subnet-id", ids.iter().map(ToString::to_string).collect())]);
            answer = self.client.call(action, &filters, priority).await;
        }
        let read = answer.and_then(|body| {
            xml::read(&body, |root| xml::items(root, &["subnetSet"]).filter_map(read_subnet).collect())
        });
        read.map_err(|failure| failure.into_cloud(action.name()))
    }

    pub(super) async fn find_holder(
        &self,
        address: Ipv4Addr,
        subnet: &SubnetId,
        priority: Priority,
    ) -> Result<Option<InterfaceId>, CloudError> {
        let filters = filters(&[("subnet-id", vec![subnet.to_string()])]);
        let seen = self.interfaces(&filters, priority, |seen| seen.has(address)).await?;
        Ok(seen.into_iter().find(|seen| seen.has(address)).map(|seen| seen.interface.id))
    }

    /// One interface; none if it does not exist.
    pub(super) async fn read_one_interface(
        &self,
        id: &InterfaceId,
        priority: Priority,
    ) -> Result<Option<SeenInterface>, CloudError> {
        let action = Action::DescribeNetworkInterfaces;
        let answer = self.client.call(action, &numbered("NetworkInterfaceId", [id]), priority).await;
        let read = answer.and_then(|body| {
            xml::read(&body, |root| xml::items(root, &["networkInterfaceSet"]).find_map(read_interface))
        });
        match read {
            Ok(seen) => Ok(seen),
            Err(failure) if failure.meaning() == Meaning::NoSuchInterface => Ok(None),
            Err(failure) => Err(failure.into_cloud(action.name())),
        }
    }

    /// Interfaces that match the filters, until one satisfies the condition.
    async fn interfaces(
        &self,
        filters: &Parameters,
        priority: Priority,
        is_last: impl Fn(&SeenInterface) -> bool + Send + Sync,
    ) -> Result<Vec<SeenInterface>, CloudError> {
        let action = Action::DescribeNetworkInterfaces;
        let read = self.pages(action, filters, priority, |root, all: &mut Vec<SeenInterface>| {
            let page: Vec<_> = xml::items(root, &["networkInterfaceSet"]).filter_map(read_interface).collect();
            let paging = if page.iter().any(&is_last) { Paging::Stop } else { Paging::Continue };
            all.extend(page);
            paging
        });
        read.await.map_err(|failure| failure.into_cloud(action.name()))
    }

    /// All pages of an answer.
    async fn pages<T: Default + Send>(
        &self,
        action: Action,
        filters: &Parameters,
        priority: Priority,
        read: impl Fn(Node<'_, '_>, &mut T) -> Paging + Send,
    ) -> Result<T, Failure> {
        let (mut all, mut token): (T, Option<String>) = Default::default();
        loop {
            let mut parameters = filters.clone();
            parameters.push(("MaxResults".to_owned(), self.options.page_size.to_string()));
            parameters.extend(token.take().map(|token| ("NextToken".to_owned(), token)));
            let body = self.client.call(action, &parameters, priority).await?;
            let (paging, next) = xml::read(&body, |root| (read(root, &mut all), next_page(root)))?;
            token = next;
            if token.is_none() || paging == Paging::Stop {
                return Ok(all);
            }
        }
    }
}

#[derive(PartialEq, Eq)]
enum Paging {
    Continue,
    Stop,
}

/// What was found of the instances asked for.
#[derive(Default)]
struct Found {
    nodes: BTreeMap<InstanceId, CloudNode>,
    unanswered: BTreeSet<InstanceId>,
    /// A sweep over everything succeeded.
    is_complete: bool,
    /// A sweep failed, so it was made zone by zone.
    is_partial: bool,
}

impl Found {
    fn add(&mut self, read: Vec<ReadInstance>, wanted: &BTreeSet<InstanceId>) {
        for instance in read {
            match instance {
                Ok(node) if wanted.contains(&node.instance) => drop(self.nodes.insert(node.instance.clone(), node)),
                Err(id) if wanted.contains(&id) => drop(self.unanswered.insert(id)),
                Ok(_) | Err(_) => {}
            }
        }
    }

    fn has(&self, id: &InstanceId) -> bool {
        self.nodes.contains_key(id) || self.unanswered.contains(id)
    }
}

fn filters(filters: &[(&str, Vec<String>)]) -> Parameters {
    let mut parameters = Parameters::new();
    for (number, (name, values)) in (1..).zip(filters) {
        parameters.push((format!("Filter.{number}.Name"), (*name).to_owned()));
        parameters.extend(numbered(&format!("Filter.{number}.Value"), values));
    }
    parameters
}

/// Ids in one call.
const MOST_IDS: usize = 100;
