//! A request as admission sees it.

use serde_json::Value;

use crate::auth::User;

/// What is done to the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    /// The word in rules and reviews.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// A request as admission sees it.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    pub operation: Operation,
    /// Empty for the core group.
    pub group: &'a str,
    pub version: &'a str,
    /// The kind of the body: `Scale` for the subresource `scale`.
    pub kind: &'a str,
    /// The plural.
    pub resource: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub name: &'a str,
    /// Empty for cluster-scoped objects; for a Namespace its own name.
    pub namespace: &'a str,
    pub user: &'a User,
    pub old: Option<&'a Value>,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions`, with kind and apiVersion.
    pub options: &'a Value,
    pub dry_run: bool,
    /// Labels of the namespace named above; none when there is no such namespace.
    pub namespace_labels: Option<&'a Value>,
    /// All served versions of the resource, for matchPolicy Equivalent.
    pub versions: &'a [String],
}
