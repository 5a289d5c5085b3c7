//! The steps of every write: decode, default, track field owners, admit (mutating), validate, admit (validating),
//! commit under the revision that was read. Fields of the server (uid, generation) are set in between.

use std::sync::Arc;

use http::{StatusCode, header};
use serde_json::Value;
use tokio::sync::MutexGuard;

use super::call::Call;
use super::options::{FieldValidation, WriteKind, WriteOptions, revision};
use super::response::Reply;
use super::route::Subresource;
use super::webhooks::{Review, Stage};
use super::{body, negotiate};
use crate::admission::Operation;
use crate::kinds::{defaults, events, strategy, validate};
use crate::object::{get_meta, has_finalizers, is_deleting, meta, set_meta};
use crate::patch::{self, apply};
use crate::schema::{prune, strict};
use crate::state::ServerState;
use crate::status::{About, Failure};
use crate::store::{Change, Entry, Expect, Refused};
use crate::{crd, schema};

/// How often a write is retried when others write the same object.
const TRIES: usize = 5;

/// Whether `managedFields` have been updated for a write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldManagement {
    /// The write is to be tracked as an update by its manager.
    Update,
    /// They are up to date.
    Done,
}

/// A write request in progress.
pub(super) struct WriteRequest<'a, 'c> {
    pub(super) call: &'a Call<'c>,
    pub(super) options: WriteOptions,
    manager: String,
}

impl<'a, 'c> WriteRequest<'a, 'c> {
    pub(super) fn new(call: &'a Call<'c>, kind: WriteKind) -> Result<Self, Failure> {
        let options = WriteOptions::parse(&call.query, kind)?;
        let manager = match options.field_manager.as_str() {
            "" => apply::manager_name(call.header(header::USER_AGENT).unwrap_or_default()),
            named => named.to_owned(),
        };
        Ok(Self { call, options, manager })
    }

    /// Decodes the object of a create or update; field errors become warnings or the failure.
    pub(super) fn decode(&self, bytes: &[u8]) -> Result<Value, Failure> {
        let kind = self.call.kind();
        let form = negotiate::content(self.call.header(header::CONTENT_TYPE))?;
        let mut object = body::object(form, bytes, kind)?;
        let mut faults = strict::faults((!kind.custom).then_some(&*kind.schema), bytes);
        let unknown = prune::prune(&kind.schema, &mut object);
        if kind.custom {
            faults.extend(strict::unknown_fields(&unknown));
        } else {
            patch::remove_nulls(kind, &mut object);
        }
        match self.options.field_validation {
            FieldValidation::Warn => self.call.warn(faults),
            FieldValidation::Strict if !faults.is_empty() => {
                return Err(body::unreadable(kind, &strict::message(&faults)));
            }
            FieldValidation::Ignore | FieldValidation::Strict => {}
        }
        self.check_namespace(&mut object)?;
        Ok(object)
    }

    /// Writes what `change` makes of the stored object; retried if another write came in between.
    pub(super) async fn change(
        &self,
        field_management: FieldManagement,
        change: impl Fn(&Value) -> Result<Value, Failure>,
    ) -> Result<Reply, Failure> {
        for _ in 0..TRIES {
            let (entry, old) = self.call.stored()?;
            let new = change(&old)?;
            if revision(meta(&new, "resourceVersion"))?.is_some_and(|asked| asked != entry.revision) {
                break;
            }
            if let Some(said) = self.replace(&old, entry.revision, new, field_management).await? {
                return Ok(said);
            }
        }
        Err(modified(self.call.about()))
    }

    /// Admits, validates and commits `new` over `old`; none when another write came in between.
    async fn replace(
        &self,
        old: &Value,
        at: u64,
        mut new: Value,
        field_management: FieldManagement,
    ) -> Result<Option<Reply>, Failure> {
        let (call, code) = (self.call, StatusCode::OK);
        let kind = call.kind();
        set_meta(&mut new, "resourceVersion", get_meta(old, "resourceVersion"));
        self.default(&mut new);
        if field_management == FieldManagement::Update && call.subresource != Subresource::Finalize {
            apply::track_update(&self.field_manager(), Some(old), &mut new);
        }
        // What the server sets or resets from here on has no field owner.
        match call.subresource {
            Subresource::Finalize => {
                let finalizers = new["spec"]["finalizers"].clone();
                new = old.clone();
                new["spec"]["finalizers"] = finalizers;
            }
            Subresource::Status => strategy::prepare_for_update(kind, &mut new, old, strategy::Strategy::Status),
            // Of the pod, only what the server itself makes of the binding has changed.
            Subresource::Binding => {}
            Subresource::Main | Subresource::Scale => {
                strategy::prepare_for_update(kind, &mut new, old, strategy::Strategy::Main);
            }
        }
        if self.is_definition() && call.subresource == Subresource::Main {
            crd::prepare(&mut new, Some(old));
        }
        let _allocation = self.admit(Operation::Update, &call.name, &mut new, Some(old)).await?;
        apply::keep_timestamps(old, &mut new);
        if new == *old || self.options.dry_run {
            return Ok(Some(Reply::Object { code, object: new }));
        }
        let grace = old["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
        let last = is_deleting(old) && grace == 0 && !has_finalizers(&new) && has_no_spec_finalizers(&new);
        if !last {
            let stored = commit(call, &call.name, Expect::Revision(at), new, last).await?;
            return Ok(stored.map(|entry| Reply::Stored { code, entry }));
        }
        // Watchers see the last state of a deleted object; the client sees what it wrote.
        let stored = commit(call, &call.name, Expect::Revision(at), old.clone(), last).await?;
        Ok(stored.map(|_| Reply::Object { code, object: new }))
    }

    /// Assigns the addresses of a Service, calls the webhooks and validates. The guard is to be held until the commit, so that
    /// no two Services get the same address.
    pub(super) async fn admit(
        &self,
        operation: Operation,
        name: &str,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<Option<MutexGuard<'_, ()>>, Failure> {
        let call = self.call;
        let mut allocation = None;
        if call.is_core("Service") && call.subresource == Subresource::Main {
            allocation = Some(call.server.allocation.lock().await);
            call.server.assign_addresses(object, old)?;
        }
        let (dry_run, manager) = (self.options.dry_run, self.options.field_manager.as_str());
        let review = Review { call, dry_run, manager, operation, name, old };
        if !call.server.hooks().is_empty() {
            let before = object.clone();
            review.send(object, Stage::Mutate).await?;
            if *object != before {
                self.default(object);
                apply::track_update(&self.field_manager(), Some(&before), object);
            }
        }
        self.check(object, old)?;
        review.send(object, Stage::Validate).await?;
        Ok(allocation)
    }

    /// Fills in the defaults of the kind's schema or its built-in rules.
    pub(super) fn default(&self, object: &mut Value) {
        let kind = self.call.kind();
        if kind.custom {
            schema::default::default(&kind.schema, object);
        } else {
            defaults::default(kind, object);
        }
        if self.is_definition() {
            crd::defaulted(object);
        }
    }

    /// Whether the object is a CustomResourceDefinition.
    pub(super) fn is_definition(&self) -> bool {
        let kind = self.call.kind();
        kind.kind == "CustomResourceDefinition" && !kind.custom
    }

    /// Refuses an object that breaks the rules of its kind.
    fn check(&self, new: &Value, old: Option<&Value>) -> Result<(), Failure> {
        if self.call.subresource == Subresource::Binding {
            return Ok(());
        }
        let (kind, served) = (self.call.kind(), &self.call.served);
        let status_only = self.call.subresource == Subresource::Status;
        let part = if status_only { strategy::Strategy::Status } else { strategy::Strategy::Main };
        let mut causes = validate::validate(kind, new, old, part);
        if kind.custom {
            let counts = kind.scale.iter().flat_map(|scale| crd::scale_errors(scale, new, status_only)).collect();
            let (schema, rules) = (&kind.schema, &served.rules);
            causes.extend(match old.filter(|_| status_only) {
                Some(old) => schema::validate::validate_status(schema, rules, new, old, counts),
                None => schema::validate::validate_with_rules(schema, rules, new, old, counts),
            });
        } else if self.is_definition() && self.call.subresource == Subresource::Main {
            causes.extend(crd::validate_definition(new, old));
        }
        if causes.is_empty() {
            return Ok(());
        }
        // Events belong to the core group, whichever group shows them.
        let group = if events::is_view(kind) { "" } else { &kind.group };
        Err(Failure::invalid(About { group, resource: &kind.kind, name: meta(new, "name") }, &causes))
    }

    /// Refuses an object whose name differs from the path.
    pub(super) fn check_name(&self, object: &Value) -> Result<(), Failure> {
        let (named, name) = (meta(object, "name"), &self.call.name);
        if named == name {
            return Ok(());
        }
        Err(Failure::bad_request(format!(
            "the name of the object ({named:?}) does not match the name on the URL ({name:?})"
        )))
    }

    /// Sets the namespace of the path, and refuses an object of another.
    pub(super) fn check_namespace(&self, object: &mut Value) -> Result<(), Failure> {
        let (named, namespace) = (meta(object, "namespace"), &self.call.namespace);
        if !self.call.kind().namespaced {
            set_meta(object, "namespace", Value::Null);
        } else if named.is_empty() {
            set_meta(object, "namespace", namespace.as_str());
        } else if named != namespace {
            let message = format!(
                "the namespace of the object ({named:?}) does not match the namespace on the URL ({namespace:?})"
            );
            return Err(Failure::bad_request(message));
        }
        Ok(())
    }

    /// The field manager of this write.
    pub(super) fn field_manager(&self) -> apply::FieldManager<'_> {
        let call = self.call;
        apply::FieldManager {
            kind: call.kind(),
            manager: &self.manager,
            subresource: call.subresource_name(),
            now: call.now,
        }
    }
}

/// Whether the finalizers in the spec of a Namespace, if it is one, are gone.
pub(super) fn has_no_spec_finalizers(object: &Value) -> bool {
    object["kind"] != "Namespace" || object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty)
}

pub(super) fn modified(about: About<'_>) -> Failure {
    let why = "the object has been modified; please apply your changes to the latest version and try again";
    Failure::conflict(about, why)
}

/// Stores an object, or deletes it (`last`), and returns it as stored; none when another write came in
/// between.
pub(super) async fn commit(
    call: &Call<'_>,
    name: &str,
    expect: Expect,
    object: Value,
    last: bool,
) -> Result<Option<Arc<Entry>>, Failure> {
    let served = call.served.clone();
    let change = move |revision| {
        let bytes = ServerState::encode(&served.kind, object, revision);
        if last { Change::Delete(bytes) } else { Change::Set(bytes) }
    };
    let about = About { name, ..call.about() };
    match call.server.store.commit(call.key(name), expect, change).await {
        Ok(entry) => {
            call.server.wrote(call.kind()).await;
            Ok(Some(entry))
        }
        Err(Refused::Changed(_)) => Ok(None),
        Err(Refused::Exists(_)) => Err(Failure::already_exists(about)),
        Err(Refused::Gone) => Err(Failure::not_found(about)),
        Err(Refused::Storage(problem)) => Err(Failure::internal(format!("the store cannot write: {problem}"))),
    }
}
