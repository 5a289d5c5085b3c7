//! What every write of egress is prepared from.

use super::super::model::Model;
use super::super::observe::Cache;
use crate::runtime::events::Recorder;
use crate::runtime::write::Writer;

/// What writes are prepared from, and sent with.
pub(in super::super) struct Acting<'a> {
    pub(in super::super) writer: &'a Writer,
    pub(in super::super) recorder: &'a Recorder,
    pub(in super::super) cache: &'a Cache,
    pub(in super::super) model: &'a Model,
}
