//! `PATCH` with its four patch types. An apply patch also creates.

use http::header;
use serde_json::Value;

use super::call::Call;
use super::options::{FieldValidation, WriteKind};
use super::pipeline::{FieldManagement, WriteRequest};
use super::response::Reply;
use super::route::Subresource;
use super::{body, scale};
use crate::kinds::typed;
use crate::object::{meta, set_meta};
use crate::patch::{self, PatchType, apply};
use crate::schema::{prune, strict};
use crate::status::Failure;

/// `PATCH`: applies the patch in the body.
pub(super) async fn patch(call: &Call<'_>, bytes: &[u8]) -> Result<Reply, Failure> {
    let patch_type = PatchType::of(call.header(header::CONTENT_TYPE).unwrap_or_default(), call.kind().custom)?;
    let applies = patch_type == PatchType::Apply;
    let write = WriteRequest::new(call, if applies { WriteKind::Apply } else { WriteKind::Patch })?;
    if call.subresource == Subresource::Scale {
        return scale::patch(&write, patch_type, bytes).await;
    }
    if !applies {
        return write.change(FieldManagement::Update, |old| write.patched(patch_type, bytes, old)).await;
    }
    let document = apply::decode(bytes)?;
    let absent = call.server.store.get(&call.key(&call.name)).is_none();
    if absent && call.subresource == Subresource::Main {
        return write.create(write.applied(&document, None)?, FieldManagement::Done).await;
    }
    write.change(FieldManagement::Done, |old| write.applied(&document, Some(old))).await
}

impl WriteRequest<'_, '_> {
    /// The result of an apply patch, with its field owners.
    fn applied(&self, document: &Value, live: Option<&Value>) -> Result<Value, Failure> {
        let mut document = document.clone();
        if meta(&document, "name").is_empty() {
            set_meta(&mut document, "name", self.call.name.as_str());
        }
        self.check_name(&document)?;
        let mut object = apply::apply(&self.field_manager(), live, &document, self.options.force)?;
        self.check_namespace(&mut object)?;
        Ok(object)
    }

    /// The result of another patch.
    fn patched(&self, patch_type: PatchType, bytes: &[u8], live: &Value) -> Result<Value, Failure> {
        let (kind, validation) = (self.call.kind(), self.options.field_validation);
        let mut object = match patch_type {
            PatchType::Json => patch::json::patch(live, bytes)?,
            PatchType::Merge => patch::merge::patch(live, bytes)?,
            PatchType::Strategic => patch::strategic::patch(&kind.schema, live, bytes)?,
            PatchType::Apply => return Err(Failure::internal("an apply patch in the wrong place")),
        };
        let unknown = prune::prune(&kind.schema, &mut object);
        let faults: Vec<String> = strict::unknown_fields(&unknown).collect();
        match validation {
            FieldValidation::Warn => self.call.warn(faults),
            FieldValidation::Strict if !faults.is_empty() => {
                return Err(patch::invalid(&object, &patch::strict_fault(&faults)));
            }
            FieldValidation::Ignore | FieldValidation::Strict => {}
        }
        if kind.custom {
            body::check_type(kind, &object)?;
        } else {
            if let Some(why) = typed::fault(kind, &object) {
                return Err(patch::invalid(&object, &why));
            }
            patch::remove_nulls(kind, &mut object);
        }
        self.check_name(&object)?;
        self.check_namespace(&mut object)?;
        Ok(object)
    }
}
