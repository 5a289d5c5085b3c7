//! One request for objects, parsed: what every verb works on.

use std::sync::Arc;

use http::{HeaderMap, header};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;

use super::negotiate::Accepted;
use super::options::Query;
use super::route::Subresource;
use crate::auth::User;
use crate::crd::ServedKind;
use crate::kinds::Kind;
use crate::state::ServerState;
use crate::status::{About, Failure};
use crate::store::{Entry, Key};

/// One request for objects, parsed.
pub(super) struct Call<'a> {
    pub(super) server: &'a Arc<ServerState>,
    pub(super) served: Arc<ServedKind>,
    pub(super) user: &'a User,
    pub(super) headers: &'a HeaderMap,
    pub(super) query: Query,
    /// Empty for all namespaces, and for cluster-wide kinds.
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) subresource: Subresource,
    pub(super) accepted: Accepted,
    pub(super) now: Timestamp,
    /// Warnings for the client, also when its request fails; each once.
    pub(super) warnings: Mutex<Vec<String>>,
}

impl Call<'_> {
    pub(super) fn kind(&self) -> &Kind {
        &self.served.kind
    }

    /// The object of the request, for failures.
    pub(super) fn about(&self) -> About<'_> {
        About { group: &self.kind().group, resource: &self.kind().plural, name: &self.name }
    }

    /// `status`, `scale`, `finalize`, or empty.
    pub(super) fn subresource_name(&self) -> &'static str {
        match self.subresource {
            Subresource::Main => "",
            Subresource::Status => "status",
            Subresource::Scale => "scale",
            Subresource::Finalize => "finalize",
            Subresource::Binding => "binding",
        }
    }

    /// Adds warnings for the client, also when its request fails.
    pub(super) fn warn(&self, warnings: impl IntoIterator<Item = String>) {
        let mut known = self.warnings.lock();
        for warning in warnings {
            if !known.contains(&warning) {
                known.push(warning);
            }
        }
    }

    pub(super) fn header(&self, name: header::HeaderName) -> Option<&str> {
        header_text(self.headers, name)
    }

    /// Whether the request is for objects of this kind of the core group.
    pub(super) fn is_core(&self, kind: &str) -> bool {
        self.kind().group.is_empty() && self.kind().kind == kind
    }

    /// The key of an object in the namespace of the request.
    pub(super) fn key(&self, name: &str) -> Key {
        Key::new(&self.served.resource, &self.namespace, name)
    }

    /// The stored entry of the object of the request.
    pub(super) fn entry(&self) -> Result<Arc<Entry>, Failure> {
        self.server.store.get(&self.key(&self.name)).ok_or_else(|| Failure::not_found(self.about()))
    }

    /// The object of the request, and its entry.
    pub(super) fn stored(&self) -> Result<(Arc<Entry>, Value), Failure> {
        let entry = self.entry()?;
        let object = ServerState::decode(self.kind(), &entry)?;
        Ok((entry, object))
    }
}

/// A header that is text.
pub(super) fn header_text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
