//! Records what each user requested, for tests of least privilege.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::authorizer::Access;
use super::user::User;

/// The most records that are kept.
const MAX_RECORDS: usize = 100_000;

/// One kind of request of a user.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    pub user: String,
    pub verb: String,
    pub group: String,
    /// The plural; the path for what is no resource.
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

/// Off until switched on.
#[derive(Debug, Default)]
pub struct Recorder {
    on: AtomicBool,
    records: Mutex<BTreeSet<Record>>,
}

impl Recorder {
    /// Switches recording on or off; what was recorded stays.
    pub fn switch(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    /// Records a request, once.
    pub fn note(&self, user: &User, access: Access<'_>) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let [verb, group, resource, subresource, namespace, name] = match access {
            Access::Resource { verb, group, resource, subresource, namespace, name } => {
                [verb, group, resource, subresource, namespace, name]
            }
            Access::Path { verb, path } => [verb, "", path, "", "", ""],
        }
        .map(str::to_owned);
        let record = Record { user: user.name.clone(), verb, group, resource, subresource, namespace, name };
        let mut records = self.records.lock();
        if records.len() < MAX_RECORDS {
            records.insert(record);
        }
    }

    /// Takes all records, in order.
    pub fn take(&self) -> BTreeSet<Record> {
        std::mem::take(&mut self.records.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorder_notes_each_thing_once_and_nothing_while_off() {
        let recorder = Recorder::default();
        let user = User::new("operator", &[]);
        let list =
            Access::Resource { verb: "list", group: "", resource: "pods", subresource: "", namespace: "a", name: "" };

        recorder.note(&user, list);
        recorder.switch(true);
        recorder.note(&user, list);
        recorder.note(&user, list);
        recorder.note(&user, Access::Path { verb: "get", path: "/version" });

        let records: Vec<Record> = recorder.take().into_iter().collect();
        assert_eq!(records.iter().map(|record| record.resource.as_str()).collect::<Vec<_>>(), ["/version", "pods"]);
        assert!(recorder.take().is_empty());
    }
}
