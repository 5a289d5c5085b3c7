//! How often the listeners of each load balancer changed, for `status.proxy-snapshot-versions` of its group.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan_core::gateway::ports::PortNumber;
use portolan_core::gateway::{ObjectName, Plan, World};

use super::model::Model;
use super::validate::key_of;

/// What was counted in this term. What an earlier one counted stands in the groups' status.
#[derive(Default)]
pub(super) struct Versions(BTreeMap<ObjectName, Counted>);

#[derive(Clone, PartialEq, Eq)]
struct Counted {
    address: std::net::IpAddr,
    ports: Vec<PortNumber>,
    version: i64,
}

impl Versions {
    /// Counts what differs from the plan before.
    pub(super) fn follow(&mut self, model: &Model, plan: &Plan) {
        let World { load_balancers, .. } = &model.world;
        self.0.retain(|name, _| load_balancers.contains_key(name));
        let served = plan.load_balancers.iter().filter(|(_, planned)| planned.unit.is_some());
        for (name, _) in served {
            let Some(object) = load_balancers.get(name) else { continue };
            let Some(address) = object.address else { continue };
            let ports: Vec<PortNumber> = object.ports.iter().map(|port| port.number).collect();
            match self.0.get_mut(name) {
                Some(counted) if counted.address == address && counted.ports == ports => {}
                Some(counted) => *counted = Counted { address, ports, version: counted.version + 1 },
                None => {
                    let version = recorded(model, name, &object.group).unwrap_or(1);
                    self.0.insert(name.clone(), Counted { address, ports, version });
                }
            }
        }
    }

    /// The versions of a group's load balancers.
    pub(super) fn of(&self, model: &Model, group: &ObjectName) -> BTreeMap<String, i64> {
        let first = ObjectName { namespace: Arc::clone(&group.namespace), name: "".into() };
        let in_namespace = self.0.range(first..).take_while(|(name, _)| name.namespace == group.namespace);
        let of_group = in_namespace
            .filter(|(name, _)| model.world.load_balancers.get(name).is_some_and(|object| object.group == group.name));
        of_group.map(|(name, counted)| (name.name.to_string(), counted.version)).collect()
    }
}

fn recorded(model: &Model, name: &ObjectName, group: &Arc<str>) -> Option<i64> {
    let group = ObjectName { namespace: Arc::clone(&name.namespace), name: Arc::clone(group) };
    let status = model.groups.get(&key_of(&group))?.status.as_ref()?;
    status.proxy_snapshot_versions.get(&*name.name).copied()
}
