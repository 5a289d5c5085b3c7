//! `portolan`, the one binary.

use std::process::ExitCode;

/// The operators make and drop many small values: with the system's allocator half of the mesh's time went there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    portolan_cli::main(portolan_control::CAPABILITIES)
}
