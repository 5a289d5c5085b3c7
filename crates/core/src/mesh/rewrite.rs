//! What a rule writes into a session's metadata.

use serde_json::Value;

use super::path::Path;

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub struct Rewrite {
    /// Where.
    pub path: Path,
    /// What; taken as it is.
    pub value: Value,
}

impl Rewrite {
    /// A write of a value to a path.
    pub fn new(path: &str, value: Value) -> Self {
        Self { path: Path::new(path), value }
    }

    /// Does the write, and says whether the metadata had a place for it.
    pub fn apply(&self, metadata: &mut Value) -> bool {
        self.path.write(metadata, self.value.clone())
    }
}
