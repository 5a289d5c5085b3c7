//! What writes are prepared from.

use crate::gateway_client::login::LoginProblem;
use crate::gateway_client::model::Model;
use crate::gateway_client::observe::Cache;
use crate::gateway_client::pauses::Pauses;
use crate::runtime::events::Recorder;
use crate::runtime::write::Writer;

/// What writes are prepared from.
#[derive(Clone, Copy)]
pub(in crate::gateway_client) struct Acting<'a> {
    pub(in crate::gateway_client) writer: &'a Writer,
    pub(in crate::gateway_client) recorder: &'a Recorder,
    pub(in crate::gateway_client) cache: &'a Cache,
    pub(in crate::gateway_client) model: &'a Model,
    pub(in crate::gateway_client) pauses: &'a Pauses,
    /// Why there is no login.
    pub(in crate::gateway_client) login: Option<&'a LoginProblem>,
}
