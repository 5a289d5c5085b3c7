//! Python's client of Kubernetes, and an operator written with kopf.
//!
//! The scripts beside this file are what a user would write; their tests are run by Python's own `unittest`.

use std::path::Path;
use std::time::{Duration, Instant};

use portolan_testkit::{Program, Signal, python};

use crate::up::Up;

/// How long a script may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(5);

#[test]
fn the_python_client_does_all_that_scripts_do_with_it() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &[])?;
    run(&up, "client.py", 10)?;
    up.stop()?;
    Ok(())
}

#[test]
fn an_operator_written_with_kopf_creates_follows_and_cleans_up() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &["--empty"])?;
    up.kubectl(&format!("apply -f {}", script("ferries.yaml")))?;
    up.kubectl("wait --for=condition=Established crd/ferries.example.dev --timeout=60s")?;
    let mut kopf = start(&up, "kopf", &["-m", "kopf", "run", "--standalone", "-n", "default", &script("operator.py")])?;
    let outcome = run(&up, "ferries.py", 5);
    anyhow::ensure!(kopf.ended()?.is_none(), "kopf ended: {}", kopf.log_tail());
    outcome.map_err(|error| error.context(format!("kopf said {}", kopf.log_tail())))?;
    kopf.signal(Signal::TERM)?;
    anyhow::ensure!(ended(&mut kopf)?, "kopf ended badly: {}", kopf.log_tail());
    up.stop()?;
    Ok(())
}

fn script(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients").join(name).display().to_string()
}

/// Runs the tests of a script, which must be so many.
fn run(up: &Up, name: &str, tests: usize) -> anyhow::Result<()> {
    let mut python = start(up, name, &[&script(name)])?;
    let succeeds = ended(&mut python)?;
    let log = python.log()?;
    anyhow::ensure!(succeeds && log.contains(&format!("Ran {tests} tests")), "{name}:\n{log}");
    Ok(())
}

/// Whether it ends, and well.
fn ended(program: &mut Program) -> anyhow::Result<bool> {
    let began = Instant::now();
    loop {
        if let Some(status) = program.ended()? {
            return Ok(status.success());
        }
        anyhow::ensure!(began.elapsed() < PATIENCE, "{} does not end:\n{}", program.name(), program.log_tail());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn start(up: &Up, name: &str, words: &[&str]) -> anyhow::Result<Program> {
    let mut arguments = vec![
        format!("HOME={}", up.folder().display()),
        format!("KUBECONFIG={}", up.folder().join("kubeconfig").display()),
        format!("PYTHONPATH={}", python::packages()?.display()),
        "PYTHONDONTWRITEBYTECODE=1".to_owned(),
        "PYTHONUNBUFFERED=1".to_owned(),
        "python3".to_owned(),
    ];
    arguments.extend(words.iter().map(|word| (*word).to_owned()));
    Program::start(name, Path::new("/usr/bin/env"), &arguments, up.folder())
}
