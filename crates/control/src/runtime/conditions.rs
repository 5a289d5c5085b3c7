//! Conditions as Kubernetes writes them: one per type, transition times that move only with the status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::Deserialize;
use serde_json::Value;

/// The `conditions` of a status, as it goes over the wire; none if it has none.
pub fn of_status(status: &Value) -> Vec<Condition> {
    status.get("conditions").and_then(|list| Vec::deserialize(list).ok()).unwrap_or_default()
}

/// A condition on an object of that generation; an unknown state is `None`.
pub fn condition(
    kind: &str,
    state: Option<bool>,
    reason: &str,
    message: impl Into<String>,
    generation: i64,
) -> Condition {
    let status = match state {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.into(),
        observed_generation: Some(generation),
        last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
    }
}

/// Gives each condition the transition time it has, or `now` where its status differs from what was seen.
pub fn stamp(seen: &[Condition], want: &mut [Condition], now: jiff::Timestamp) {
    for condition in want {
        condition.last_transition_time = match find(seen, &condition.type_) {
            Some(before) if before.status == condition.status => before.last_transition_time.clone(),
            _ => Time(now),
        };
    }
}

/// The condition of a type.
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Conditions whose status or reason differs from what was seen: what an event should tell.
pub fn transitions<'a>(seen: &[Condition], now: &'a [Condition]) -> Vec<&'a Condition> {
    let moved = |condition: &&Condition| {
        find(seen, &condition.type_)
            .is_none_or(|before| (&before.status, &before.reason) != (&condition.status, &condition.reason))
    };
    now.iter().filter(moved).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let mut seen = vec![condition("Ready", Some(true), "Fine", "", 1)];
        stamp(&[], &mut seen, at(10));
        assert_eq!(seen[0].last_transition_time.0, at(10));

        let mut other_reason = vec![condition("Ready", Some(true), "StillFine", "", 2)];
        stamp(&seen, &mut other_reason, at(20));
        assert_eq!(other_reason[0].last_transition_time.0, at(10));

        let mut other_status = vec![condition("Ready", Some(false), "Broken", "", 2)];
        stamp(&seen, &mut other_status, at(30));
        assert_eq!(other_status[0].last_transition_time.0, at(30));
    }

    #[test]
    fn a_transition_is_a_new_type_another_status_or_another_reason() {
        let seen = [condition("Accepted", Some(true), "Valid", "", 1), condition("Ready", Some(true), "Fine", "a", 1)];
        let now = [
            condition("Accepted", Some(true), "Valid", "other words", 2),
            condition("Ready", Some(true), "FineAgain", "a", 2),
            condition("Programmed", None, "Pending", "", 2),
        ];
        let kinds: Vec<_> = transitions(&seen, &now).into_iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(kinds, ["Ready", "Programmed"]);
    }
}
