//! Writes that send nothing when nothing differs, and let the store know what to wait for.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::object::HasStatus;
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use super::conditions;
use super::endpoint::{Endpoint, Part};
use super::error::{Error, outcome_unknown};
use super::events::Recorder;
use super::metrics::{KindLabel, Metrics, WriteLabel};
use super::store::{Key, Store};
use super::watch::Kind;

/// Annotation with a hash of what was applied last: tells a field that is no longer wanted from one that never was.
pub const APPLIED: &str = "portolan.dev/applied";

/// What a write came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrote {
    /// Something differed and was sent.
    Changed,
    /// Nothing differed, so nothing was sent.
    Unchanged,
}

/// Writes objects in the name of one field manager. Clones are the same writer.
#[derive(Clone)]
pub struct Writer {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    manager: String,
    recorder: Recorder,
    metrics: Metrics,
}

impl Writer {
    /// `client` should be fenced (see [`fence`](super::fence)); `manager` owns the fields that are applied.
    pub fn new(client: Client, manager: &str, recorder: Recorder, metrics: Metrics) -> Self {
        Self { shared: Arc::new(Shared { client, manager: manager.to_owned(), recorder, metrics }) }
    }

    /// Brings an object to what is wanted by server-side apply: fields left out of `want` are not ours.
    pub async fn apply<K: Kind + Serialize>(&self, store: &Store<K>, want: &K) -> Result<Wrote, Error> {
        let key = Key::of(want);
        let mut wanted = body(want);
        let hash = format!("{:016x}", xxh3_64(wanted.to_string().as_bytes()));
        wanted["metadata"]["annotations"][APPLIED] = Value::String(hash);
        if let Some(seen) = store.get(&key)
            && seen.meta().deletion_timestamp.is_none()
            && covers(&body(&*seen), &wanted)
        {
            return Ok(self.unchanged::<K>());
        }
        let patching = Endpoint::<K>::of(&self.shared.client, &key);
        let params = PatchParams::apply(&self.shared.manager).force();
        let sent = Sent::to(store);
        let answer = patching.patch(Part::Object, &key.name, &params, &Patch::Apply(wanted)).await;
        self.settle(sent, "apply", &key, answer)
    }

    /// Writes the status if it differs, then records the conditions that changed as events. Transition times are filled in
    /// here. The resource version of `seen` is the lock: a conflict means that the object changed and must be looked
    /// at again.
    pub async fn status<K>(&self, store: &Store<K>, seen: &K, want: &K::Status) -> Result<Wrote, Error>
    where
        K: Kind + HasStatus,
        K::Status: Serialize,
    {
        let Some(StatusChange { status, seen_conditions, want_conditions }) = StatusChange::of(seen, want) else {
            return Ok(self.unchanged::<K>());
        };
        let key = Key::of(seen);
        let body = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": { "name": key.name, "resourceVersion": seen.resource_version(), "uid": seen.uid() },
            "status": status,
        });
        let patching = Endpoint::<K>::of(&self.shared.client, &key);
        let params = PatchParams::apply(&self.shared.manager).force();
        let sent = Sent::to(store);
        let mut answer = patching.patch(Part::Status, &key.name, &params, &Patch::Apply(body)).await;
        // Apply leaves alone what others added, and a status is ours whole.
        if let Ok(written) = &answer
            && let Some(extra) = surplus(&written.status().map(wire).unwrap_or_default(), &status)
        {
            let body = json!({ "metadata": { "resourceVersion": written.resource_version() }, "status": extra });
            let params = PatchParams { field_manager: Some(self.shared.manager.clone()), ..PatchParams::default() };
            answer = patching.patch(Part::Status, &key.name, &params, &Patch::Merge(body)).await;
        }
        let wrote = self.settle(sent, "status", &key, answer)?;
        self.shared.recorder.transitions(seen, &seen_conditions, &want_conditions);
        Ok(wrote)
    }

    /// Replaces the whole status of exactly the version that was seen, if it differs; else as [`Writer::status`].
    pub async fn replace_status<K>(&self, store: &Store<K>, seen: &K, want: &K::Status) -> Result<Wrote, Error>
    where
        K: Kind + HasStatus + Serialize,
        K::Status: Serialize,
    {
        let Some(StatusChange { status, seen_conditions, want_conditions }) = StatusChange::of(seen, want) else {
            return Ok(self.unchanged::<K>());
        };
        let key = Key::of(seen);
        let mut object = body(seen);
        object["status"] = status;
        let sent = Sent::to(store);
        let answer = Endpoint::<K>::of(&self.shared.client, &key).replace(Part::Status, &key.name, &object).await;
        let wrote = self.settle(sent, "status", &key, answer)?;
        self.shared.recorder.transitions(seen, &seen_conditions, &want_conditions);
        Ok(wrote)
    }

    /// Reads an object from the API server itself: proves that it is gone, which a cache cannot.
    pub async fn read<K: Kind>(&self, key: &Key) -> Result<Option<K>, Error> {
        let answer = Endpoint::<K>::of(&self.shared.client, key).get(&key.name).await;
        answer.map_err(|cause| Error::from_request(format!("get {} {key}", K::kind(&())), cause))
    }

    /// Puts annotations on exactly the object that was seen; others stay.
    pub async fn annotate<K: Kind>(&self, store: &Store<K>, seen: &K, annotations: &Value) -> Result<Wrote, Error> {
        let key = Key::of(seen);
        let body = json!({ "metadata": { "uid": seen.uid(), "annotations": annotations } });
        let params = PatchParams { field_manager: Some(self.shared.manager.clone()), ..PatchParams::default() };
        let patch = Patch::Merge(body);
        let sent = Sent::to(store);
        let answer = Endpoint::<K>::of(&self.shared.client, &key).patch(Part::Object, &key.name, &params, &patch).await;
        self.settle(sent, "annotate", &key, answer)
    }

    /// Changes exactly the version of an object that was seen, by a merge patch: what it does not name stays.
    pub async fn merge<K: Kind>(&self, store: &Store<K>, seen: &K, mut change: Value) -> Result<Wrote, Error> {
        let key = Key::of(seen);
        change["metadata"]["uid"] = wire(&seen.uid());
        change["metadata"]["resourceVersion"] = wire(&seen.resource_version());
        let params = PatchParams { field_manager: Some(self.shared.manager.clone()), ..PatchParams::default() };
        let patch = Patch::Merge(change);
        let sent = Sent::to(store);
        let answer = Endpoint::<K>::of(&self.shared.client, &key).patch(Part::Object, &key.name, &params, &patch).await;
        self.settle(sent, "patch", &key, answer)
    }

    /// Sets one condition of an object whose status belongs to others; transition times are filled in here.
    pub async fn condition<K: Kind>(
        &self,
        store: &Store<K>,
        seen: &K,
        before: &[Condition],
        want: Condition,
    ) -> Result<Wrote, Error> {
        let mut want = [want];
        conditions::stamp(before, &mut want, jiff::Timestamp::now());
        if conditions::find(before, &want[0].type_) == Some(&want[0]) {
            return Ok(self.unchanged::<K>());
        }
        self.status_part(store, seen, before, &want, json!({})).await
    }

    /// Writes our part of a status that others write too: fields that an earlier write of ours had and this one has not
    /// go, those of others stay. Sends it always; transition times are filled in here.
    pub async fn status_part<K: Kind>(
        &self,
        store: &Store<K>,
        seen: &K,
        before: &[Condition],
        want: &[Condition],
        mut part: Value,
    ) -> Result<Wrote, Error> {
        let mut want = want.to_vec();
        conditions::stamp(before, &mut want, jiff::Timestamp::now());
        if !want.is_empty() {
            part["conditions"] = wire(&want);
        }
        let key = Key::of(seen);
        let body = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": { "name": key.name, "uid": seen.uid() },
            "status": part,
        });
        let params = PatchParams::apply(&self.shared.manager).force();
        let sent = Sent::to(store);
        let answer = Endpoint::<K>::of(&self.shared.client, &key)
            .patch(Part::Status, &key.name, &params, &Patch::Apply(body))
            .await;
        let wrote = self.settle(sent, "condition", &key, answer)?;
        self.shared.recorder.transitions(seen, before, &want);
        Ok(wrote)
    }

    /// Creates an object that must not exist yet: the name is the lock.
    pub async fn create<K: Kind + Serialize>(&self, store: &Store<K>, want: &K) -> Result<Wrote, Error> {
        let key = Key::of(want);
        let sent = Sent::to(store);
        let answer = Endpoint::<K>::of(&self.shared.client, &key).create(want).await;
        self.settle(sent, "create", &key, answer)
    }

    /// Replaces an object as read and changed; the resource version in it is the lock.
    pub async fn replace<K: Kind + Serialize>(&self, store: &Store<K>, part: Part, want: &K) -> Result<Wrote, Error> {
        let key = Key::of(want);
        let sent = Sent::to(store);
        let answer = Endpoint::<K>::of(&self.shared.client, &key).replace(part, &key.name, want).await;
        self.settle(sent, "replace", &key, answer)
    }

    /// Deletes exactly the object that was seen, not a namesake. Gone already is fine.
    pub async fn delete<K: Kind>(&self, store: &Store<K>, seen: &K) -> Result<Wrote, Error> {
        self.delete_if(store, seen, None).await
    }

    /// The same, but only while nobody has changed it.
    pub async fn delete_version<K: Kind>(&self, store: &Store<K>, seen: &K) -> Result<Wrote, Error> {
        self.delete_if(store, seen, seen.resource_version()).await
    }

    async fn delete_if<K: Kind>(
        &self,
        store: &Store<K>,
        seen: &K,
        resource_version: Option<String>,
    ) -> Result<Wrote, Error> {
        let key = Key::of(seen);
        let uid = seen.uid();
        let preconditions = Some(Preconditions { uid: uid.clone(), resource_version });
        let params = DeleteParams { preconditions, ..DeleteParams::background() };
        let sent = Sent::to(store);
        let answer = Endpoint::<K>::of(&self.shared.client, &key).delete(&key.name, &params).await;
        match answer {
            Ok(Some(kept)) if kept.meta().deletion_timestamp.is_some() => self.settle(sent, "delete", &key, Ok(kept)),
            Ok(_) => {
                sent.answered();
                self.count::<K>("delete", "ok");
                store.deleted(&key, uid.as_deref().unwrap_or_default());
                Ok(Wrote::Changed)
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                sent.answered();
                store.deleted(&key, uid.as_deref().unwrap_or_default());
                Ok(self.unchanged::<K>())
            }
            Err(cause) => self.settle(sent, "delete", &key, Err(cause)),
        }
    }

    /// Every answer ends here: it is counted, and the store learns what to wait for.
    fn settle<K: Kind>(
        &self,
        sent: Sent<'_, K>,
        verb: &'static str,
        key: &Key,
        answer: Result<K, kube::Error>,
    ) -> Result<Wrote, Error> {
        let store = sent.answered();
        match answer {
            Ok(written) => {
                self.count::<K>(verb, "ok");
                store.wrote(&written);
                Ok(Wrote::Changed)
            }
            Err(cause) => {
                if outcome_unknown(&cause) {
                    store.invalidate();
                }
                let error = Error::from_request(format!("{verb} {} {key}", K::kind(&())), cause);
                self.count::<K>(verb, error.reason());
                Err(error)
            }
        }
    }

    fn unchanged<K: Kind>(&self) -> Wrote {
        self.shared.metrics.unchanged.get_or_create(&KindLabel { kind: K::kind(&()).into_owned() }).inc();
        Wrote::Unchanged
    }

    fn count<K: Kind>(&self, verb: &'static str, outcome: &'static str) {
        let label = WriteLabel { kind: K::kind(&()).into_owned(), verb, outcome };
        self.shared.metrics.writes.get_or_create(&label).inc();
    }
}

/// A status that differs from the one that was seen.
struct StatusChange {
    /// With transition times.
    status: Value,
    seen_conditions: Vec<Condition>,
    want_conditions: Vec<Condition>,
}

impl StatusChange {
    /// None if nothing differs.
    fn of<K>(seen: &K, want: &K::Status) -> Option<Self>
    where
        K: HasStatus,
        K::Status: Serialize,
    {
        let before = seen.status().map(wire).unwrap_or_default();
        let mut status = wire(want);
        let seen_conditions = conditions::of_status(&before);
        let mut want_conditions = conditions::of_status(&status);
        conditions::stamp(&seen_conditions, &mut want_conditions, jiff::Timestamp::now());
        if !want_conditions.is_empty() {
            status["conditions"] = wire(&want_conditions);
        }
        (before != status).then_some(Self { status, seen_conditions, want_conditions })
    }
}

/// A request under way. One that is abandoned leaves the store in doubt, as it may have been carried out.
struct Sent<'a, K: Kind> {
    store: &'a Store<K>,
    answered: bool,
}

impl<'a, K: Kind> Sent<'a, K> {
    fn to(store: &'a Store<K>) -> Self {
        Self { store, answered: false }
    }

    fn answered(mut self) -> &'a Store<K> {
        self.answered = true;
        self.store
    }
}

impl<K: Kind> Drop for Sent<'_, K> {
    fn drop(&mut self) {
        if !self.answered {
            self.store.invalidate();
        }
    }
}

/// As it goes over the wire.
fn wire(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("Kubernetes types have string keys, so they are JSON")
}

/// What is sent for an object: its kind spelled out, nothing that only the API server writes.
fn body<K: Kind + Serialize>(want: &K) -> Value {
    let mut body = wire(want);
    body["apiVersion"] = K::api_version(&()).into();
    body["kind"] = K::kind(&()).into();
    if let Some(object) = body.as_object_mut() {
        object.remove("status");
    }
    body
}

/// A merge patch that takes away what `seen` has beyond `want`; none when there is no such thing. Lists are replaced
/// whole by apply, save conditions, of which each writer has its own.
fn surplus(seen: &Value, want: &Value) -> Option<Value> {
    let (Value::Object(seen), Value::Object(want)) = (seen, want) else { return None };
    let extra = seen.iter().filter_map(|(name, seen)| match want.get(name) {
        Some(want) => Some((name.clone(), surplus(seen, want)?)),
        None if name == "conditions" => None,
        None => Some((name.clone(), Value::Null)),
    });
    let extra: serde_json::Map<String, Value> = extra.collect();
    (!extra.is_empty()).then_some(Value::Object(extra))
}

/// True when everything in `want` is in `seen`, which may hold more (defaults, fields of others).
fn covers(seen: &Value, want: &Value) -> bool {
    match (seen, want) {
        (Value::Object(seen), Value::Object(want)) => want.iter().all(|(name, want)| match seen.get(name) {
            Some(seen) => covers(seen, want),
            // k8s-openapi leaves empty things out when it writes an object.
            None => is_empty(want),
        }),
        (Value::Array(seen), Value::Array(want)) => {
            seen.len() == want.len() && seen.iter().zip(want).all(|(seen, want)| covers(seen, want))
        }
        (seen, want) => seen == want,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_covers_what_is_wanted_despite_defaults_and_the_fields_of_others() {
        let want = json!({ "spec": { "ports": [{ "port": 80 }], "selector": {} } });
        let seen =
            json!({ "spec": { "ports": [{ "port": 80, "protocol": "TCP" }], "type": "ClusterIP" }, "status": {} });
        assert!(covers(&seen, &want));
        assert_eq!(surplus(&json!({ "a": 1 }), &json!({ "a": 2 })), None);
        let seen = json!({ "eip": { "ipv4": "10.0.0.1", "ipv6": "fd00::1" }, "node": "n1", "conditions": [] });
        let extra = json!({ "eip": { "ipv6": null }, "node": null });
        assert_eq!(surplus(&seen, &json!({ "eip": { "ipv4": "10.0.0.1" } })), Some(extra));
        for differing in [
            json!({ "spec": { "ports": [{ "port": 81, "protocol": "TCP" }] } }),
            json!({ "spec": { "ports": [{ "port": 80 }, { "port": 81 }] } }),
            json!({ "spec": {} }),
        ] {
            assert!(!covers(&differing, &want), "{differing}");
        }
    }
}
