//! The Python client of Kubernetes and kopf, which `portolan up` is tested with.

use super::pip;
use crate::Failure;

/// Downloads the packages, unless they are there.
pub(super) fn install() -> Result<(), Failure> {
    pip::install("python", "crates/testkit/src/python-requirements.txt")
}
