//! Replacing objects: `PUT`.

use super::call::Call;
use super::options::{WriteKind, revision};
use super::pipeline::{FieldManagement, WriteRequest, modified};
use super::response::Reply;
use super::route::Subresource;
use super::scale;
use crate::kinds::strategy;
use crate::object::meta;
use crate::status::{Cause, Failure};

/// `PUT`: replaces the object by the one in the body. Some kinds can also be created by it.
pub(super) async fn update(call: &Call<'_>, bytes: &[u8]) -> Result<Reply, Failure> {
    let write = WriteRequest::new(call, WriteKind::Update)?;
    if call.subresource == Subresource::Scale {
        return scale::update(&write, bytes).await;
    }
    let object = write.decode(bytes)?;
    write.check_name(&object)?;
    let asked = revision(meta(&object, "resourceVersion"))?;
    let absent = call.server.store.get(&call.key(&call.name)).is_none();
    if absent && call.subresource == Subresource::Main && strategy::allows_create_on_update(call.kind()) {
        return if asked.is_some() {
            Err(modified(call.about()))
        } else {
            write.create(object, FieldManagement::Update).await
        };
    }
    write
        .change(FieldManagement::Update, |old| {
            let (uid, have) = (meta(&object, "uid"), meta(old, "uid"));
            if !uid.is_empty() && uid != have {
                return Err(Failure::conflict(call.about(), &format!("the uid of the object is {have}, not {uid}")));
            }
            if asked.is_none() && !strategy::allows_unconditional_update(call.kind()) {
                let message = "Invalid value: 0: must be specified for an update".to_owned();
                let field = "metadata.resourceVersion".to_owned();
                let cause = Cause { reason: "FieldValueInvalid", message, field };
                return Err(Failure::invalid(call.about(), &[cause]));
            }
            Ok(object.clone())
        })
        .await
}
