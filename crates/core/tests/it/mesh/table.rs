//! Reads a table and tells all failures at once.

use serde::de::DeserializeOwned;

/// The rows of a table.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Vec<T> {
    serde_saphyr::from_str(text).expect("the table is YAML of the row's type")
}

/// Fails with every complaint, and when there were fewer cases than the table promises.
pub(crate) fn judge(cases: usize, least: usize, complaints: &[String]) {
    assert!(complaints.is_empty(), "{} of {cases} cases:\n{}", complaints.len(), complaints.join("\n"));
    assert!(cases >= least, "only {cases} cases where {least} were promised");
}
