//! `portolan`, the one binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    portolan_cli::main(portolan_control::CAPABILITIES)
}
