//! The binary as a user meets it: what it prints, where, and how it exits.

mod clients;
mod egress;
mod errors;
mod gateway;
mod generated;
mod guides;
mod help;
mod ipam;
mod mesh;
mod mirror;
mod operator;
mod proxy;
mod questions;
mod tickets;
mod up;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_mins(1);

/// What a run of the binary left behind.
#[derive(Debug, PartialEq, Eq)]
struct Ran {
    exit: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs `portolan` with a line of plain words.
fn portolan(line: &str) -> Ran {
    ran(program(Path::new(env!("CARGO_BIN_EXE_portolan"))).args(line.split_whitespace()).output())
}

#[expect(clippy::disallowed_methods, reason = "the test is about the program as it is started")]
fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.env_clear().current_dir(env!("CARGO_TARGET_TMPDIR")).stdin(Stdio::null());
    command
}

fn ran(output: std::io::Result<Output>) -> Ran {
    let Output { status, stdout, stderr } = output.expect("the binary starts");
    let text = |bytes| String::from_utf8(bytes).expect("it prints text");
    Ran { exit: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

fn until(what: &str, mut holds: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let began = Instant::now();
    while !holds()? {
        anyhow::ensure!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
