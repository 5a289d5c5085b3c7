//! moto, which the EC2 client is tested against.

use super::pip;
use crate::Failure;

/// Downloads moto, unless it is there.
pub(super) fn install() -> Result<(), Failure> {
    pip::install("moto", "crates/testkit/src/aws/moto-requirements.txt")
}
