//! What else is asked of a resolver.

use std::collections::BTreeSet;

use super::keys::Node;
use super::{Resolver, Standing, Touched, standing};
use crate::mesh::control::types::{Kind, ObjectName};

impl Resolver {
    /// Pods whose proxies should hold something of a user's object.
    pub fn holders(&self, kind: Kind, name: &ObjectName) -> Box<dyn Iterator<Item = &ObjectName> + '_> {
        match kind {
            Kind::VirtualService | Kind::Rule => {
                let node =
                    if kind == Kind::Rule { Node::Rule(name.clone()) } else { Node::VirtualService(name.clone()) };
                let units = self.served.get(&node).into_iter().flat_map(|served| served.units.keys());
                let name = name.clone();
                let is_lost = move |pod: &ObjectName| {
                    kind == Kind::VirtualService
                        && self.seats.get(pod).is_some_and(|seat| seat.lost.contains_key(&name))
                };
                Box::new(units.filter(move |pod| !is_lost(pod)))
            }
            Kind::Target => Box::new(self.targets.get(name).into_iter().flat_map(|placed| &placed.pods)),
            Kind::Route => Box::new(self.needers.get(&Node::Route(name.clone())).into_iter().flatten()),
            Kind::Service => Box::new(std::iter::empty()),
        }
    }

    /// Whose an object is; none if it is not there.
    pub fn standing(&self, kind: Kind, name: &ObjectName) -> Option<Standing> {
        self.world.objects.get(&(kind, name.clone())).map(standing)
    }

    /// How many generated objects there should be.
    pub fn generated_count(&self) -> usize {
        self.users.len() + self.wrapped.len()
    }

    /// Everything there is to say and to generate; what is to be on proxies is asked for pod by pod.
    pub fn everything(&self) -> Touched {
        let objects: BTreeSet<(Kind, ObjectName)> = self.world.objects.keys().cloned().collect();
        let marked = self.world.objects.iter().filter(|(_, object)| standing(object) != Standing::User);
        let generated = marked.map(|(key, _)| key.clone()).chain(self.all_generated().into_keys()).collect();
        Touched { objects, generated, ..Touched::default() }
    }
}
