//! Creating objects: `POST`, and other verbs when the object does not exist.

use http::StatusCode;
use serde_json::{Value, json};

use super::binding;
use super::call::Call;
use super::options::{WriteKind, revision};
use super::pipeline::{FieldManagement, WriteRequest, commit};
use super::response::Reply;
use super::route::Subresource;
use crate::admission::Operation;
use crate::crd;
use crate::json::put;
use crate::kinds::strategy;
use crate::object::{is_deleting, meta, name_suffix, set_meta, time, uid};
use crate::patch::apply;
use crate::status::{About, Failure};
use crate::store::Expect;

/// `POST`: creates the object in the body.
pub(super) async fn create(call: &Call<'_>, bytes: &[u8]) -> Result<Reply, Failure> {
    let write = WriteRequest::new(call, WriteKind::Create)?;
    if call.subresource == Subresource::Binding {
        return binding::bind(&write, bytes).await;
    }
    let mut object = write.decode(bytes)?;
    let prefix = meta(&object, "generateName");
    if meta(&object, "name").is_empty() && !prefix.is_empty() {
        // Room for the suffix in the longest name that every kind takes.
        let name = format!("{}{}", &prefix[..prefix.floor_char_boundary(58)], name_suffix());
        set_meta(&mut object, "name", name);
    }
    if revision(meta(&object, "resourceVersion"))?.is_some() {
        return Err(Failure::unclassified("resourceVersion should not be set on objects to be created"));
    }
    write.create(object, FieldManagement::Update).await
}

impl WriteRequest<'_, '_> {
    /// Creates an object whose name is final.
    pub(super) async fn create(&self, mut object: Value, field_management: FieldManagement) -> Result<Reply, Failure> {
        let call = self.call;
        let (kind, code) = (call.kind(), StatusCode::CREATED);
        if call.served.ending {
            // A kind whose definition is being deleted accepts no new objects.
            return Err(Failure::verb_not_supported(About { name: "", ..call.about() }, "create"));
        }
        self.check_namespace_accepts_objects(&object)?;
        set_meta(&mut object, "uid", uid());
        set_meta(&mut object, "creationTimestamp", time(call.now));
        self.default(&mut object);
        if field_management == FieldManagement::Update {
            strategy::prepare_for_field_management(&mut object);
            apply::track_update(&self.field_manager(), None, &mut object);
        }
        // What the server sets from here on has no field owner.
        strategy::prepare_for_create(kind, &mut object);
        if self.is_definition() {
            crd::prepare(&mut object, None);
        }
        if kind.group == "certificates.k8s.io" {
            // Whoever asks for a certificate is named by the server, whatever the request says.
            put(&mut object["spec"], "username", call.user.name.clone());
            put(&mut object["spec"], "groups", call.user.groups.clone());
        }
        let name = meta(&object, "name").to_owned();
        let _allocation = self.admit(Operation::Create, &name, &mut object, None).await?;
        let about = About { name: &name, ..call.about() };
        if !self.options.dry_run {
            let stored = commit(call, &name, Expect::Absent, object, false).await?;
            return stored.map(|entry| Reply::Stored { code, entry }).ok_or_else(|| Failure::already_exists(about));
        }
        let taken = call.server.store.get(&call.key(&name)).is_some();
        if taken { Err(Failure::already_exists(about)) } else { Ok(Reply::Object { code, object }) }
    }

    fn check_namespace_accepts_objects(&self, object: &Value) -> Result<(), Failure> {
        let call = self.call;
        if !call.kind().namespaced {
            return Ok(());
        }
        let about = About { group: "", resource: "namespaces", name: &call.namespace };
        let namespace = call.server.namespace(&call.namespace).ok_or_else(|| Failure::not_found(about))?;
        if !is_deleting(&namespace) {
            return Ok(());
        }
        let message = format!("namespace {} is being terminated", call.namespace);
        let mut failure = Failure::forbidden(About { name: meta(object, "name"), ..call.about() }, &message);
        let cause = json!({ "reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace" });
        failure.details.insert("causes".to_owned(), json!([cause]));
        Err(failure)
    }
}
