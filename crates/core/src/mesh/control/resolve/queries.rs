//! Queries.

use std::collections::BTreeSet;

use super::dependencies::GraphNode;
use super::state::{Affected, Resolver};
use super::{ObjectOrigin, origin};
use crate::mesh::control::types::{MeshKind, ObjectName};

impl Resolver {
    /// Pods whose proxies should hold a part of a user's object.
    pub fn proxy_pods(&self, kind: MeshKind, name: &ObjectName) -> Box<dyn Iterator<Item = &ObjectName> + '_> {
        match kind {
            MeshKind::VirtualService | MeshKind::Rule => {
                let node = if kind == MeshKind::Rule {
                    GraphNode::Rule(name.clone())
                } else {
                    GraphNode::VirtualService(name.clone())
                };
                let units = self.served.get(&node).into_iter().flat_map(|served| served.units.keys());
                let name = name.clone();
                let has_conflict = move |pod: &ObjectName| {
                    kind == MeshKind::VirtualService
                        && self
                            .assignments
                            .get(pod)
                            .is_some_and(|assignment| assignment.port_conflicts.contains_key(&name))
                };
                Box::new(units.filter(move |pod| !has_conflict(pod)))
            }
            MeshKind::Target => Box::new(self.targets.get(name).into_iter().flat_map(|placed| &placed.pods)),
            MeshKind::Route => Box::new(self.pods_needing.get(&GraphNode::Route(name.clone())).into_iter().flatten()),
            MeshKind::Service => Box::new(std::iter::empty()),
        }
    }

    /// Who wrote an object; none if it does not exist.
    pub fn origin(&self, kind: MeshKind, name: &ObjectName) -> Option<ObjectOrigin> {
        self.world.objects.get(&(kind, name.clone())).map(origin)
    }

    /// The number of generated objects that should exist.
    pub fn generated_count(&self) -> usize {
        self.generated_users.len() + self.wrapped_services.len()
    }

    /// All objects and generated objects; the configuration of proxies is read pod by pod.
    pub fn all_affected(&self) -> Affected {
        let objects: BTreeSet<(MeshKind, ObjectName)> = self.world.objects.keys().cloned().collect();
        let marked = self.world.objects.iter().filter(|(_, object)| origin(object) != ObjectOrigin::User);
        let generated = marked.map(|(key, _)| key.clone()).chain(self.all_generated().into_keys()).collect();
        Affected { objects, generated, ..Affected::default() }
    }
}
