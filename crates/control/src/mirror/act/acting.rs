//! What writes are prepared from.

use crate::mirror::events::MirrorEvents;
use crate::mirror::metrics::Metrics;
use crate::mirror::model::Model;
use crate::mirror::observe::Cache;
use crate::runtime::rate::Rate;
use crate::runtime::write::Writer;

/// What writes are prepared from.
#[derive(Clone, Copy)]
pub(in crate::mirror) struct Acting<'a> {
    pub(in crate::mirror) writer: &'a Writer,
    pub(in crate::mirror) cache: &'a Cache,
    pub(in crate::mirror) model: &'a Model,
    pub(in crate::mirror) rate: &'a Rate,
    pub(in crate::mirror) events: &'a MirrorEvents,
    pub(in crate::mirror) metrics: &'a Metrics,
    /// This operator's client, for single reads.
    pub(in crate::mirror) client: &'a kube::Client,
}

/// What writes are prepared with, besides the model.
pub(in crate::mirror) struct Parts<'a> {
    pub(in crate::mirror) writer: &'a Writer,
    pub(in crate::mirror) cache: &'a Cache,
    pub(in crate::mirror) rate: &'a Rate,
    pub(in crate::mirror) events: &'a MirrorEvents,
    pub(in crate::mirror) metrics: &'a Metrics,
    pub(in crate::mirror) client: &'a kube::Client,
}

impl<'a> Parts<'a> {
    pub(super) fn acting(&self, model: &'a Model) -> Acting<'a> {
        let Self { writer, cache, rate, events, metrics, client } = *self;
        Acting { writer, cache, model, rate, events, metrics, client }
    }
}
