//! The keeper of certificates: one loop that joins the Secret, the rotation, the configurations and the server.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use portolan_certs::SignedCertificate;
use tokio_util::sync::CancellationToken;

use super::metrics::{Certificate, Kind, Metrics};
use super::publish::{Publisher, Seen};
use super::server::Resolver;
use super::{Error, PURPOSE, Signals, Status};
use crate::runtime::authority::{self, Authority, Facts, Found, Schedule, Stage, Store};
use crate::runtime::backoff::Backoff;
use crate::runtime::ready::Guard;

/// The pause after a write or a lost race, each of which is followed by another look.
const AGAIN: Duration = Duration::from_millis(100);
/// The longest pause while a configuration is not installed: an installer is probably at work.
const MISSING: Duration = Duration::from_secs(1);

/// The common name of serving certificates.
const SUBJECT: &str = "portolan-webhook";

/// Keeps certificates young, the same authority on all replicas, and API servers informed.
pub(super) struct Keeper {
    pub(super) store: Store,
    pub(super) publisher: Publisher,
    pub(super) names: Vec<String>,
    pub(super) schedule: Schedule,
    pub(super) resolver: Arc<Resolver>,
    pub(super) signals: Arc<Signals>,
    pub(super) metrics: Metrics,
    /// Let go when the server can serve and every configuration trusts it.
    pub(super) guard: Option<Guard>,
    /// The authority as last read or written.
    pub(super) known: Option<Authority>,
    pub(super) serving: Option<SignedCertificate>,
}

/// What a look at the API server found.
struct Synced {
    /// All as it should be, and nothing was written: the next look can wait.
    settled: bool,
    missing: Vec<String>,
}

impl Keeper {
    /// Keeps everything as it should be until the stop signal.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut delays = Backoff::REQUESTS.delays();
        loop {
            let now = Timestamp::now();
            let looked = tokio::select! {
                () = stop.cancelled() => return,
                looked = self.look(now) => looked,
            };
            let pause = match looked {
                Ok(synced) => {
                    delays.reset();
                    let pause = self.pause(&synced, now);
                    self.tell(synced);
                    pause
                }
                Err(error) => {
                    if !matches!(&error, Error::Authority(error) if error.is_unreachable()) {
                        tracing::warn!(reason = error.reason(), %error, "webhook certificates are not as they should be");
                    }
                    delays.pause()
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.signals.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn look(&mut self, now: Timestamp) -> Result<Synced, Error> {
        let synced = self.sync(now).await;
        // Also when the API server is away: what is known is enough to renew what is served.
        self.serve(now)?;
        synced
    }

    async fn sync(&mut self, now: Timestamp) -> Result<Synced, Error> {
        // read (client): the configurations before the Secret; `publish` says why
        let seen = self.publisher.read().await?;
        let found = self.store.read().await?;
        // decide (no client): adopt what is there, or go a step further
        let (authority, changed) = self.decide(found.as_ref(), &seen, now)?;
        // keep (client): the first writer wins
        let missing = self.publisher.missing(&seen);
        if changed {
            if !self.store.write(found, &authority).await? {
                return Ok(Synced { settled: false, missing });
            }
            if matches!(authority.stage, Stage::Announced { since: None, .. }) {
                self.signals.rotation_began();
            }
            let (stage, name) = (authority.stage.name(), &authority.current.name);
            tracing::info!(stage, authority = name, "the webhook's authority entered a stage");
        }
        let bundle = authority.bundle();
        self.known = Some(authority);
        // publish (client): only where it differs
        let settled = !changed && seen.holds(&bundle);
        self.publisher.publish(&seen, &bundle).await?;
        Ok(Synced { settled, missing })
    }

    /// The authority to go on with, and whether it differs from the stored one.
    fn decide(&self, found: Option<&Found>, seen: &Seen, now: Timestamp) -> Result<(Authority, bool), Error> {
        let stored = found.and_then(|found| found.authority.as_ref());
        let facts = |authority: &Authority| Facts {
            published: seen.holds(&authority.bundle()),
            rotate: self.signals.rotation_is_asked(),
        };
        let works = |authority: &Authority| self.can_use(authority, now);
        let of_webhooks = (PURPOSE, &self.schedule);
        Ok(authority::decide([stored, self.known.as_ref()], works, facts, of_webhooks, now)?)
    }

    /// False for an authority that is damaged or has expired.
    fn can_use(&self, authority: &Authority, now: Timestamp) -> bool {
        let in_use = self.serving.as_ref().is_some_and(|serving| !authority.outdates(serving, now));
        in_use || authority.current.works(now)
    }

    /// Signs another serving certificate when it is time (no client).
    fn serve(&mut self, now: Timestamp) -> Result<(), Error> {
        let Some(authority) = &self.known else { return Ok(()) };
        if self.serving.as_ref().is_some_and(|serving| !authority.outdates(serving, now)) {
            return Ok(());
        }
        let serving = authority.current.sign_server(SUBJECT, &self.names, now, self.schedule.serving)?;
        self.resolver.set(serving.certified_key()?);
        for (certificate, expires) in [(Kind::Serving, serving.expires), (Kind::Authority, authority.current.expires)] {
            self.metrics.expiry.get_or_create(&Certificate { certificate }).set(expires.as_second());
        }
        tracing::info!(authority = serving.authority, expires = %serving.expires, "the webhook shows a new certificate");
        self.serving = Some(serving);
        Ok(())
    }

    fn tell(&mut self, synced: Synced) {
        let (Some(authority), Some(serving)) = (&self.known, &self.serving) else { return };
        let status = Status {
            stage: authority.stage.name(),
            authority: authority.current.name.clone(),
            published: synced.settled,
            missing: synced.missing,
            serving_expires: Some(serving.expires),
        };
        if synced.settled && status.missing.is_empty() {
            drop(self.guard.take());
        }
        self.signals.status.send_if_modified(|last| {
            if *last == status {
                return false;
            }
            if !status.missing.is_empty() && last.missing != status.missing {
                tracing::warn!(missing = ?status.missing, "webhook configurations are not installed: nothing calls us");
            }
            *last = status;
            true
        });
    }

    fn pause(&self, synced: &Synced, now: Timestamp) -> Duration {
        if !synced.settled {
            return AGAIN;
        }
        let most = if synced.missing.is_empty() { self.schedule.poll } else { self.schedule.poll.min(MISSING) };
        let rotation = self.known.as_ref().and_then(|authority| authority.deadline(&self.schedule));
        let renewal = self.serving.as_ref().map(|serving| (serving.renew_at(), "sign a new serving certificate"));
        let Some((due, what)) = rotation.into_iter().chain(renewal).min() else { return most };
        let left = Duration::try_from(due.duration_since(now)).unwrap_or_default();
        tracing::trace!(%due, what, "next");
        left.clamp(AGAIN, most.max(AGAIN))
    }
}
