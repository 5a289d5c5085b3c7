//! Making objects: `POST`, and whatever else finds that there is none yet.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::Full;
use serde_json::{Value, json};

use super::answer::{Call, answer, boxed};
use super::options::{WriteKind, revision};
use super::pipeline::{Books, Write, commit};
use super::read;
use super::show::Said;
use crate::admission::Operation;
use crate::auth::User;
use crate::crd;
use crate::kinds::strategy;
use crate::object::{is_deleting, meta, name_suffix, set_meta, time, uid};
use crate::patch::apply;
use crate::server::Inner;
use crate::status::{About, Failure};
use crate::store::Expect;

/// `POST`: creates the object in the body.
pub(super) async fn create(call: &Call<'_>, bytes: &[u8]) -> Result<Said, Failure> {
    let write = Write::new(call, WriteKind::Create)?;
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
    write.create(object, Books::Update).await
}

impl Write<'_, '_> {
    /// Creates an object whose name is settled.
    pub(super) async fn create(&self, mut object: Value, books: Books) -> Result<Said, Failure> {
        let call = self.call;
        let (kind, code) = (call.kind(), StatusCode::CREATED);
        if call.served.ending {
            // A kind whose definition is going takes no new objects.
            return Err(Failure::verb_not_supported(About { name: "", ..call.about() }, "create"));
        }
        self.check_namespace_takes_objects(&object)?;
        set_meta(&mut object, "uid", uid());
        set_meta(&mut object, "creationTimestamp", time(call.now));
        self.default(&mut object);
        if books == Books::Update {
            strategy::prepare_for_books(&mut object);
            apply::updated(&self.books(), None, &mut object);
        }
        // What the server fills in from here on belongs to nobody.
        strategy::prepare_for_create(kind, &mut object);
        if self.is_definition() {
            crd::prepare(&mut object, None);
        }
        let name = meta(&object, "name").to_owned();
        let _allocation = self.admit(Operation::Create, &name, &mut object, None).await?;
        let about = About { name: &name, ..call.about() };
        if !self.options.dry_run {
            let stored = commit(call, &name, Expect::Absent, object, false).await?;
            return stored.map(|entry| Said::Stored { code, entry }).ok_or_else(|| Failure::already_exists(about));
        }
        let taken = call.server.store.get(&read::key(call, &name)).is_some();
        if taken { Err(Failure::already_exists(about)) } else { Ok(Said::Object { code, object }) }
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
        let message = format!("namespace {} is being terminated", call.namespace);
        let mut failure = Failure::forbidden(About { name: meta(object, "name"), ..call.about() }, &message);
        let cause = json!({ "reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace" });
        failure.details.insert("causes".to_owned(), json!([cause]));
        Err(failure)
    }
}

/// Makes a namespace that must always be there.
pub(crate) async fn create_namespace(server: &Arc<Inner>, name: &str) {
    let user = User::new("system:apiserver", &["system:masters"]);
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let mut request = Request::new(boxed(Full::<Bytes>::from(object.to_string())));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static("/api/v1/namespaces?fieldManager=kube-apiserver");
    let response = answer(server, request, Ok(user)).await;
    if !response.status().is_success() {
        tracing::error!(code = %response.status(), namespace = name, "a namespace could not be made");
    }
}
