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
    until: watch::Sender<Option<Instant>>,
}

impl Leadership {
    /// Not leading yet.
    pub fn none() -> Self {
        Self { until: watch::Sender::new(None) }
    }

    /// For a process that is alone by construction.
    pub fn always() -> Self {
        // A century is as good as for ever, and does not overflow the clock.
        let forever = Duration::from_hours(100 * 365 * 24);
        Self { until: watch::Sender::new(Some(Instant::now() + forever)) }
    }

    /// True while this replica may start a write.
    pub fn held(&self) -> bool {
        self.until.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Returns when this replica leads.
    pub async fn acquired(&self) {
        let mut until = self.until.subscribe();
        while !self.held() {
            if until.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns when this replica no longer leads.
    pub async fn ran_out(&self) {
        let mut changes = self.until.subscribe();
        loop {
            let Some(until) = *changes.borrow_and_update() else { return };
            if Instant::now() >= until {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                _ = changes.changed() => {}
            }
        }
    }

    fn set(&self, until: Option<Instant>) {
        self.until.send_replace(until);
    }
}

/// Takes part in the election for as long as it runs.
pub struct Elector {
    endpoint: Endpoint<Lease>,
    options: Options,
    leadership: Leadership,
    metrics: Metrics,
    seen: Option<Seen>,
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
        Ok(Self { endpoint, options, leadership, metrics, seen: None })
    }

    /// Acquires and renews until stopped. Does not release: see [`release`].
    pub async fn run(mut self, stop: CancellationToken) {
        let mut led = false;
        loop {
            let limit = self.options.renew_deadline / 2;
            match tokio::time::timeout(limit, self.step()).await {
                Ok(Ok(())) => {}
                Ok(Err(problem)) => debug!(%problem, "lease not renewed or taken"),
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
            }
        }
    }

    /// One try: renew what is ours, take what is free.
    async fn step(&mut self) -> Result<(), kube::Error> {
        if let Some(Seen { lease, .. }) = &self.seen
            && self.is_ours(lease)
        {
            let lease = lease.clone();
            match self.write(lease).await {
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
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
        self.seen = Some(Seen { lease: written, since: sent });
        self.leadership.set(Some(sent + self.options.renew_deadline));
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
            lease_transitions: Some(before.lease_transitions.unwrap_or(0) + i32::from(!renewing)),
            ..LeaseSpec::default()
        };
        let metadata = ObjectMeta { name: Some(self.options.name.clone()), ..seen.metadata.clone() };
        Lease { metadata, spec: Some(spec) }
    }
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
        Options {
            namespace: "ns".into(),
            name: "lease".into(),
            identity: "me".into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
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
        leadership.set(Some(Instant::now() + Duration::from_secs(10)));
        assert!(leadership.held());
        let began = Instant::now();
        let renewer = leadership.clone();
        let renewal = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            renewer.set(Some(Instant::now() + Duration::from_secs(10)));
        };
        tokio::join!(leadership.ran_out(), renewal);
        assert_eq!(began.elapsed(), Duration::from_secs(15));
        assert!(!leadership.held());
    }
}
