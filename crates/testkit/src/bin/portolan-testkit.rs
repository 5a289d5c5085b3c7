//! The testkit by hand.
//!
//! - `portolan-testkit setup` prepares the Kubernetes binaries and Helm, and prints the folder of the former.
//! - `portolan-testkit run` starts a control plane, prints the path of its kubeconfig and the ids of its
//!   processes, and ends it when standard input is closed.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use portolan_testkit::{Binaries, ControlPlane, helm};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["setup"] => setup(),
        ["run"] => run(),
        _ => {
            writeln!(io::stderr(), "usage: portolan-testkit setup | run").ok();
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(io::stderr(), "error: {error:#}").ok();
            ExitCode::FAILURE
        }
    }
}

fn setup() -> anyhow::Result<()> {
    let binaries = Binaries::build()?;
    helm::build()?;
    writeln!(io::stdout(), "{}", binaries.folder().display())?;
    Ok(())
}

fn run() -> anyhow::Result<()> {
    let plane = ControlPlane::start()?;
    let ids: Vec<String> = plane.process_ids().iter().map(u32::to_string).collect();
    writeln!(io::stdout(), "{}\n{}", plane.kubeconfig_path().display(), ids.join(" "))?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}
