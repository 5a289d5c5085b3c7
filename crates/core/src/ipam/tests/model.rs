//! Random schedules: the executor does what is due one by one in any order, and is killed anywhere.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::Ipv4Addr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::lab::{Lab, Outcome};
use crate::hash::SplitMix;
use crate::ipam::{Plan, State};

/// Schedules in one run.
const SCHEDULES: u64 = 5_000;
/// Turns of the executor in one schedule, before it may come to rest.
const TURNS: usize = 40;
/// A schedule to repeat alone.
const REPLAY: Option<u64> = None;

#[test]
fn crash_between_any_two_steps_leaks_nothing() {
    if let Some(seed) = REPLAY {
        return run(seed, true, &mut Tally::default());
    }
    let mut tally = Tally::default();
    let first = RandomState::new().build_hasher().finish();
    for seed in (0..SCHEDULES).map(|schedule| first.wrapping_add(schedule)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed, false, &mut tally))) {
            println!("schedule {seed} fails: set REPLAY to Some({seed}); this is what happens");
            run(seed, true, &mut tally);
            resume_unwind(panic);
        }
    }
    let count = usize::try_from(SCHEDULES).unwrap();
    let Tally { served, unmet, actions, crashes } = tally;
    assert!(served > count && unmet > count / 4 && actions > 20 * count && crashes > count / 4, "{tally:?}");
}

/// What schedules came to, so that an idle model is noticed.
#[derive(Debug, Default)]
struct Tally {
    served: usize,
    unmet: usize,
    actions: usize,
    crashes: usize,
}

fn run(seed: u64, verbose: bool, tally: &mut Tally) {
    let mut lab = drive(seed, TURNS, verbose);
    lab.faults.clear();
    let plan = rest(&mut lab, verbose);
    tally.unmet += plan.unmet.len();
    tally.served += lab.journal.claims.values().filter(|claim| claim.status.state == State::Published).count();
    tally.actions += lab.executed;
    tally.crashes += lab.crashed;
}

/// A cluster after so many turns.
pub(super) fn drive(seed: u64, turns: usize, verbose: bool) -> Lab {
    let mut random = SplitMix::new(seed);
    let shapes: [&[usize]; 4] = [&[2, 2, 2], &[3, 2], &[1, 1], &[3]];
    let shape = shapes[usize::try_from(random.next_u64() % 4).unwrap()];
    let limit = u16::try_from(3 + random.next_u64() % 5).unwrap();
    let mut lab = Lab::new(shape, limit);
    lab.lag = random.next_u64() % 1_500;
    lab.world.options.partial = random.next_u64().is_multiple_of(8);
    lab.world.seed = random.next_u64();
    lab.random = random;
    for subnet in 0..3 {
        lab.journal.other_use.extend((250..255).map(|last| Ipv4Addr::new(10, 0, subnet, last)));
    }
    let crashes = lab.below(3);
    let faults = lab.below(3);
    for _ in 0..turns {
        if lab.below(3) == 0 {
            let what = lab.happen();
            note(&mut lab, verbose, what);
        }
        if faults > 0 && lab.below(6) == 0 {
            let fault = lab.fault();
            lab.faults.push(fault);
        }
        lab.world.now += u64::try_from(lab.below(2_000)).unwrap();
        if lab.below(20) == 0 {
            lab.world.now += 60_000;
        }
        if lab.world.cloud.is_none() || lab.below(3) > 0 {
            lab.describe();
        }
        turn(&mut lab, crashes, verbose);
    }
    lab
}

fn turn(lab: &mut Lab, crashes: usize, verbose: bool) {
    let mut due = lab.plan().actions;
    let seen = (lab.world.clone(), lab.journal.clone());
    for action in &due {
        lab.check_action(action);
    }
    for _ in 0..=lab.below(6) {
        if due.is_empty() {
            return;
        }
        let action = due.swap_remove(lab.below(due.len()));
        let outcome = match lab.below(30) {
            0 if crashes > 0 => Outcome::CrashBefore,
            1 if crashes > 0 => Outcome::CrashBetween,
            2 if crashes > 0 => Outcome::CrashAfter,
            _ => Outcome::Done,
        };
        note(lab, verbose, &format!("{outcome:?} {action:?}"));
        if !lab.execute(&action, (&seen.0, &seen.1), outcome) {
            return;
        }
        if lab.below(12) == 0 {
            let what = lab.happen();
            note(lab, verbose, what);
        }
    }
}

fn rest(lab: &mut Lab, verbose: bool) -> Plan {
    for _ in 0..2_000 {
        lab.describe();
        let plan = lab.plan();
        for action in &plan.actions {
            lab.check_action(action);
        }
        if !plan.actions.is_empty() {
            let seen = (lab.world.clone(), lab.journal.clone());
            let action = &plan.actions[lab.below(plan.actions.len())];
            note(lab, verbose, &format!("rest {action:?}"));
            lab.execute(action, (&seen.0, &seen.1), Outcome::Done);
        } else if let Some(wake) = plan.wake {
            lab.world.now = wake;
        } else if !plan.awaiting.is_empty() || !lab.delayed.is_empty() {
            lab.world.now += 1_000;
        } else {
            // one more look, when every describe has caught up
            lab.world.now += lab.lag + 1;
            lab.describe();
            let plan = lab.plan();
            if plan.actions.is_empty() && plan.awaiting.is_empty() && plan.wake.is_none() {
                lab.check_rest(&plan);
                lab.world.now += 3_600_000;
                lab.describe();
                assert_eq!(lab.plan(), plan, "at rest it stays at rest");
                return plan;
            }
        }
    }
    panic!("does not come to rest: {:#?}", lab.log.iter().rev().take(9).collect::<Vec<_>>());
}

fn note(lab: &mut Lab, verbose: bool, what: &str) {
    if verbose {
        println!("{} {what}", lab.world.now);
    }
    if lab.log.len() > 40 {
        lab.log.drain(..20);
    }
    lab.log.push(what.to_owned());
}
