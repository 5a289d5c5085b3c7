//! Calls to the gateway: one at a time for each load balancer, any number of them at once.

use std::sync::Arc;
use std::time::Duration;

use portolan_core::gateway_client::{Call, LbName};
use portolan_drivers::gateway::{GatewayClient, GatewayError, Listed};
use tokio::time::Instant;

use crate::gateway_client::model::{Model, Said};
use crate::gateway_client::pauses::Pauses;
use crate::runtime::Error;
use crate::runtime::due::Prepared;
use crate::runtime::lease::Term;
use crate::runtime::rate::Rate;

/// A call that ended.
pub(super) struct Ended {
    pub(super) call: Call,
    pub(super) outcome: Result<Said, GatewayError>,
    pub(super) took: Duration,
}

/// A list that ended.
pub(super) struct EndedList {
    pub(super) outcome: Result<Vec<Listed>, GatewayError>,
    pub(super) took: Duration,
}

/// What calls are made with.
#[derive(Clone)]
pub(super) struct Calling {
    pub(super) client: Arc<GatewayClient>,
    pub(super) rate: Rate,
    pub(super) term: Term,
}

impl Calling {
    /// The next call about a load balancer.
    pub(super) fn prepare(&self, model: &Model, pauses: &mut Pauses, lb: &LbName) -> Prepared<Ended> {
        let Some(call) = model.call(lb) else { return Prepared::Nothing };
        if let Some(until) = pauses.until(lb, &call, Instant::now()) {
            return Prepared::At(until);
        }
        let uid = model.owner(lb).and_then(|name| model.world.services.get(name)).map(|service| service.uid.clone());
        let (calling, lb) = (self.clone(), lb.clone());
        Prepared::write(async move {
            calling.admitted(&lb).await?;
            let began = Instant::now();
            let outcome = calling.make(&lb, &call, uid.as_deref().unwrap_or_default()).await;
            Ok(Ended { call, outcome, took: began.elapsed() })
        })
    }

    /// A list of all load balancers.
    pub(super) fn list(&self) -> Prepared<EndedList> {
        let calling = self.clone();
        Prepared::write(async move {
            calling.rate.take().await;
            let began = Instant::now();
            let outcome = calling.client.list().await;
            Ok(EndedList { outcome, took: began.elapsed() })
        })
    }

    /// Waits for a share of the rate; only a leader calls.
    async fn admitted(&self, lb: &LbName) -> Result<(), Error> {
        self.rate.take().await;
        if self.term.held() { Ok(()) } else { Err(Error::NotLeading { what: format!("calling the gateway for {lb}") }) }
    }

    async fn make(&self, lb: &LbName, call: &Call, key: &str) -> Result<Said, GatewayError> {
        let client = &self.client;
        Ok(match call {
            Call::Read | Call::ReadLater => Said::LoadBalancer(client.read(lb).await?),
            Call::Create { ports, address } => Said::LoadBalancer(client.create(lb, ports, *address, key).await?),
            Call::Update { ports } => Said::LoadBalancer(client.update(lb, ports).await?),
            Call::ReadEndpoints => Said::Endpoints(client.endpoints(lb).await?),
            Call::PutEndpoints { node, endpoints } => {
                client.put_endpoints(lb, *node, endpoints).await?;
                Said::Done
            }
            Call::Delete => {
                client.delete(lb).await?;
                Said::Done
            }
        })
    }
}
