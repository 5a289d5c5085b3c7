//! One stream: the machine with its clock and its orders.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::grpc::{Call, CallError, Requests, Responses, Status};
use super::machine::Machine;
use super::progress::StreamGuard;
use super::{Feed, Order};
use crate::envoy::proto::discovery::DeltaDiscoveryRequest;
use crate::envoy::resources::Snapshot;

/// Orders that follow another one within this time are one change; the first goes out at once.
const MERGE: Duration = Duration::from_millis(10);

/// Serves a call until the client or the orders end it.
pub(super) async fn serve_call(call: Call, feed: Feed) {
    let Call { mut requests, mut responses } = call;
    match converse(&mut requests, &mut responses, feed).await {
        Ok(never) => match never {},
        Err(CallError::Gone) => {}
        Err(CallError::Ended(status)) => responses.end(&status),
    }
}

async fn converse(
    requests: &mut Requests,
    responses: &mut Responses,
    mut feed: Feed,
) -> Result<std::convert::Infallible, CallError> {
    let mut machine = Machine::new(next_order(&mut feed)?);
    let stream = StreamGuard::open(Arc::clone(&feed.progress));
    let mut next_change = Instant::now();
    loop {
        while let Some(response) = machine.poll() {
            responses.send(&response).await?;
        }
        stream.report(&machine);
        tokio::select! {
            request = requests.next() => {
                let request = request?.ok_or(CallError::Gone)?;
                check_node(&request, &feed)?;
                machine.handle(&request).map_err(|why| CallError::Ended(Status::exhausted(why.to_string())))?;
            }
            changed = feed.orders.changed() => {
                changed.map_err(|_| CallError::Ended(Status::unavailable("the server ends")))?;
                sleep_until(next_change).await;
                machine.want(next_order(&mut feed)?);
                next_change = Instant::now() + MERGE;
            }
        }
    }
}

fn next_order(feed: &mut Feed) -> Result<Arc<Snapshot>, CallError> {
    match &*feed.orders.borrow_and_update() {
        Order::Serve(snapshot) | Order::Drain(snapshot) => Ok(Arc::clone(snapshot)),
        Order::StandBy => Err(CallError::Ended(Status::unavailable("another replica leads"))),
        Order::Stop => Err(CallError::Ended(Status::unavailable("the server ends"))),
    }
}

/// Envoy names itself in the first request only.
fn check_node(request: &DeltaDiscoveryRequest, feed: &Feed) -> Result<(), CallError> {
    let Some(node) = &request.node else { return Ok(()) };
    let expected = feed.unit.to_string();
    if node.id == expected {
        feed.progress.set_mismatch(None);
        return Ok(());
    }
    let found: String = node.id.chars().take(256).collect();
    let why = format!("node `{found}` connected as `{expected}`");
    feed.progress.set_mismatch(Some(why.as_str().into()));
    Err(CallError::Ended(Status::denied(why)))
}
