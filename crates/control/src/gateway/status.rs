//! Plan -> status: conditions as Kubernetes has them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use portolan_core::gateway::{ConditionKind, Problem, Verdict, Verdicts};

use crate::runtime::conditions::condition;

/// The conditions of an object of that generation.
pub(super) fn conditions(verdicts: &Verdicts, generation: Option<i64>) -> Vec<Condition> {
    let one = |verdict: &Verdict| {
        let kind = verdict.kind;
        let generation = generation.unwrap_or_default();
        match &verdict.problem {
            None => condition(kind.as_str(), Some(true), kind.as_str(), good(kind), generation),
            Some(problem) => {
                let is_known = !matches!(
                    problem,
                    Problem::DriverDirect
                        | Problem::EnvoyStarting
                        | Problem::EnvoyNotReady
                        | Problem::Pending
                        | Problem::LoadBalancerNotReady { .. }
                );
                let state = is_known.then_some(false);
                condition(kind.as_str(), state, problem.reason(), problem.to_string(), generation)
            }
        }
    };
    verdicts.0.iter().map(one).collect()
}

/// True if the conditions say what is wanted; transition times do not count.
pub(super) fn says(seen: &[Condition], want: &[Condition]) -> bool {
    let content = |condition: &Condition| {
        let Condition { type_, status, reason, message, observed_generation, last_transition_time: _ } = condition;
        (type_.clone(), status.clone(), reason.clone(), message.clone(), *observed_generation)
    };
    seen.len() == want.len() && seen.iter().zip(want).all(|(one, other)| content(one) == content(other))
}

const fn good(kind: ConditionKind) -> &'static str {
    match kind {
        ConditionKind::Accepted => "valid",
        ConditionKind::ResolvedRefs => "all references resolved",
        ConditionKind::Allocated => "keys and addresses are assigned",
        ConditionKind::AddressInPool => "the address is in the pool",
        ConditionKind::Programmed => "Envoy has the configuration",
        ConditionKind::TunnelsUp => "all tunnels are up",
        ConditionKind::Ready => "in service",
    }
}
