//! Changing objects: create, update, patch.
//!
//! Every write walks the same steps: decode, default, admit (mutating), validate, admit (validating), commit under the
//! revision that was read. What the server itself writes (uid, generation, managedFields) is set in between.

use std::sync::Arc;

use http::{StatusCode, header};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::answer::{Call, Said};
use super::options::{FieldValidation, Query, WriteKind, WriteOptions};
use super::route::Part;
use super::{body, negotiate, read, scale};
use crate::admission::{Attributes, Operation};
use crate::auth::User;
use crate::kinds::{defaults, events, strategy, typed, validate};
use crate::object::{get_meta, has_finalizers, is_deleting, meta, name_suffix, set_meta, time, uid};
use crate::patch::{self, PatchType, apply};
use crate::schema::{prune, strict};
use crate::server::Inner;
use crate::status::{About, Cause, Failure};
use crate::store::{Change, Expect, Refused};
use crate::{crd, schema};

pub(super) use super::delete::{delete, delete_collection};

/// How often a write without a resource version is tried again when others write the same object.
const TRIES: usize = 5;

/// `POST`: creates the object in the body.
pub(super) async fn create(call: &Call<'_>, bytes: &[u8]) -> Result<Said, Failure> {
    let options = WriteOptions::parse(&call.query, WriteKind::Create)?;
    let mut object = decode(call, bytes, &options)?;
    check_namespace(call, &mut object)?;
    if meta(&object, "name").is_empty() && !meta(&object, "generateName").is_empty() {
        let prefix = meta(&object, "generateName").to_owned();
        // Room for the suffix in the longest name that every kind takes.
        let prefix = &prefix[..prefix.floor_char_boundary(58)];
        set_meta(&mut object, "name", format!("{prefix}{}", name_suffix()));
    }
    if !meta(&object, "resourceVersion").is_empty() {
        return Err(Failure::unclassified("resourceVersion should not be set on objects to be created"));
    }
    Write { call, options }.create(object, StatusCode::CREATED, true).await
}

/// `PUT`: replaces the object by the one in the body.
pub(super) async fn update(call: &Call<'_>, bytes: &[u8]) -> Result<Said, Failure> {
    let options = WriteOptions::parse(&call.query, WriteKind::Update)?;
    if call.part == Part::Scale {
        return scale::update(call, options, bytes).await;
    }
    let mut object = decode(call, bytes, &options)?;
    check_namespace(call, &mut object)?;
    check_name(call, &object)?;
    let asked = meta(&object, "resourceVersion").to_owned();
    let write = Write { call, options };
    for _ in 0..TRIES {
        let (entry, old) = match read::stored(call) {
            Ok(stored) => stored,
            Err(missing) if call.part != Part::Whole || !strategy::allows_create_on_update(call.kind()) => {
                return Err(missing);
            }
            Err(_) if !asked.is_empty() => return Err(write.modified()),
            Err(_) => return write.create(object, StatusCode::CREATED, true).await,
        };
        write.check_uid(&object, &old)?;
        if is_other_revision(&asked, entry.revision)? {
            return Err(write.modified());
        }
        if asked.is_empty() && !strategy::allows_unconditional_update(call.kind()) {
            let cause = Cause {
                reason: "FieldValueInvalid",
                message: "Invalid value: 0: must be specified for an update".to_owned(),
                field: "metadata.resourceVersion".to_owned(),
            };
            return Err(Failure::invalid(write.about(), &[cause]));
        }
        let mut told = Vec::new();
        match write.replace(&old, entry.revision, object.clone(), &mut told, Books::Update).await? {
            Some(object) => return Ok(Said::Object { code: StatusCode::OK, object, warnings: told }),
            None if !asked.is_empty() => return Err(write.modified()),
            None => {}
        }
    }
    Err(write.modified())
}

/// `PATCH`: an apply patch also creates.
pub(super) async fn patch(call: &Call<'_>, bytes: &[u8]) -> Result<Said, Failure> {
    let kind = call.kind();
    let patch_type = PatchType::of(call.header(header::CONTENT_TYPE).unwrap_or_default(), kind.custom)?;
    let applies = patch_type == PatchType::Apply;
    let options = WriteOptions::parse(&call.query, if applies { WriteKind::Apply } else { WriteKind::Patch })?;
    if call.part == Part::Scale {
        return scale::patch(call, options, patch_type, bytes).await;
    }
    let document = if applies { Some(apply::decode(bytes)?) } else { None };
    let write = Write { call, options };
    for _ in 0..TRIES {
        let stored = match read::stored(call) {
            Ok(stored) => Some(stored),
            Err(_) if applies && call.part == Part::Whole => None,
            Err(missing) => return Err(missing),
        };
        let object = match &document {
            Some(document) => write.applied(document, stored.as_ref().map(|(_, old)| old))?,
            None => write.patched(patch_type, bytes, stored.as_ref().map_or(&Value::Null, |(_, old)| old))?,
        };
        let Some((entry, old)) = stored else {
            return write.create(object, StatusCode::CREATED, false).await;
        };
        let mut warnings = Vec::new();
        let asked = meta(&object, "resourceVersion");
        if is_other_revision(asked, entry.revision)? {
            return Err(write.modified());
        }
        let locked = !asked.is_empty() && patch_names_revision(bytes);
        let books = if applies { Books::Kept } else { Books::Update };
        match write.replace(&old, entry.revision, object, &mut warnings, books).await? {
            Some(object) => return Ok(Said::Object { code: StatusCode::OK, object, warnings }),
            None if locked => return Err(write.modified()),
            None => {}
        }
    }
    Err(write.modified())
}

/// Whether a write names a revision that is not that of the object.
fn is_other_revision(asked: &str, revision: u64) -> Result<bool, Failure> {
    if asked.is_empty() {
        return Ok(false);
    }
    let asked: u64 = asked
        .parse()
        .map_err(|_| Failure::unclassified(format!("strconv.ParseUint: parsing {asked:?}: invalid syntax")))?;
    Ok(asked != revision)
}

/// Whether the patch itself says on which version it was made; then losing a race is a conflict.
fn patch_names_revision(bytes: &[u8]) -> bool {
    bytes.windows(b"resourceVersion".len()).any(|window| window == b"resourceVersion")
}

/// Who keeps the field owners of a write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Books {
    /// The write is an update by its manager.
    Update,
    /// They were kept already.
    Kept,
}

/// A write under way.
pub(super) struct Write<'a, 'c> {
    pub(super) call: &'a Call<'c>,
    pub(super) options: WriteOptions,
}

impl Write<'_, '_> {
    /// Creates an object whose name is settled.
    pub(super) async fn create(&self, mut object: Value, code: StatusCode, keep_books: bool) -> Result<Said, Failure> {
        let call = self.call;
        let (server, kind) = (call.server, call.kind());
        let mut warnings = Vec::new();
        self.check_still_served()?;
        self.check_namespace_takes_objects(&object)?;
        set_meta(&mut object, "uid", uid());
        set_meta(&mut object, "creationTimestamp", time(call.now));
        self.default(&mut object);
        if keep_books {
            strategy::prepare_for_books(kind, &mut object);
            let manager = self.manager();
            apply::updated(&self.books(&manager), None, &mut object);
        }
        // What the server fills in from here on belongs to nobody.
        strategy::prepare_for_create(kind, &mut object);
        if self.is_definition() {
            crd::prepare(&mut object, None);
        }
        self.admit_builtin(&mut object, None)?;
        // Held until the commit, so that no two Services get one address.
        let _allocation = self.allocation().await;
        if self.assigns_addresses() {
            server.assign_addresses(&mut object, None)?;
        }
        let name = meta(&object, "name").to_owned();
        self.mutate(Operation::Create, &name, &mut object, None, &mut warnings).await?;
        self.check(&object, None)?;
        warnings.extend(strategy::warnings(kind, &object));
        self.admit(Operation::Create, &name, &object, None, &mut warnings).await?;
        let key = read::key(call, &name);
        let about = About { name: &name, ..self.about() };
        if self.options.dry_run {
            if server.store.get(&key).is_some() {
                return Err(Failure::already_exists(about));
            }
            return Ok(Said::Object { code, object, warnings });
        }
        let stored_kind = call.served.clone();
        let set = move |revision| Change::Set(Inner::encode(&stored_kind.kind, object, revision));
        let entry = server.store.commit(key, Expect::Absent, set).await.map_err(|refused| refusal(about, &refused))?;
        let object = Inner::decode(kind, &entry)?;
        server.wrote(kind).await;
        Ok(Said::Object { code, object, warnings })
    }

    /// Admits, validates and commits `new` over `old`; none when someone else wrote in between.
    pub(super) async fn replace(
        &self,
        old: &Value,
        revision: u64,
        mut new: Value,
        warnings: &mut Vec<String>,
        books: Books,
    ) -> Result<Option<Value>, Failure> {
        let call = self.call;
        let (server, kind) = (call.server, call.kind());
        set_meta(&mut new, "resourceVersion", get_meta(old, "resourceVersion"));
        self.default(&mut new);
        if books == Books::Update && call.part != Part::Finalize {
            strategy::restore_generation(kind, &mut new);
            let manager = self.manager();
            apply::updated(&self.books(&manager), Some(old), &mut new);
            self.check_books(&mut new);
        }
        // What the server fills in or takes back from here on is nobody's doing.
        match call.part {
            Part::Finalize => {
                let finalizers = new["spec"]["finalizers"].clone();
                new = old.clone();
                new["spec"]["finalizers"] = finalizers;
            }
            Part::Status => strategy::prepare_for_update(kind, &mut new, old, strategy::Part::Status),
            Part::Whole | Part::Scale => strategy::prepare_for_update(kind, &mut new, old, strategy::Part::Main),
        }
        if self.is_definition() && call.part == Part::Whole {
            crd::prepare(&mut new, Some(old));
        }
        self.admit_builtin(&mut new, Some(old))?;
        let _allocation = self.allocation().await;
        if self.assigns_addresses() {
            server.assign_addresses(&mut new, Some(old))?;
        }
        self.mutate(Operation::Update, &call.name, &mut new, Some(old), warnings).await?;
        self.check(&new, Some(old))?;
        warnings.extend(strategy::warnings(kind, &new));
        self.admit(Operation::Update, &call.name, &new, Some(old), warnings).await?;
        apply::keep_times(old, &mut new);
        if new == *old {
            return Ok(Some(new));
        }
        if self.options.dry_run {
            return Ok(Some(new));
        }
        let grace = old["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
        let last = is_deleting(old) && grace == 0 && !has_finalizers(&new) && nothing_else_keeps(&new);
        // Watchers see an object that goes as it was; who let it go sees what they wrote.
        let (written, answered) = if last { (old.clone(), Some(new)) } else { (new, None) };
        let stored_kind = call.served.clone();
        let change = move |revision| {
            let bytes = Inner::encode(&stored_kind.kind, written, revision);
            if last { Change::Delete(bytes) } else { Change::Set(bytes) }
        };
        match server.store.commit(read::key(call, &call.name), Expect::Revision(revision), change).await {
            Ok(entry) => {
                let object = answered.map_or_else(|| Inner::decode(kind, &entry), Ok)?;
                server.wrote(kind).await;
                Ok(Some(object))
            }
            Err(Refused::Changed(_)) => Ok(None),
            Err(refused) => Err(refusal(self.about(), &refused)),
        }
    }

    /// The object as an apply patch would have it, with its owners.
    fn applied(&self, document: &Value, live: Option<&Value>) -> Result<Value, Failure> {
        let call = self.call;
        let manager = self.manager();
        let mut document = document.clone();
        let named = meta(&document, "name");
        if named.is_empty() {
            set_meta(&mut document, "name", call.name.as_str());
        }
        check_name(call, &document)?;
        let mut object = apply::apply(&self.books(&manager), live, &document, self.options.force)?;
        check_namespace(call, &mut object)?;
        Ok(object)
    }

    /// The object as another patch would have it.
    fn patched(&self, patch_type: PatchType, bytes: &[u8], live: &Value) -> Result<Value, Failure> {
        let (call, kind) = (self.call, self.call.kind());
        let validation = match self.options.field_validation {
            FieldValidation::Ignore => patch::FieldValidation::Ignore,
            FieldValidation::Warn => patch::FieldValidation::Warn,
            FieldValidation::Strict => patch::FieldValidation::Strict,
        };
        let patch::Patched { mut object, mut faults } = match patch_type {
            PatchType::Json => patch::json::patch(live, bytes, validation)?,
            PatchType::Merge => patch::merge::patch(live, bytes, validation)?,
            PatchType::Strategic => patch::strategic::patch(&kind.schema, live, bytes, validation)?,
            PatchType::Apply => return Err(Failure::internal("an apply patch was taken for another")),
        };
        let unknown = prune::prune(&kind.schema, &mut object);
        faults.extend(strict::unknown_fields(&unknown));
        if !faults.is_empty() && self.options.field_validation == FieldValidation::Strict {
            return Err(patch::invalid(patch_type, &object, &patch::strict_fault(&faults)));
        }
        if self.options.field_validation == FieldValidation::Warn {
            call.warn(faults);
        }
        if kind.custom {
            let (version, name) = body::type_of(&object).map_err(Failure::bad_request)?;
            body::check_type(kind, &version, &name, &object)?;
        } else {
            if let Some(why) = typed::fault(kind, &object) {
                return Err(patch::invalid(patch_type, &object, &why));
            }
            patch::settle_nulls(kind, &mut object);
        }
        check_name(call, &object)?;
        check_namespace(call, &mut object)?;
        Ok(object)
    }

    /// Takes the books away if another version in them cannot show the object, as Kubernetes does it.
    fn check_books(&self, new: &mut Value) {
        let kind = self.call.kind();
        if !kind.custom {
            return;
        }
        let served = self.call.server.served();
        let entries = new["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let versions = entries.iter().filter_map(|entry| entry["apiVersion"].as_str()?.rsplit('/').next());
        let others = versions.filter(|version| *version != kind.version);
        let fits = |version: &str| {
            let other = served.get(&kind.group, version, &kind.plural);
            other.is_none_or(|other| apply::fits(&other.kind, new))
        };
        if !others.into_iter().all(fits) {
            set_meta(new, "managedFields", Value::Null);
        }
    }

    /// A `PUT` says by its uid which object it means.
    fn check_uid(&self, new: &Value, old: &Value) -> Result<(), Failure> {
        let (asked, have) = (meta(new, "uid"), meta(old, "uid"));
        if asked.is_empty() || asked == have {
            return Ok(());
        }
        let (call, kind) = (self.call, self.call.kind());
        let group = if kind.custom { format!("{}/", kind.group) } else { String::new() };
        let namespace = if kind.namespaced { format!("{}/", call.namespace) } else { String::new() };
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{group}{}/{namespace}{}, ResourceVersion: 0, \
             AdditionalErrorMsg: Precondition failed: UID in precondition: {asked}, UID in object meta: {have}",
            kind.plural, call.name
        );
        Err(Failure::conflict(self.about(), &why))
    }

    /// A kind whose definition is going takes no new objects.
    fn check_still_served(&self) -> Result<(), Failure> {
        if !self.call.served.ending {
            return Ok(());
        }
        let mut failure = Failure::verb_not_supported(About { name: "", ..self.about() }, "create");
        "create not allowed while custom resource definition is terminating".clone_into(&mut failure.message);
        Err(failure)
    }

    /// Fills in what the kind's schema or its built-in rules leave to the server.
    fn default(&self, object: &mut Value) {
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

    /// Steps that only definitions of kinds take.
    fn is_definition(&self) -> bool {
        let kind = self.call.kind();
        kind.kind == "CustomResourceDefinition" && kind.group == "apiextensions.k8s.io"
    }

    fn admit_builtin(&self, object: &mut Value, old: Option<&Value>) -> Result<(), Failure> {
        let kind = self.call.kind();
        if kind.kind == "Pod" && kind.group.is_empty() { strategy::admit_pod(object, old) } else { Ok(()) }
    }

    fn assigns_addresses(&self) -> bool {
        let kind = self.call.kind();
        kind.kind == "Service" && kind.group.is_empty() && self.call.part == Part::Whole
    }

    async fn allocation(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if self.assigns_addresses() { Some(self.call.server.allocation.lock().await) } else { None }
    }

    /// Refuses an object that breaks the rules of its kind.
    fn check(&self, new: &Value, old: Option<&Value>) -> Result<(), Failure> {
        let (kind, served) = (self.call.kind(), &self.call.served);
        let part = if self.call.part == Part::Status { strategy::Part::Status } else { strategy::Part::Main };
        let mut causes = validate::validate(kind, new, old, part);
        if kind.custom {
            let status_only = self.call.part == Part::Status;
            let counts = kind.scale.iter().flat_map(|scale| crd::scale_faults(scale, new, status_only)).collect();
            let (schema, rules) = (&kind.schema, &served.rules);
            causes.extend(match old.filter(|_| status_only) {
                Some(old) => schema::validate::validate_status(schema, rules, new, old, counts),
                None => schema::validate::validate_with_rules(schema, rules, new, old, counts),
            });
        } else if kind.kind == "CustomResourceDefinition" && self.call.part == Part::Whole {
            causes.extend(crd::validate_definition(new, old));
        }
        if causes.is_empty() {
            return Ok(());
        }
        // Events are those of the core group, whichever shows them.
        let group = if events::is_view(kind) { "" } else { &kind.group };
        Err(Failure::invalid(About { group, resource: &kind.kind, name: meta(new, "name") }, &causes))
    }

    async fn mutate(
        &self,
        operation: Operation,
        name: &str,
        object: &mut Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Failure> {
        let hooks = self.call.server.hooks();
        if hooks.is_empty() {
            return Ok(());
        }
        let facts = Facts::of(self.call, &self.options, operation);
        let before = object.clone();
        hooks.mutate(&facts.attributes(self.call, operation, name, old), object, warnings).await?;
        if *object != before {
            let manager = self.manager();
            self.default(object);
            apply::updated(&self.books(&manager), Some(&before), object);
        }
        Ok(())
    }

    async fn admit(
        &self,
        operation: Operation,
        name: &str,
        object: &Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Failure> {
        let hooks = self.call.server.hooks();
        if hooks.is_empty() {
            return Ok(());
        }
        let facts = Facts::of(self.call, &self.options, operation);
        hooks.validate(&facts.attributes(self.call, operation, name, old), object, warnings).await
    }

    fn check_namespace_takes_objects(&self, object: &Value) -> Result<(), Failure> {
        let call = self.call;
        if !call.kind().namespaced {
            return Ok(());
        }
        let about = About { group: "", resource: "namespaces", name: &call.namespace };
        let namespace = call.server.namespace(&call.namespace).ok_or_else(|| Failure::not_found(about))?;
        if !is_deleting(&namespace) {
            return Ok(());
        }
        let why =
            format!("unable to create new content in namespace {} because it is being terminated", call.namespace);
        let mut failure = Failure::forbidden(About { name: meta(object, "name"), ..self.about() }, &why);
        let message = format!("namespace {} is being terminated", call.namespace);
        let cause = json!({ "reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace" });
        failure.details.insert("causes".to_owned(), json!([cause]));
        Err(failure)
    }

    pub(super) fn about(&self) -> About<'_> {
        About { group: &self.call.kind().group, resource: &self.call.kind().plural, name: &self.call.name }
    }

    pub(super) fn modified(&self) -> Failure {
        modified(self.about())
    }

    pub(super) fn manager(&self) -> String {
        if !self.options.field_manager.is_empty() {
            return self.options.field_manager.clone();
        }
        apply::manager_name(self.call.header(header::USER_AGENT).unwrap_or_default())
    }

    pub(super) fn books<'b>(&'b self, manager: &'b str) -> apply::Write<'b> {
        apply::Write { kind: self.call.kind(), manager, subresource: self.call.subresource(), now: self.call.now }
    }
}

/// What admission is told, owned.
pub(super) struct Facts {
    options: Value,
    labels: Option<Value>,
    versions: Vec<String>,
    dry_run: bool,
}

impl Facts {
    pub(super) fn of(call: &Call<'_>, options: &WriteOptions, operation: Operation) -> Self {
        let name = match operation {
            Operation::Create => "CreateOptions",
            Operation::Update | Operation::Connect => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
        };
        let mut said = json!({ "kind": name, "apiVersion": "meta.k8s.io/v1" });
        if !options.field_manager.is_empty() {
            said["fieldManager"] = options.field_manager.clone().into();
        }
        if options.dry_run {
            said["dryRun"] = json!(["All"]);
        }
        let labels = call.server.namespace(&call.namespace).map(|namespace| get_meta(&namespace, "labels"));
        let versions = call.server.served().versions(&call.kind().group, &call.kind().plural);
        Self { options: said, labels, versions, dry_run: options.dry_run }
    }

    pub(super) fn attributes<'b>(
        &'b self,
        call: &'b Call<'_>,
        operation: Operation,
        name: &'b str,
        old: Option<&'b Value>,
    ) -> Attributes<'b> {
        let kind = call.kind();
        let user: &User = call.user;
        Attributes {
            operation,
            group: &kind.group,
            version: &kind.version,
            kind: &kind.kind,
            resource: &kind.plural,
            subresource: call.subresource(),
            name,
            namespace: if kind.plural == "namespaces" && kind.group.is_empty() { name } else { &call.namespace },
            user,
            old,
            options: &self.options,
            dry_run: self.dry_run,
            namespace_labels: self.labels.as_ref(),
            versions: &self.versions,
            defaults: None,
        }
    }
}

/// Reads the object of a create or update, with what is wrong with its fields as warnings or as the refusal.
fn decode(call: &Call<'_>, bytes: &[u8], options: &WriteOptions) -> Result<Value, Failure> {
    let kind = call.kind();
    let form = negotiate::content(call.header(header::CONTENT_TYPE))?;
    let body::Decoded { mut value, .. } = body::object(form, bytes, kind).inspect_err(|failure| {
        // Of a version that it does not know Kubernetes knows no field either.
        if kind.custom && failure.message.starts_with("the API version in the data") {
            call.warn(foreign_fields(form, bytes));
        }
    })?;
    let mut faults = strict::faults((!kind.custom).then_some(&*kind.schema), bytes);
    let unknown = prune::prune(&kind.schema, &mut value);
    if kind.custom {
        faults.extend(strict::unknown_fields(&unknown));
    } else {
        patch::settle_nulls(kind, &mut value);
    }
    match options.field_validation {
        FieldValidation::Warn => call.warn(faults),
        FieldValidation::Strict if !faults.is_empty() => {
            return Err(Failure::bad_request(typed::refusal(kind, &strict::message(&faults))));
        }
        FieldValidation::Ignore | FieldValidation::Strict => {}
    }
    Ok(value)
}

fn foreign_fields(form: negotiate::Form, bytes: &[u8]) -> Vec<String> {
    let Ok(body::Decoded { value: Value::Object(fields), .. }) = body::decode(form, bytes) else { return Vec::new() };
    let names = fields.into_iter().map(|(name, _)| name);
    let foreign: Vec<String> = names.filter(|name| !matches!(&**name, "apiVersion" | "kind" | "metadata")).collect();
    strict::unknown_fields(&foreign).collect()
}

fn check_name(call: &Call<'_>, object: &Value) -> Result<(), Failure> {
    let named = meta(object, "name");
    if named == call.name {
        return Ok(());
    }
    let message = if named.is_empty() {
        "name is required".to_owned()
    } else {
        format!("the name of the object ({named}) does not match the name on the URL ({})", call.name)
    };
    Err(Failure::bad_request(message))
}

fn check_namespace(call: &Call<'_>, object: &mut Value) -> Result<(), Failure> {
    if !call.kind().namespaced {
        set_meta(object, "namespace", Value::Null);
        return Ok(());
    }
    let named = meta(object, "namespace").to_owned();
    if named.is_empty() {
        set_meta(object, "namespace", call.namespace.as_str());
    } else if named != call.namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Failure::bad_request(message));
    }
    Ok(())
}

/// A Namespace is also kept by the finalizers in its spec.
pub(super) fn nothing_else_keeps(object: &Value) -> bool {
    object["kind"] != "Namespace" || object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty)
}

pub(super) fn modified(about: About<'_>) -> Failure {
    let why = "the object has been modified; please apply your changes to the latest version and try again";
    Failure::conflict(about, why)
}

pub(super) fn refusal(about: About<'_>, refused: &Refused) -> Failure {
    match refused {
        Refused::Exists(there) => {
            let mut failure = Failure::already_exists(about);
            if serde_json::from_slice(&there.json).is_ok_and(|object| is_deleting(&object)) {
                failure.message = format!("object is being deleted: {}", failure.message);
            }
            failure
        }
        Refused::Changed(_) => modified(about),
        Refused::Gone => Failure::not_found(about),
        Refused::Storage(problem) => Failure::internal(format!("the store cannot write: {problem}")),
    }
}

/// Makes a namespace that must always be there.
pub(crate) async fn create_namespace(server: &Arc<Inner>, name: &str) {
    let Some(served) = server.served().get("", "v1", "namespaces").cloned() else { return };
    let (user, headers) = (User::new("system:apiserver", &["system:masters"]), http::HeaderMap::new());
    let call = Call {
        server,
        served,
        user: &user,
        headers: &headers,
        query: Query::parse("fieldManager=kube-apiserver"),
        namespace: String::new(),
        name: String::new(),
        part: Part::Whole,
        accepted: negotiate::Accepted { form: negotiate::Form::Json, shape: negotiate::Shape::Plain, pretty: false },
        now: jiff::Timestamp::now(),
        warnings: Mutex::default(),
    };
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    if let Err(problem) = create(&call, object.to_string().as_bytes()).await {
        tracing::error!(%problem, namespace = name, "a namespace could not be made");
    }
}
