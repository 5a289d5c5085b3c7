//! Node.js, a foreign client of the proxy's tests: Debian's may be too old to speak WebSocket.

use super::pip;
use crate::Failure;

/// Downloads Node.js, unless it is there.
pub(super) fn install() -> Result<(), Failure> {
    pip::install("node", "crates/proxy/tests/it/traffic/foreign/node-requirements.txt")
}
