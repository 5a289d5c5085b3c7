//! The testkit by hand.
//!
//! - `portolan-testkit setup` prepares the Kubernetes binaries and Helm, and prints the folder of the former.
//! - `portolan-testkit image PROGRAM FOLDER` writes the OCI archive of the program, and the list of its parts.
//! - `portolan-testkit cluster up|load|status|down FOLDER` is a cluster in the background; see [`by_hand`].
//! - `portolan-testkit conformance mcs|kubernetes PROGRAM REPORT` runs a conformance suite with that `portolan`, and writes
//!   a report.
//! - `portolan-testkit run` starts a control plane, prints the path of its kubeconfig and the ids of its
//!   processes, and ends it when standard input is closed.

use std::{
    fs,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use portolan_testkit::{
    Binaries, ControlPlane,
    cluster::by_hand,
    conformance, helm,
    image::{self, Image},
    old_kubectl,
};
use tokio::signal::unix::{SignalKind, signal};

/// The exit code after SIGINT, as shells have it.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["setup"] => setup(),
        ["image", program, folder] => image(Path::new(program), Path::new(folder)),
        ["cluster", "up", folder] => by_hand::up(Path::new(folder)),
        ["cluster", "run", folder] => by_hand::run(Path::new(folder)),
        ["cluster", "load", folder, archive] => by_hand::load(Path::new(folder), Path::new(archive)),
        ["cluster", "status", folder] => by_hand::status(Path::new(folder)),
        ["cluster", "down", folder] => by_hand::down(Path::new(folder)),
        ["conformance", suite @ ("mcs" | "kubernetes"), program, report] => {
            return conformance(suite, Path::new(program), Path::new(report));
        }
        ["run"] => run(),
        _ => {
            writeln!(
                io::stderr(),
                "usage: portolan-testkit setup | image PROGRAM FOLDER | cluster up|load|status|down FOLDER | \
                 conformance mcs|kubernetes PROGRAM REPORT | run"
            )
            .ok();
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    writeln!(io::stderr(), "error: {error:#}").ok();
    ExitCode::FAILURE
}

fn setup() -> anyhow::Result<()> {
    let binaries = Binaries::build()?;
    helm::build()?;
    old_kubectl::build()?;
    writeln!(io::stdout(), "{}", binaries.folder().display())?;
    Ok(())
}

fn image(program: &Path, folder: &Path) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let mut image = Image::of_program(&format!("docker.io/library/portolan:{version}"), program)?;
    let labels = [
        ("title", "portolan"),
        ("description", "The network edge of Kubernetes clusters: every way in, out, across and through"),
        ("version", version),
        ("licenses", "Apache-2.0"),
    ];
    image.labels =
        labels.map(|(key, value)| (format!("org.opencontainers.image.{key}"), value.to_owned())).into_iter().collect();
    let archive = image.archive()?;
    let file = folder.join(format!("portolan-{version}.oci.tar"));
    fs::write(&file, &archive)?;
    let parts = image::sbom::of_package("portolan", Path::new("."))?;
    let list = folder.join(format!("portolan-{version}.cdx.json"));
    fs::write(&list, format!("{parts:#}\n"))?;
    let (megabytes, digest) = (archive.len() / 1_000_000, image::digest_of(&archive));
    writeln!(io::stdout(), "{} ({megabytes} MB, {digest})\n{}", file.display(), list.display())?;
    Ok(())
}

/// Ends early on SIGINT and SIGTERM, with all that it started.
fn conformance(suite: &str, program: &Path, report: &Path) -> ExitCode {
    let run = async || {
        if suite == "mcs" {
            conformance::mcs(program, report).await
        } else {
            conformance::kubernetes(program, report).await
        }
    };
    let suite = async {
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            conforms = run() => conforms.map(|conforms| u8::from(!conforms)),
            _ = tokio::signal::ctrl_c() => Ok(INTERRUPTED),
            _ = terminate.recv() => Ok(INTERRUPTED),
        }
    };
    let runtime = tokio::runtime::Runtime::new().map_err(anyhow::Error::from);
    match runtime.and_then(|runtime| runtime.block_on(suite)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => failed(&error),
    }
}

fn run() -> anyhow::Result<()> {
    let plane = ControlPlane::start()?;
    let ids: Vec<String> = plane.process_ids().iter().map(u32::to_string).collect();
    writeln!(io::stdout(), "{}\n{}", plane.kubeconfig_path().display(), ids.join(" "))?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}
