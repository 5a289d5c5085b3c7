//! Lists that are sets or maps: items are told apart by themselves or by their keys.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fault::duplicate;
use super::{ListType, Path, Schema};
use crate::status::Cause;

/// Items that come twice in a list of type set or map.
pub(super) fn duplicates(schema: &Schema, items: &[Value], path: &Path<'_>, found: &mut Vec<Cause>) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        let key = match &schema.list_type {
            ListType::Atomic => return,
            ListType::Set => item.clone(),
            ListType::Map(keys) => keys.iter().filter_map(|key| Some((key.as_str(), item.get(key)?.clone()))).collect(),
        };
        let times = seen.entry(key.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            found.push(duplicate(Path::Item(path, index).field(), &key));
        }
    }
}

/// The item of a list of type map that has the keys of `item`.
pub(super) fn correlated<'a>(schema: &Schema, old: &'a [Value], item: &Value) -> Option<&'a Value> {
    let ListType::Map(keys) = &schema.list_type else { return None };
    let same = |candidate: &&Value| candidate.is_object() && keys.iter().all(|key| candidate.get(key) == item.get(key));
    old.iter().find(same)
}
