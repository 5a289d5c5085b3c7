//! `portolan` with one more capability: the tickets of `crates/control/examples/tickets`. Every command knows it.
//!
//! ```console
//! $ cargo run -p portolan --example portolan-tickets -- operator --help
//! $ cargo run -p portolan --example portolan-tickets -- status
//! ```

#[path = "../../control/examples/tickets/capability/mod.rs"]
mod capability;

use std::process::ExitCode;

use portolan_control::{egress, mesh};

fn main() -> ExitCode {
    portolan_cli::main(&[&egress::CAPABILITY, &mesh::CAPABILITY, &capability::CAPABILITY])
}
