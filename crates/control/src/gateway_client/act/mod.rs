//! Decisions -> calls and writes. A failure of one Service delays no other, and neither does a call that hangs.

pub(super) mod acting;
mod calls;
mod finalizers;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use portolan_core::gateway_client::{Call, LbName, ServiceName};
use portolan_drivers::gateway::{GatewayClient, GatewayError};
use tokio::time::Instant;
use tracing::{debug, info};

use self::acting::Acting;
use self::calls::{Calling, Ended, EndedList};
use super::login::LoginProblem;
use super::metrics::{self, Metrics};
use super::model::Model;
use super::observe::Cache;
use super::pauses::Pauses;
use super::settings::Options;
use super::status;
use crate::runtime::due::{DueWrites, Pace, Prepared, WriteQueues};
use crate::runtime::events::Recorder;
use crate::runtime::lease::Term;
use crate::runtime::rate::Rate;
use crate::runtime::write::Writer;

/// Everything that is yet to be done in this term.
pub(super) struct Writes {
    calls: DueWrites<LbName, Ended>,
    list: DueWrites<(), EndedList>,
    finalizers: DueWrites<ServiceName>,
    statuses: DueWrites<ServiceName>,
    pauses: Pauses,
    /// When everything is compared next.
    verify_at: Instant,
    verify_interval: Duration,
    rate: Rate,
    term: Term,
}

/// A pass of calls: what hangs is left behind after half a second, and status is written meanwhile.
const CALLS: Pace = Pace { budget: Duration::from_millis(200), ..Pace::URGENT };

/// What is acted with.
#[derive(Clone, Copy)]
pub(super) struct Tools<'a> {
    pub(super) writer: &'a Writer,
    pub(super) recorder: &'a Recorder,
    pub(super) cache: &'a Cache,
    pub(super) metrics: &'a Metrics,
    /// The gateway, or why it cannot be called.
    pub(super) client: Result<&'a Arc<GatewayClient>, Option<&'a LoginProblem>>,
}

impl Writes {
    pub(super) fn new(queues: &WriteQueues, options: &Options, term: Term) -> Self {
        let mut list = queues.queue("gateway-client list", CALLS);
        list.add(());
        Self {
            calls: queues.queue("gateway-client calls", Pace { at_once: options.calls_at_once, ..CALLS }),
            list,
            finalizers: queues.queue("gateway-client finalizers", Pace::STATUS),
            statuses: queues.queue("gateway-client status", Pace::STATUS),
            pauses: Pauses::default(),
            verify_at: Instant::now(),
            verify_interval: options.verify_interval,
            rate: Rate::per_second(options.requests_per_second),
            term,
        }
    }

    /// Takes up Services that may differ.
    pub(super) fn add(&mut self, touched: &BTreeSet<ServiceName>, model: &Model) {
        self.calls.extend(touched.iter().map(|name| model.world.cluster.name(name)));
        self.finalizers.extend(touched.iter().cloned());
        self.statuses.extend(touched.iter().cloned());
    }

    /// Another login is used: whatever failed is tried with it.
    pub(super) fn login_changed(&mut self) {
        self.pauses.reset();
        self.verify_at = Instant::now();
        self.list.add(());
    }

    /// Does what is due; gives the Services to decide about anew.
    pub(super) async fn act(&mut self, tools: &Tools<'_>, model: &mut Model) -> BTreeSet<ServiceName> {
        let Tools { writer, recorder, cache, metrics: _, client } = *tools;
        let login = client.err().flatten();
        let calling = client.ok().map(|client| Calling {
            client: Arc::clone(client),
            rate: self.rate.clone(),
            term: self.term.clone(),
        });
        let Self { calls, list, finalizers, statuses, pauses, verify_at, .. } = self;
        // without a login nothing is called until there is one
        let verify_at = [Some(*verify_at), pauses.until_all()].into_iter().flatten().max();
        let verify_at = verify_at.filter(|at| *at > Instant::now());
        let acting = Acting { writer, recorder, cache, model, pauses, login };
        tokio::join!(
            finalizers.pass(|name, _| finalizers::prepare(&acting, name)),
            statuses.pass(|name, _| status::prepare(&acting, name)),
        );
        let (ended, listed) = match &calling {
            None => (Vec::new(), Vec::new()),
            Some(calling) => tokio::join!(
                calls.pass(|lb, _| calling.prepare(model, pauses, lb)),
                list.pass(|(), _| verify_at.map_or_else(|| calling.list(), Prepared::At)),
            ),
        };
        let mut touched = BTreeSet::new();
        for (lb, result) in ended {
            touched.extend(match result {
                Ok(ended) => self.ended(tools, model, &lb, ended),
                Err(_) => model.forget(&lb),
            });
        }
        for ((), result) in listed {
            if let Ok(ended) = result {
                touched.extend(self.listed(tools, model, ended));
            }
        }
        touched
    }

    /// A call ended; gives its Service.
    fn ended(&mut self, tools: &Tools<'_>, model: &mut Model, lb: &LbName, ended: Ended) -> Option<ServiceName> {
        let Ended { call, outcome, took } = ended;
        tools.metrics.called(metrics::name(&call), outcome.as_ref().err(), took);
        // whether there is more to do is known once it is decided anew
        self.calls.add(lb.clone());
        let said = match outcome {
            Ok(said) => said,
            Err(error) => {
                debug!(%lb, %error, call = metrics::name(&call), "a call to the gateway failed");
                let was_reported = self.pauses.problem_of_all().is_some();
                self.pauses.failed(lb, &call, &error, Instant::now());
                if error.concerns_all() {
                    self.report_all(model, was_reported, &error);
                } else {
                    self.pauses.answered();
                }
                return model.failed(lb, &call, &error);
            }
        };
        self.pauses.answered();
        let owner = model.learn(lb, &call, said);
        if owner.is_none() && call == Call::Delete {
            info!(%lb, "deleted at the gateway: its Service is gone");
            tools.metrics.orphan_deleted();
        }
        let is_change = !matches!(call, Call::Read | Call::ReadLater | Call::ReadEndpoints);
        let is_settled = || {
            let name = owner.as_ref()?;
            Some(portolan_core::gateway_client::decide(&model.world, name).call.is_none())
        };
        if is_change || is_settled().unwrap_or(true) {
            self.pauses.succeeded(lb);
        }
        owner
    }

    /// Every Service that waits for the gateway shows why.
    fn report_all(&mut self, model: &Model, was_reported: bool, error: &GatewayError) {
        if !was_reported && self.pauses.problem_of_all().is_some() {
            info!(%error, "no call to the gateway goes through");
            let waiting = model.decisions.iter().filter(|(_, decision)| decision.call.is_some());
            self.statuses.extend(waiting.map(|(name, _)| name.clone()));
        }
    }

    fn listed(&mut self, tools: &Tools<'_>, model: &mut Model, ended: EndedList) -> BTreeSet<ServiceName> {
        let EndedList { outcome, took } = ended;
        tools.metrics.called("list", outcome.as_ref().err(), took);
        let now = Instant::now();
        self.list.add(());
        match outcome {
            Ok(list) => {
                self.pauses.answered();
                self.verify_at = now + self.verify_interval;
                let touched = model.listed(tools.cache, list);
                self.calls.extend(touched.iter().cloned());
                touched.iter().filter_map(|lb| model.owner(lb).cloned()).collect()
            }
            Err(error) => {
                debug!(%error, "the load balancers of the account could not be listed");
                let was_reported = self.pauses.problem_of_all().is_some();
                if error.concerns_all() {
                    self.pauses.all_failed(&error, now);
                    self.report_all(model, was_reported, &error);
                }
                self.verify_at = now
                    + error.retry_after().unwrap_or(LIST_AGAIN).clamp(LIST_AGAIN, self.verify_interval.max(LIST_AGAIN));
                BTreeSet::new()
            }
        }
    }

    /// When something is due next.
    pub(super) fn next_due(&self, has_login: bool) -> Option<Instant> {
        let Self { calls, list, finalizers, statuses, .. } = self;
        let outside = if has_login { [calls.next_due(), list.next_due()] } else { [None, None] };
        outside.into_iter().chain([finalizers.next_due(), statuses.next_due()]).flatten().min()
    }
}

/// A list that failed is tried again after this time.
const LIST_AGAIN: Duration = Duration::from_secs(2);
