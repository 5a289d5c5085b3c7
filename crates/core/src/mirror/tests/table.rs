//! The decision table of the specification, written by hand, against the planner on every combination.

use super::worlds::{name, remote, service, source, world};
use crate::mirror::*;

/// Whether the remote has a source of this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Qualifies {
    Yes,
    No,
    Unknown,
}

/// What is here under this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Here {
    Nothing,
    Users,
    HandLabelled,
    Owned,
    OwnedByOther,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Add,
    None,
    Update,
    Delete,
}

fn table(qualifies: Qualifies, here: Here, frozen: bool, differs: bool) -> (Row, Expected) {
    use {Expected::*, Here::*, Qualifies::*};
    match (qualifies, here, frozen) {
        (Unknown, Nothing | Owned, _) => (Row::Unknown, None),
        (Yes, Nothing, _) => (Row::Add, Add),
        (Yes, Users | HandLabelled, _) => (Row::UsersService, None),
        (Yes, Owned, true) => (Row::Frozen, None),
        (Yes, Owned, false) => (Row::Follow, if differs { Update } else { None }),
        (Yes, OwnedByOther, _) => (Row::OtherRemote, None),
        (No, Owned, false) => (Row::Orphan, Delete),
        (No | Unknown, Users | HandLabelled | OwnedByOther, _) | (No, Owned, true) => (Row::NotOurs, None),
        (No, Nothing, _) => (Row::Nothing, None),
    }
}

#[test]
fn every_combination_is_decided_as_the_table_says() {
    let web = name("shop", "web");
    let mut combinations = 0;
    for qualifies in [Qualifies::Yes, Qualifies::No, Qualifies::Unknown] {
        for here in [Here::Nothing, Here::Users, Here::HandLabelled, Here::Owned, Here::OwnedByOther] {
            for (frozen, differs) in [(false, false), (false, true), (true, false), (true, true)] {
                let mut east = remote("uid-east");
                east.services.insert(web.clone(), source(30080));
                let mut world = world([("east", east)]);
                world = super::worlds::settle(&world);
                let mirror = world.local.services[&web].clone();
                let mut there = match here {
                    Here::Nothing => None,
                    Here::Users => Some(service(Role::Foreign)),
                    Here::HandLabelled => Some(service(Role::HandLabelled)),
                    Here::Owned => Some(mirror),
                    Here::OwnedByOther => Some(LocalService { owner: Some("elsewhere".into()), ..mirror }),
                };
                if let Some(there) = &mut there {
                    there.ignored = frozen;
                    if differs {
                        there.spec.ports[0].port = 81;
                    }
                }
                world.local.services.remove(&web);
                world.local.services.extend(there.map(|there| (web.clone(), there)));
                let east = world.remotes.get_mut("east").unwrap();
                match qualifies {
                    Qualifies::Yes => {}
                    Qualifies::No => east.services.get_mut(&web).unwrap().ignored = true,
                    Qualifies::Unknown => east.sync = Sync::Listing,
                }
                let decision = Planner::new(world).decide(&web);
                let action = match decision.action {
                    Action::None => Expected::None,
                    Action::Add(_) => Expected::Add,
                    Action::Update(_) => Expected::Update,
                    Action::Delete => Expected::Delete,
                    Action::Recreate => panic!("nothing here is immutable"),
                };
                let expected = table(qualifies, here, frozen, differs);
                assert_eq!(
                    (decision.row, action),
                    expected,
                    "{qualifies:?} {here:?} frozen {frozen} differs {differs}"
                );
                combinations += 1;
            }
        }
    }
    assert_eq!(combinations, 60);
}

#[test]
fn after_a_break_rows_1_to_4_go_on_and_row_5_waits() {
    let (web, db) = (name("shop", "web"), name("shop", "db"));
    let mut east = remote("uid-east");
    east.services.insert(web.clone(), source(30080));
    let mut world = super::worlds::settle(&world([("east", east)]));
    let east = world.remotes.get_mut("east").unwrap();
    east.sync = Sync::Broken;
    east.services.remove(&web);
    east.services.insert(db.clone(), source(30081));
    let plan = plan(&world);
    assert_eq!((plan[&web].row, &plan[&web].action), (Row::Unknown, &Action::None));
    assert!(matches!(plan[&db].action, Action::Add(_)));
}

#[test]
fn of_two_remotes_the_older_source_gets_a_free_name_and_keeps_it() {
    let web = name("shop", "web");
    let mut east = remote("uid-east");
    east.services.insert(web.clone(), Source { created: 20, ..source(30080) });
    let mut west = remote("uid-west");
    west.services.insert(web.clone(), Source { created: 10, ..source(30081) });
    let mut world = super::worlds::settle(&world([("east", east), ("west", west)]));
    assert_eq!(world.local.services[&web].owner.as_deref(), Some("west"));
    let decision = Planner::new(world.clone()).decide(&web);
    let unmet = &decision.unmet[..];
    assert!(
        matches!(unmet, [Unmet { remote: Some(remote), reason: Reason::OwnedByOtherRemote, .. }] if **remote == *"east"),
        "{unmet:?}"
    );
    world.remotes.get_mut("east").unwrap().services.get_mut(&web).unwrap().created = 1;
    assert!(Planner::new(world).decide(&web).is_settled(), "the recorded owner keeps it");
}
