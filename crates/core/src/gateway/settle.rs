//! What would become of a world if everything that is planned were written.

use std::collections::BTreeMap;

use super::plan::{FinalizerChange, NamespaceChange, Plan, plan};
use super::types::{Account, Egw, LoadBalancer, Namespace, World};

/// A plan takes a few steps: a number is reserved before it is carried, and an address claimed. This is more than any needs.
const STEPS: usize = 16;

/// Writes plans into the world until they ask for nothing more, as the API server and the operator would.
pub fn settle(mut world: World) -> (World, Plan) {
    let mut last = plan(&world);
    for _ in 0..STEPS {
        write(&mut world, &last);
        let next = plan(&world);
        if next == last {
            break;
        }
        last = next;
    }
    (world, last)
}

fn write(world: &mut World, plan: &Plan) {
    world.egw = Some(Egw { accounts: plan.egw.accounts.clone(), tunnels: plan.egw.tunnels.clone() });
    world.claims.clone_from(&plan.claims);
    for (name, change) in &plan.namespaces {
        match change {
            NamespaceChange::Create => {
                world.namespaces.insert(name.clone(), Namespace { is_ours: true, is_terminating: false });
            }
            NamespaceChange::Delete => drop(world.namespaces.remove(name)),
        }
    }
    each(&mut world.accounts, &plan.accounts, |account: &mut Account, planned| {
        account.key = planned.key.or(account.key);
        account.services = planned.services.clone();
        account.identity.has_finalizer |= planned.finalizer == FinalizerChange::Add;
    });
    each(&mut world.load_balancers, &plan.load_balancers, |object: &mut LoadBalancer, planned| {
        object.tunnels.clone_from(&planned.tunnels);
        if let Some(completion) = planned.completion {
            object.key = Some(completion.key);
            object.address = completion.address.or(object.address);
            object.identity.has_finalizer = true;
        }
    });
}

fn each<K: Ord, V, P>(objects: &mut BTreeMap<K, V>, plans: &BTreeMap<K, P>, write: impl Fn(&mut V, &P)) {
    for (name, planned) in plans {
        if let Some(object) = objects.get_mut(name) {
            write(object, planned);
        }
    }
}
