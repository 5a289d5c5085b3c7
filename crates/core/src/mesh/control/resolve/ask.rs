//! What else is asked of a resolver.

use std::collections::BTreeSet;

use super::keys::Node;
use super::{Affected, ObjectOrigin, Resolver, standing};
use crate::mesh::control::types::{MeshKind, ObjectName};

impl Resolver {
    /// Pods whose proxies should hold something of a user's object.
    pub fn proxy_pods(&self, kind: MeshKind, name: &ObjectName) -> Box<dyn Iterator<Item = &ObjectName> + '_> {
        match kind {
            MeshKind::VirtualService | MeshKind::Rule => {
                let node =
                    if kind == MeshKind::Rule { Node::Rule(name.clone()) } else { Node::VirtualService(name.clone()) };
                let units = self.served.get(&node).into_iter().flat_map(|served| served.units.keys());
                let name = name.clone();
                let is_lost = move |pod: &ObjectName| {
                    kind == MeshKind::VirtualService
                        && self.seats.get(pod).is_some_and(|seat| seat.lost.contains_key(&name))
                };
                Box::new(units.filter(move |pod| !is_lost(pod)))
            }
            MeshKind::Target => Box::new(self.targets.get(name).into_iter().flat_map(|placed| &placed.pods)),
            MeshKind::Route => Box::new(self.needers.get(&Node::Route(name.clone())).into_iter().flatten()),
            MeshKind::Service => Box::new(std::iter::empty()),
        }
    }

    /// Whose an object is; none if it is not there.
    pub fn origin(&self, kind: MeshKind, name: &ObjectName) -> Option<ObjectOrigin> {
        self.world.objects.get(&(kind, name.clone())).map(standing)
    }

    /// How many generated objects there should be.
    pub fn generated_count(&self) -> usize {
        self.users.len() + self.wrapped.len()
    }

    /// Everything there is to say and to generate; what is to be on proxies is asked for pod by pod.
    pub fn all_affected(&self) -> Affected {
        let objects: BTreeSet<(MeshKind, ObjectName)> = self.world.objects.keys().cloned().collect();
        let marked = self.world.objects.iter().filter(|(_, object)| standing(object) != ObjectOrigin::User);
        let generated = marked.map(|(key, _)| key.clone()).chain(self.all_generated().into_keys()).collect();
        Affected { objects, generated, ..Affected::default() }
    }
}
