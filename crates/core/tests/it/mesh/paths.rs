//! Reads, predicate reads and writes at every kind of path.

use portolan_core::mesh::{Path, Rewrite};
use serde::Deserialize;
use serde_json::Value;

use super::table;

#[derive(Deserialize)]
struct Group {
    about: String,
    on: Value,
    /// Path and what is there; no second item where nothing is.
    #[serde(default)]
    read: Vec<Vec<Value>>,
    /// The same for predicates.
    #[serde(default)]
    predicate: Vec<Vec<Value>>,
    #[serde(default)]
    write: Vec<Write>,
}

#[derive(Deserialize)]
struct Write {
    path: String,
    value: Value,
    /// All afterwards; absent where nothing is set.
    #[serde(default)]
    gives: Option<Value>,
}

#[test]
fn the_table_of_paths_holds() {
    let groups: Vec<Group> = table::read(include_str!("cases/paths.yaml"));
    let (mut cases, mut complaints) = (0, Vec::new());
    for group in &groups {
        for (rows, path) in [(&group.read, Path::new as fn(&str) -> Path), (&group.predicate, Path::predicate)] {
            cases += rows.len();
            complaints.extend(rows.iter().filter_map(|row| misread(group, row, path)));
        }
        cases += group.write.len();
        complaints.extend(group.write.iter().filter_map(|write| miswritten(group, write)));
    }
    table::judge(cases, 75, &complaints);
}

fn misread(group: &Group, row: &[Value], path: fn(&str) -> Path) -> Option<String> {
    let Some(Value::String(text)) = row.first() else { return Some(format!("no path in {row:?}")) };
    let found = path(text).read(&group.on);
    (found != row.get(1)).then(|| format!("{}: {text:?} finds {found:?}", group.about))
}

fn miswritten(group: &Group, write: &Write) -> Option<String> {
    let mut data = group.on.clone();
    let set = Rewrite::new(&write.path, write.value.clone()).apply(&mut data);
    let wanted = write.gives.as_ref().unwrap_or(&group.on);
    let fits = set == write.gives.is_some() && data == *wanted;
    (!fits).then(|| format!("{}: {:?} set {set} gives {data}", group.about, write.path))
}
