//! What holds for every world.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::worlds::{changes, remotes, settle, worlds};
use crate::mirror::*;

type Law = fn(&World, &Plan) -> bool;

const LAWS: [(&str, Law); 6] = [
    ("only mirrors are changed or deleted", |world, plan| {
        let touched = plan
            .iter()
            .filter(|(_, decision)| matches!(decision.action, Action::Update(_) | Action::Delete | Action::Recreate));
        touched.map(|(name, _)| &world.local.services[name]).all(|service| service.role == Role::Mirror)
    }),
    ("nothing is deleted unless its remote is known completely, or gone", |world, plan| {
        plan.values()
            .filter(|decision| decision.action == Action::Delete)
            .all(|decision| decision.remote.as_ref().is_none_or(|remote| world.remotes[remote].sync == Sync::Complete))
    }),
    ("nothing is made in a protected or denied namespace", |world, plan| {
        plan.iter().filter(|(_, decision)| matches!(decision.action, Action::Add(_))).all(|(name, decision)| {
            let remote = decision.remote.as_ref().map(|remote| &world.remotes[remote]);
            let denied = remote.is_none_or(|remote| {
                remote.rules.namespaces.deny.iter().any(|pattern| pattern.matches(&name.namespace))
            });
            *name.namespace != *"kube-system" && !denied
        })
    }),
    ("frozen mirrors stay as they are", |world, plan| {
        plan.iter().all(|(name, decision)| {
            let ignored = world.local.services.get(name).is_some_and(|service| service.ignored);
            let owner = world.local.services.get(name).and_then(|service| service.owner.as_deref());
            !ignored || decision.action == Action::None || owner == Some("gone")
        })
    }),
    ("nothing is written for a remote that is paused or was never complete", |world, plan| {
        plan.values().all(|decision| {
            let is_silent = |remote: &RemoteName| {
                world.remotes.get(remote).is_some_and(|remote| remote.paused || remote.sync == Sync::Listing)
            };
            let slices = decision.slices.values().filter_map(|action| match action {
                SliceAction::Write(slice) => Some(&slice.remote),
                SliceAction::Delete => None,
            });
            (decision.action == Action::None || decision.remote.as_ref().is_none_or(|remote| !is_silent(remote)))
                && !slices.into_iter().any(is_silent)
        })
    }),
    ("no endpoint is special, local or outside what is allowed", |_, plan| {
        let slices = plan.values().flat_map(|decision| decision.slices.values());
        let endpoints = slices.filter_map(|action| match action {
            SliceAction::Write(slice) => Some(&slice.content.endpoints),
            SliceAction::Delete => None,
        });
        endpoints.flatten().all(|endpoint| {
            let text = endpoint.address.to_string();
            text != "127.0.0.1" && !text.starts_with("10.9.")
        })
    }),
];

proptest! {
    #[test]
    fn every_plan_keeps_every_law(world in worlds()) {
        let plan = plan(&world);
        for (law, holds) in LAWS {
            prop_assert!(holds(&world, &plan), "broken: {law}\n{plan:#?}");
        }
    }

    #[test]
    fn carried_out_decisions_end_and_leave_users_objects_alone(world in worlds()) {
        let after = settle(&world);
        for (name, service) in &world.local.services {
            if service.role != Role::Mirror || service.ignored && service.owner.as_deref() != Some("gone") {
                prop_assert_eq!(after.local.services.get(name), Some(service), "{} is not ours to change", name);
            }
        }
        for (name, slices) in &after.local.slices {
            prop_assert!(after.local.services.contains_key(name));
            for slice in slices.values() {
                prop_assert!(slice.content.endpoints.is_sorted() && slice.content.endpoints.len() <= 2);
            }
        }
        for (name, remote) in &after.remotes {
            let made = after.local.namespaces.values().filter(|one| one.created_for.as_ref() == Some(name)).count();
            let before = world.local.namespaces.values().filter(|one| one.created_for.as_ref() == Some(name)).count();
            prop_assert!(made <= remote.rules.namespaces.max_created.max(before), "too many namespaces for {}", name);
        }
    }

    #[test]
    fn following_changes_comes_to_the_plan_of_the_whole(
        world in worlds(),
        steps in prop::collection::vec(changes(), 1..8),
        other in remotes("west"),
        replace_at in 0_usize..8,
    ) {
        let mut planner = Planner::new(settle(&world));
        for (number, step) in steps.into_iter().enumerate() {
            let before = planner.clone();
            let affected = if number == replace_at {
                planner.change_remote(&"west".into(), |remote| *remote = Some(other.clone()))
            } else {
                planner.change(step)
            };
            let fresh = Planner::new(planner.world().clone());
            prop_assert_eq!(&planner, &fresh, "the indexes are those of the world");
            let names: BTreeSet<ServiceName> = before.names().union(&planner.names()).cloned().collect();
            for name in names.difference(&affected) {
                let (mut was, is) = (before.decide(name), planner.decide(name));
                // Why there is nothing to do may change for a name that no remote has.
                if was.remote.is_none() && is.remote.is_none() {
                    was.row = is.row;
                }
                prop_assert_eq!(was, is, "{} was not named", name);
            }
        }
    }
}
