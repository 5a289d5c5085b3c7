//! Sessions as clients read them.

use std::time::Duration;

use crate::config::engine::{EventDump, SessionDump, SourceDump, StageDump, StageEnd, Traffic};
use crate::config::json::{Json, Object, object};
use crate::config::state::State;

/// One session.
pub(super) fn view(state: &State, dump: &SessionDump) -> Json {
    let mut metadata = Json::from(&dump.metadata);
    if let Json::Object(fields) = &mut metadata {
        fields.remove("name");
    }
    let mut view = Object::default();
    view.set("name", dump.name.as_str());
    view.set("metadata", metadata);
    view.set("source", source(state, &dump.source));
    view.set("destination", dump.destination.as_ref().map_or_else(pending, stage));
    view.set("ingress", dump.ingress.iter().map(stage).collect::<Vec<_>>());
    view.set("egress", dump.egress.iter().map(stage).collect::<Vec<_>>());
    view.set("status", dump.status);
    view.set("events", dump.events.iter().map(event).collect::<Vec<_>>());
    view.set("stats", traffic(&dump.traffic));
    view.set("created", time(dump.created));
    view.set("idle_ms", u64::try_from(dump.idle.as_millis()).unwrap_or(u64::MAX));
    Json::Object(view)
}

fn pending() -> Json {
    object([("status", "PENDING".into())])
}

/// A listener that is gone, also if another of its name took its place, is not shown.
fn source(state: &State, source: &SourceDump) -> Json {
    let current = state.snapshot.listeners.get(&source.origin);
    let lives = current.is_some_and(|current| current.id == source.listener.id);
    let listener = if lives { source.listener.given.clone() } else { "<INVALID>".into() };
    object([("origin", (&*source.origin).into()), ("listener", listener), ("status", source.status.into())])
}

fn stage(stage: &StageDump) -> Json {
    let end = |name: &str, spec: Json| object([("name", name.into()), ("spec", spec)]);
    let endpoint = match &stage.end {
        StageEnd::None => "<INVALID>".into(),
        StageEnd::Virtual => end(&stage.origin, object([("address", "<VIRTUAL>".into())])),
        StageEnd::Endpoint(endpoint) => end(&endpoint.name, endpoint.given.clone()),
    };
    object([("origin", (&*stage.origin).into()), ("endpoint", endpoint), ("status", stage.status.into())])
}

fn event(event: &EventDump) -> Json {
    object([
        ("event", event.event.into()),
        ("timestamp", time(event.at)),
        ("message", event.message.as_str().into()),
        ("content", event.content.as_str().into()),
    ])
}

fn traffic(traffic: &Traffic) -> Json {
    let both = |inward: u64, outward: u64| object([("in", inward.into()), ("out", outward.into())]);
    object([
        ("packets", both(traffic.packets_in, traffic.packets_out)),
        ("bytes", both(traffic.bytes_in, traffic.bytes_out)),
    ])
}

/// A moment as JavaScript writes it: `2026-11-15T06:00:00.000Z`.
fn time(since_1970: Duration) -> Json {
    let millis = i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX);
    let moment = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
    format!("{moment:.3}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_milliseconds_and_a_z() {
        assert_eq!(time(Duration::from_millis(1_600_000_000_007)), "2020-09-13T12:26:40.007Z".into());
        assert_eq!(time(Duration::MAX), time(Duration::MAX));
    }
}
