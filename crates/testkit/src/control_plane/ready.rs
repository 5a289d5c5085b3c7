//! Waiting until a control plane is at work.

use std::time::{Duration, Instant};

use anyhow::bail;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{Api, Client, Config};

use crate::program::Program;

/// How long a start may take, on a busy machine of two cores, before it is given up.
pub(super) const LIMIT: Duration = Duration::from_mins(3);

/// How often the programs are looked at while they start.
const TICK: Duration = Duration::from_millis(50);

/// What to wait for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    /// The API server says it is ready and has made the namespace `default`.
    ApiServer,
    /// The controller manager says on its port that it is healthy, and one of its controllers has acted.
    ControllerManager { port: u16 },
}

/// Waits for `stage`, or fails once a program has ended or the time is up. Blocks, and needs no runtime.
pub(super) fn wait(stage: Stage, config: &Config, programs: &mut [Program], deadline: Instant) -> anyhow::Result<()> {
    // A thread of its own, because the caller's may belong to a runtime, and runtimes do not nest.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(poll(stage, config, programs, deadline))
        });
        waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

async fn poll(stage: Stage, config: &Config, programs: &mut [Program], deadline: Instant) -> anyhow::Result<()> {
    let (mut probing, mut last) = (Box::pin(probe(stage, config)), String::from("no answer yet"));
    loop {
        // A program that has ended never answers, so the programs are looked at meanwhile.
        match tokio::time::timeout(TICK, &mut probing).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => {
                last = format!("{error:#}");
                tokio::time::sleep(TICK).await;
                probing = Box::pin(probe(stage, config));
            }
            Err(_) => {}
        }
        for program in &mut *programs {
            if let Some(status) = program.ended()? {
                bail!("{} ended ({status}):\n{}", program.name(), program.log_tail());
            }
        }
        if Instant::now() > deadline {
            let logs: Vec<String> =
                programs.iter().map(|program| format!("--- {}\n{}", program.name(), program.log_tail())).collect();
            bail!("{stage:?} was not ready within {} s: {last}\n{}", LIMIT.as_secs(), logs.join("\n"));
        }
    }
}

async fn probe(stage: Stage, config: &Config) -> anyhow::Result<()> {
    let client = Client::try_from(config.clone())?;
    match stage {
        Stage::ApiServer => {
            client.request_text(http::Request::get("/readyz").body(Vec::new())?).await?;
            Api::<Namespace>::all(client).get("default").await?;
        }
        Stage::ControllerManager { port } => {
            let mut health = config.clone();
            health.cluster_url = format!("https://127.0.0.1:{port}").parse()?;
            let request = http::Request::get("/healthz").body(Vec::new())?;
            Client::try_from(health)?.request_text(request).await?;
            Api::<ServiceAccount>::namespaced(client, "default").get("default").await?;
        }
    }
    Ok(())
}
