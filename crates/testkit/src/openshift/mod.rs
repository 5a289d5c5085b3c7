//! Stand-ins for OpenShift's controllers of egress addresses. Each looks at its objects again and again, and ends when
//! dropped.

mod cloud_controller;
mod private_ips;
mod sdn;

use std::time::Duration;

use kube::Client;
use tokio::task::JoinSet;
use tracing::debug;

pub use cloud_controller::{CloudController, LOCK, LOCK_NAMESPACE};
pub(crate) use private_ips::{PrivateIps, nodes};
pub use sdn::Sdn;

/// A controller that runs until this is dropped.
pub(crate) struct Running {
    _task: JoinSet<()>,
}

/// One pass over all objects.
pub(crate) trait Pass: Send + 'static {
    fn pass(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// Makes passes for ever. One that fails is made again.
pub(crate) fn run(mut controller: impl Pass) -> Running {
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            if let Err(problem) = controller.pass().await {
                debug!(%problem, "a stand-in of OpenShift tries again");
            }
            tokio::time::sleep(PAUSE).await;
        }
    });
    Running { _task: tasks }
}

/// Removes what stand-ins of an earlier test left.
pub async fn wipe(client: &Client) -> anyhow::Result<()> {
    cloud_controller::wipe(client).await?;
    PrivateIps::of(client).wipe().await
}

const PAUSE: Duration = Duration::from_millis(100);
