//! Elects one writer among replicas on a `coordination.k8s.io/v1` Lease, and tells it when to stop.
//!
//! The clocks of replicas are never compared. A holder may write until *renew deadline* after it sent its last
//! renewal that succeeded; others may take the lease only *lease duration* after they saw it change last, which
//! is later than it was sent. The difference is what an abandoned write has left to arrive.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::endpoint::{Endpoint, Part};
use super::error::Error;
use super::metrics::Metrics;
use super::ready::{Guard, Readiness};

/// How the election runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub namespace: String,
    pub name: String,
    /// Who we are: different for every process, restarts included.
    pub identity: String,
    /// Others may take the lease this long after they saw it renewed last. Whole seconds.
    pub duration: Duration,
    /// The holder stops writing this long after its last renewal.
    pub renew_deadline: Duration,
    /// Pause between tries.
    pub retry_period: Duration,
}

impl Options {
    /// The election of operators; client-go's usual times.
    pub fn of_operator(namespace: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: "portolan-operator".to_owned(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// Refuses times under which two replicas could write at once.
    pub fn check(&self) -> Result<(), Error> {
        let Self { duration, renew_deadline, retry_period, .. } = self;
        let problem = if duration.subsec_nanos() != 0 || duration.is_zero() {
            format!("lease duration {duration:?} must be whole seconds, at least 1s")
        } else if renew_deadline >= duration {
            format!("renew deadline {renew_deadline:?} must be shorter than the lease duration {duration:?}")
        } else if *retry_period * 2 > *renew_deadline || retry_period.is_zero() {
            format!("retry period {retry_period:?} must be at most half the renew deadline {renew_deadline:?}")
        } else {
            return Ok(());
        };
        Err(Error::Invalid { what: "leader election".into(), problem })
    }
}

/// Whether this replica may write. Clones see the same answer.
#[derive(Debug, Clone)]
pub struct Leadership {
    held: watch::Sender<Option<Held>>,
    /// The highest term that somebody else was seen to have led in.
    outranked_by: watch::Sender<u64>,
}

/// Until when this replica leads, unless it renews, and in which term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    until: Instant,
    term: u64,
}

impl Held {
    fn lasts(self) -> bool {
        Instant::now() < self.until
    }
}

/// The term of a process that is alone by construction; elections count from 1.
const ALONE: u64 = 0;

/// One time of leading without a break. Its number is the Lease's `leaseTransitions`, so that of two leaders the later
/// one has the higher number, whatever their clocks say.
#[derive(Debug, Clone)]
pub struct Term {
    leadership: Leadership,
    number: u64,
}

impl Term {
    /// Its number, for those who refuse a leader of an earlier term; none for a process that takes part in no election.
    pub fn number(&self) -> Option<u64> {
        (self.number != ALONE).then_some(self.number)
    }

    /// True while this replica leads in this term: checked before every call that changes something outside.
    pub fn held(&self) -> bool {
        self.leadership.held.borrow().is_some_and(|held| held.lasts() && held.term == self.number)
    }

    /// Returns when this replica no longer leads in this term.
    pub async fn ended(&self) {
        self.leadership.ended(|held| held.term == self.number).await;
    }

    /// Somebody refused a call of this term as he has seen a later one. If this replica still holds the Lease, it goes
    /// on in a term above that: the Lease was deleted, say, and counts from the beginning again.
    pub fn outranked_by(&self, number: u64) {
        self.leadership.outranked_by.send_if_modified(|highest| {
            let higher = number > *highest && number >= self.number;
            if higher {
                *highest = number;
            }
            higher
        });
    }
}

impl Leadership {
    /// Not leading yet.
    pub fn none() -> Self {
        Self { held: watch::Sender::new(None), outranked_by: watch::Sender::new(0) }
    }

    /// For a process that is alone by construction.
    pub fn always() -> Self {
        // A century is as good as for ever, and does not overflow the clock.
        let forever = Duration::from_hours(100 * 365 * 24);
        let leadership = Self::none();
        leadership.set(Some(Held { until: Instant::now() + forever, term: ALONE }));
        leadership
    }

    /// True while this replica may start a write.
    pub fn held(&self) -> bool {
        self.held.borrow().is_some_and(Held::lasts)
    }

    /// Returns when this replica leads.
    pub async fn acquired(&self) -> Term {
        let mut changes = self.held.subscribe();
        loop {
            if let Some(held) = changes.borrow_and_update().filter(|held| held.lasts()) {
                return Term { leadership: self.clone(), number: held.term };
            }
            // The sender lives as long as `self`, so this ends only with a change.
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns when this replica no longer leads.
    pub async fn ran_out(&self) {
        self.ended(|_| true).await;
    }

    async fn ended(&self, goes_on: impl Fn(Held) -> bool) {
        let mut changes = self.held.subscribe();
        loop {
            let Some(held) = changes.borrow_and_update().filter(|held| held.lasts() && goes_on(*held)) else { return };
            tokio::select! {
                () = tokio::time::sleep_until(held.until) => {}
                _ = changes.changed() => {}
            }
        }
    }

    fn set(&self, held: Option<Held>) {
        self.held.send_replace(held);
    }
}

/// What readiness calls the election.
const LEASE: &str = "lease";

/// Takes part in the election for as long as it runs.
pub struct Elector {
    endpoint: Endpoint<Lease>,
    options: Options,
    leadership: Leadership,
    metrics: Metrics,
    seen: Option<Seen>,
    election: Option<ElectionGuard>,
}

/// Keeps the process unready while there is no election to take part in.
struct ElectionGuard {
    readiness: Readiness,
    held: Option<Guard>,
}

/// The lease as last read or written, and when it was first seen so.
struct Seen {
    lease: Lease,
    since: Instant,
}

impl Elector {
    /// Needs a client of its own: a fenced one could not take the lease.
    pub fn new(client: &Client, options: Options, leadership: Leadership, metrics: Metrics) -> Result<Self, Error> {
        options.check()?;
        let endpoint = Endpoint::new(client, &options.namespace);
        Ok(Self { endpoint, options, leadership, metrics, seen: None, election: None })
    }

    /// Keeps a process unready until it takes part in the election, leading or not.
    #[must_use]
    pub fn holding(mut self, readiness: Readiness) -> Self {
        let held = Some(readiness.hold(LEASE));
        self.election = Some(ElectionGuard { readiness, held });
        self
    }

    /// Acquires and renews until stopped. Does not release: see [`release`].
    pub async fn run(mut self, stop: CancellationToken) {
        let mut led = false;
        let mut outranked = self.leadership.outranked_by.subscribe();
        loop {
            let limit = self.options.renew_deadline / 2;
            match tokio::time::timeout(limit, self.step()).await {
                Ok(Ok(())) => self.takes_part(),
                Ok(Err(problem)) => self.refused(&problem),
                Err(_elapsed) => debug!(?limit, "the lease request got no answer"),
            }
            let leads = self.leadership.held();
            if leads != led {
                if leads {
                    info!(identity = self.options.identity, "leading");
                } else {
                    warn!("no longer leading");
                }
                self.metrics.leads.set(i64::from(leads));
                led = leads;
            }
            // Jitter keeps candidates from trying in step.
            let pause = self.options.retry_period.mul_f64(fastrand::f64().mul_add(0.2, 1.0));
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
                () = self.leadership.ran_out(), if leads => {}
                _ = outranked.changed(), if leads => warn!("a later leader was seen: going on in a term above its own"),
            }
        }
    }

    fn takes_part(&mut self) {
        if let Some(guard) = self.election.as_mut().and_then(|election| election.held.take()) {
            guard.done();
        }
    }

    /// Says what to do when no try can succeed; everything else passes.
    fn refused(&mut self, problem: &kube::Error) {
        let Options { namespace, name, .. } = &self.options;
        let kube::Error::Api(status) = problem else {
            return debug!(%problem, "lease not renewed or taken");
        };
        let advice = match status.code {
            404 => format!("namespace `{namespace}` does not exist: kubectl create namespace {namespace}"),
            403 => format!("{}: give the operator the roles of deploy/manifests/rbac.yaml", status.message),
            _ => return debug!(%problem, "lease not renewed or taken"),
        };
        let Some(ElectionGuard { readiness, held }) = &mut self.election else { return };
        if readiness.problem(LEASE).as_ref() != Some(&advice) {
            warn!(lease = format!("{namespace}/{name}"), problem = advice, "this replica cannot lead");
        }
        held.get_or_insert_with(|| readiness.hold(LEASE)).because(advice);
    }

    /// One try: renew what is ours, take what is free.
    async fn step(&mut self) -> Result<(), kube::Error> {
        if let Some(Seen { lease, .. }) = &self.seen
            && self.is_ours(lease)
        {
            let lease = lease.clone();
            match self.write(lease).await {
                // somebody else wrote it, or deleted it
                Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {}
                other => return other,
            }
        }
        let Some(lease) = self.endpoint.get(&self.options.name).await? else {
            self.leadership.set(None);
            return self.write(Lease::default()).await;
        };
        self.observe(&lease);
        if self.is_ours(&lease) || self.is_free(&lease) {
            return self.write(lease).await;
        }
        self.leadership.set(None);
        Ok(())
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        holder(lease) == Some(&self.options.identity)
    }

    /// Free when released, or when its holder let it stand for the whole duration it promised to renew within.
    fn is_free(&self, lease: &Lease) -> bool {
        let promised = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
        let promised = Duration::from_secs(u64::try_from(promised).unwrap_or_default()).max(self.options.duration);
        holder(lease).is_none() || self.seen.as_ref().is_none_or(|seen| seen.since.elapsed() >= promised)
    }

    fn observe(&mut self, lease: &Lease) {
        let version = &lease.metadata.resource_version;
        if self.seen.as_ref().is_none_or(|seen| seen.lease.metadata.resource_version != *version) {
            self.seen = Some(Seen { lease: lease.clone(), since: Instant::now() });
        }
    }

    /// Writes the lease as ours; leadership lasts from the moment before the request was sent.
    async fn write(&mut self, seen: Lease) -> Result<(), kube::Error> {
        let sent = Instant::now();
        let want = self.renewed(&seen);
        let written = match seen.metadata.resource_version {
            Some(_) => self.endpoint.replace(Part::Object, &self.options.name, &want).await?,
            None => self.endpoint.create(&want).await?,
        };
        let term = transitions(&written);
        self.seen = Some(Seen { lease: written, since: sent });
        self.leadership.set(Some(Held { until: sent + self.options.renew_deadline, term }));
        Ok(())
    }

    fn renewed(&self, seen: &Lease) -> Lease {
        let now = MicroTime(Timestamp::now());
        let before = seen.spec.clone().unwrap_or_default();
        let renewing = self.is_ours(seen);
        let spec = LeaseSpec {
            holder_identity: Some(self.options.identity.clone()),
            lease_duration_seconds: i32::try_from(self.options.duration.as_secs()).ok(),
            acquire_time: if renewing { before.acquire_time } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_transitions: Some(self.term(seen, renewing)),
            ..LeaseSpec::default()
        };
        let metadata = ObjectMeta { name: Some(self.options.name.clone()), ..seen.metadata.clone() };
        Lease { metadata, spec: Some(spec) }
    }

    /// One more than the last for a new holder, and more than any that was seen elsewhere.
    fn term(&self, seen: &Lease, renewing: bool) -> i32 {
        let above = *self.leadership.outranked_by.borrow() + 1;
        let term = (transitions(seen) + u64::from(!renewing)).max(if above > 1 { above } else { 0 });
        i32::try_from(term).unwrap_or(i32::MAX)
    }
}

fn transitions(lease: &Lease) -> u64 {
    let counted = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
    u64::try_from(counted).unwrap_or_default()
}

/// Gives the lease back, if it is ours, so that the next replica need not wait. Call when nothing writes any more.
pub async fn release(client: &Client, options: &Options, leadership: &Leadership) -> Result<(), Error> {
    leadership.set(None);
    let endpoint = Endpoint::<Lease>::new(client, &options.namespace);
    let failed = |cause| Error::from_request("releasing the lease", cause);
    let Some(mut lease) = endpoint.get(&options.name).await.map_err(failed)? else { return Ok(()) };
    if holder(&lease) != Some(&options.identity) {
        return Ok(());
    }
    if let Some(spec) = &mut lease.spec {
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(Timestamp::now()));
    }
    endpoint.replace(Part::Object, &options.name, &lease).await.map_err(failed)?;
    Ok(())
}

fn holder(lease: &Lease) -> Option<&String> {
    lease.spec.as_ref()?.holder_identity.as_ref().filter(|identity| !identity.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options::of_operator("ns", "me")
    }

    #[test]
    fn times_that_would_let_two_write_are_refused() {
        assert!(options().check().is_ok());
        for (broken, word) in [
            (Options { duration: Duration::from_millis(1500), ..options() }, "whole seconds"),
            (Options { renew_deadline: Duration::from_secs(15), ..options() }, "shorter"),
            (Options { retry_period: Duration::from_secs(6), ..options() }, "half"),
        ] {
            let said = broken.check().unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn leadership_ends_by_itself_when_it_is_not_renewed() {
        let leadership = Leadership::none();
        assert!(!leadership.held());
        let held = || Some(Held { until: Instant::now() + Duration::from_secs(10), term: 1 });
        leadership.set(held());
        assert!(leadership.held());
        let began = Instant::now();
        let renewer = leadership.clone();
        let renewal = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            renewer.set(held());
        };
        tokio::join!(leadership.ran_out(), renewal);
        assert_eq!(began.elapsed(), Duration::from_secs(15));
        assert!(!leadership.held());
    }

    #[tokio::test(start_paused = true)]
    async fn a_term_ends_even_if_leadership_comes_back_at_once() {
        let leadership = Leadership::none();
        let held = |term| Some(Held { until: Instant::now() + Duration::from_secs(10), term });
        leadership.set(held(4));
        let term = leadership.acquired().await;
        assert!(term.held() && term.number() == Some(4));
        leadership.set(held(6));
        term.ended().await;
        assert!(!term.held() && leadership.held(), "another term of the same replica");
        assert_eq!(Leadership::always().acquired().await.number(), None);
    }

    #[tokio::test]
    async fn a_leader_that_was_outranked_goes_on_above_the_term_that_was_seen() {
        let leadership = Leadership::none();
        leadership.set(Some(Held { until: Instant::now() + Duration::from_secs(10), term: 1 }));
        let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
        let client = Client::new(
            tower::service_fn(async |_| -> Result<http::Response<kube::client::Body>, tower::BoxError> {
                Err("unused".into())
            }),
            "ns",
        );
        let elector = Elector::new(&client, options(), leadership.clone(), metrics).unwrap();
        let spec = LeaseSpec { lease_transitions: Some(1), ..LeaseSpec::default() };
        let lease = Lease { spec: Some(spec), ..Lease::default() };
        assert_eq!((elector.term(&lease, true), elector.term(&lease, false)), (1, 2));
        Term { leadership, number: 1 }.outranked_by(7);
        assert_eq!(elector.term(&lease, true), 8);
    }
}
