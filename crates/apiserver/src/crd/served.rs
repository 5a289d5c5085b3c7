//! The kinds that are served: the built-in ones, and those of definitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::kinds::Kind;
use crate::schema::cel::Rules;
use crate::store::Resource;

/// A kind with what was compiled for it.
#[derive(Debug)]
pub(crate) struct ServedKind {
    pub(crate) kind: Kind,
    pub(crate) rules: Rules,
    /// Whether its definition is being deleted.
    pub(crate) ending: bool,
    pub(crate) resource: Resource,
}

/// All kinds served, by group, version and plural. A change of definitions makes a new one.
#[derive(Debug, Default)]
pub(crate) struct Served {
    kinds: BTreeMap<(String, String, String), Arc<ServedKind>>,
}

impl FromIterator<ServedKind> for Served {
    fn from_iter<I: IntoIterator<Item = ServedKind>>(kinds: I) -> Self {
        let by_name = |served: ServedKind| {
            let kind = &served.kind;
            ((kind.group.clone(), kind.version.clone(), kind.plural.clone()), Arc::new(served))
        };
        Self { kinds: kinds.into_iter().map(by_name).collect() }
    }
}

impl Served {
    pub(crate) fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ServedKind>> {
        self.kinds.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    pub(crate) fn kinds(&self) -> Vec<&Kind> {
        self.kinds.values().map(|served| &served.kind).collect()
    }

    /// All versions in which a resource is served.
    pub(crate) fn versions(&self, group: &str, plural: &str) -> Vec<String> {
        let same = self.kinds.values().filter(|served| served.kind.group == group && served.kind.plural == plural);
        same.map(|served| served.kind.version.clone()).collect()
    }
}
