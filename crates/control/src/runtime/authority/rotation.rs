//! The rotation of the authority as a state machine: pure, driven by a clock and two facts given from outside.
//!
//! ```text
//!            two thirds of its life are over,         every configuration held both        the old one was trusted
//!            or rotate_now                            for `settle`                         for `retire` more
//!   Steady --------------------------> Announced ---------------------------> Retiring -----------------> Steady
//!   bundle: A                          bundle: A, B                           bundle: A, B                bundle: B
//!   signs:  A                          signs:  A                              signs:  B                   signs:  B
//! ```
//!
//! At each moment every peer (an API server, an Envoy) trusts the authority that signs: the successor signs only after
//! its certificate has been published everywhere for some time (peers learn of it asynchronously), and the predecessor
//! stays trusted until the slowest one has changed the certificate that it shows.

use std::time::Duration;

use jiff::Timestamp;
use portolan_certs::{CertificateAuthority, SignedCertificate, later};

use super::{Error, Purpose};

/// How long things last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// The life of an authority; its successor is made after two thirds.
    pub authority: Duration,
    /// The life of a serving certificate; its successor is signed after two thirds.
    pub serving: Duration,
    /// How long both authorities are published before the new one signs.
    pub settle: Duration,
    /// How long the old authority stays trusted after the new one signs.
    pub retire: Duration,
    /// The pause between two looks at the Secret and at where it is published.
    pub poll: Duration,
}

impl Default for Schedule {
    fn default() -> Self {
        const DAY: Duration = Duration::from_hours(24);
        Self {
            authority: 365 * DAY,
            serving: 90 * DAY,
            settle: Duration::from_mins(5),
            retire: DAY,
            poll: Duration::from_secs(5),
        }
    }
}

/// The authority that signs, and where it stands in its rotation.
#[derive(Clone)]
pub struct Authority {
    pub current: CertificateAuthority,
    pub stage: Stage,
}

/// Where a rotation stands.
#[derive(Clone)]
pub enum Stage {
    /// No rotation is under way.
    Steady,
    /// The successor is being published; `since` is when all configurations were first seen to hold it.
    Announced { next: CertificateAuthority, since: Option<Timestamp> },
    /// The successor signs; the predecessor's certificate stays trusted.
    Retiring { old: String, since: Timestamp },
}

/// What the machine must be told.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts {
    /// Everything that trusts the authority holds the present bundle.
    pub published: bool,
    /// Someone asked for a rotation.
    pub rotate: bool,
}

impl Stage {
    /// A word for logs and state dumps.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Steady => "Steady",
            Self::Announced { .. } => "Announced",
            Self::Retiring { .. } => "Retiring",
        }
    }
}

impl Authority {
    /// Starts with an authority that nobody trusts yet.
    pub fn new(now: Timestamp, purpose: Purpose, schedule: &Schedule) -> Result<Self, Error> {
        Ok(Self { current: CertificateAuthority::new(purpose.name, now, schedule.authority)?, stage: Stage::Steady })
    }

    /// What peers must trust at this stage, the oldest first, so that a change of signer changes nothing here.
    pub fn bundle(&self) -> String {
        let current = &self.current.certificate;
        match &self.stage {
            Stage::Steady => current.clone(),
            Stage::Announced { next, .. } => format!("{current}{}", next.certificate),
            Stage::Retiring { old, .. } => format!("{old}{current}"),
        }
    }

    /// The stage after this one, when its time has come.
    pub fn step(
        &self,
        now: Timestamp,
        facts: Facts,
        purpose: Purpose,
        schedule: &Schedule,
    ) -> Result<Option<Self>, Error> {
        let Self { current, stage } = self;
        let next = match stage {
            Stage::Steady if facts.rotate || now >= current.renew_at() => {
                Self { current: current.clone(), stage: announce(now, purpose, schedule)? }
            }
            // Its parts were damaged, or it waited for publication until it expired: make another.
            Stage::Announced { next, .. } if !next.works(now) => {
                Self { current: current.clone(), stage: announce(now, purpose, schedule)? }
            }
            Stage::Announced { next, since: None } if facts.published => {
                let stage = Stage::Announced { next: next.clone(), since: Some(now) };
                Self { current: current.clone(), stage }
            }
            // Someone put an older bundle back: the time of trust begins anew.
            Stage::Announced { next, since: Some(_) } if !facts.published => {
                Self { current: current.clone(), stage: Stage::Announced { next: next.clone(), since: None } }
            }
            Stage::Announced { next, since: Some(since) } if now >= later(*since, schedule.settle) => {
                let stage = Stage::Retiring { old: current.certificate.clone(), since: now };
                Self { current: next.clone(), stage }
            }
            Stage::Retiring { since, .. } if now >= later(*since, schedule.retire) => {
                Self { current: current.clone(), stage: Stage::Steady }
            }
            Stage::Steady | Stage::Announced { .. } | Stage::Retiring { .. } => return Ok(None),
        };
        Ok(Some(next))
    }

    /// The next moment at which time alone changes something, and what.
    pub fn deadline(&self, schedule: &Schedule) -> Option<(Timestamp, &'static str)> {
        match &self.stage {
            Stage::Steady => Some((self.current.renew_at(), "make a new authority")),
            Stage::Announced { since: None, .. } => None,
            Stage::Announced { since: Some(since), .. } => {
                Some((later(*since, schedule.settle), "sign with the new authority"))
            }
            Stage::Retiring { since, .. } => Some((later(*since, schedule.retire), "forget the old authority")),
        }
    }

    /// True when this serving certificate should be replaced by one that the current authority signs.
    pub fn outdates(&self, serving: &SignedCertificate, now: Timestamp) -> bool {
        serving.authority != self.current.name || now >= serving.renew_at()
    }
}

fn announce(now: Timestamp, purpose: Purpose, schedule: &Schedule) -> Result<Stage, Error> {
    Ok(Stage::Announced { next: CertificateAuthority::new(purpose.name, now, schedule.authority)?, since: None })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};

    use super::*;
    use portolan_certs::verify;

    const TEST: Purpose = Purpose { name: "test-ca", secret_type: "test", manager: "test" };
    const DAY: Duration = Duration::from_hours(24);
    const SECOND: Duration = Duration::from_secs(1);
    const PUBLISHED: Facts = Facts { published: true, rotate: false };
    const UNPUBLISHED: Facts = Facts { published: false, rotate: false };

    #[test]
    fn a_rotation_passes_through_its_stages_in_order_and_each_at_its_time() {
        let schedule = Schedule::default();
        let start = start();
        let first = Authority::new(start, TEST, &schedule).unwrap();
        let due = first.current.renew_at();
        assert_eq!(first.deadline(&schedule).unwrap().0, due);
        assert!(first.step(due - SECOND, PUBLISHED, TEST, &schedule).unwrap().is_none());

        let announced = first.step(due, PUBLISHED, TEST, &schedule).unwrap().unwrap();
        assert_eq!(announced.current.name, first.current.name, "the old one signs until the new one is known");
        assert!(announced.deadline(&schedule).is_none(), "publication has no time of its own");
        assert!(
            announced.step(due + DAY, UNPUBLISHED, TEST, &schedule).unwrap().is_none(),
            "nothing without publication"
        );

        let published = due + DAY;
        let known = announced.step(published, PUBLISHED, TEST, &schedule).unwrap().unwrap();
        assert_eq!(known.bundle(), announced.bundle());
        let switch = known.deadline(&schedule).unwrap().0;
        assert_eq!(switch, published + schedule.settle);
        assert!(known.step(switch - SECOND, PUBLISHED, TEST, &schedule).unwrap().is_none());

        let retiring = known.step(switch, PUBLISHED, TEST, &schedule).unwrap().unwrap();
        assert_ne!(retiring.current.name, first.current.name);
        assert_eq!(retiring.bundle(), known.bundle(), "a change of signer needs no publication");
        let end = retiring.deadline(&schedule).unwrap().0;
        assert_eq!(end, switch + schedule.retire);
        assert!(retiring.step(end - SECOND, PUBLISHED, TEST, &schedule).unwrap().is_none());

        let steady = retiring.step(end, PUBLISHED, TEST, &schedule).unwrap().unwrap();
        assert_eq!((steady.stage.name(), steady.bundle()), ("Steady", retiring.current.certificate.clone()));
        assert!(steady.step(end, PUBLISHED, TEST, &schedule).unwrap().is_none());
    }

    #[test]
    fn a_bundle_put_back_by_someone_starts_the_wait_anew() {
        let schedule = Schedule::default();
        let now = start();
        let known = known(now, &schedule);
        let lost = known.step(now + schedule.settle, UNPUBLISHED, TEST, &schedule).unwrap().unwrap();
        assert!(matches!(lost.stage, Stage::Announced { since: None, .. }));
        let again = lost.step(now + schedule.settle, PUBLISHED, TEST, &schedule).unwrap().unwrap();
        assert_eq!(again.deadline(&schedule).unwrap().0, now + 2 * schedule.settle);
    }

    #[test]
    fn a_damaged_or_expired_successor_is_replaced_before_it_signs() {
        let schedule = Schedule::default();
        let now = start();
        let good = known(now, &schedule);
        let mut damaged = good.clone();
        let Stage::Announced { next, .. } = &mut damaged.stage else { panic!("not announced") };
        next.key = "damaged".to_owned();
        for (case, authority, at) in
            [("damaged", damaged, now + schedule.settle), ("expired", good, now + schedule.authority + SECOND)]
        {
            let healed = authority.step(at, PUBLISHED, TEST, &schedule).unwrap().unwrap();
            let Stage::Announced { next, since: None } = &healed.stage else { panic!("{case}: not announced anew") };
            assert!(next.works(at), "{case}");
            assert_eq!(healed.current.name, authority.current.name, "{case}");
        }
    }

    /// The law of the whole module: two replicas, any of them a poll late, any API server a settle time late.
    #[test]
    fn whatever_a_replica_serves_every_api_server_trusts_at_every_second_of_many_rotations() {
        let schedule = Schedule {
            authority: 300 * SECOND,
            serving: 60 * SECOND,
            settle: 20 * SECOND,
            retire: 40 * SECOND,
            poll: 5 * SECOND,
        };
        let names = ["hooks.example".to_owned()];
        let mut authority = Authority::new(start(), TEST, &schedule).unwrap();
        let mut published = authority.bundle();
        let mut seen = VecDeque::from([published.clone()]);
        let mut replicas = [sign(&authority, &names, start(), &schedule), sign(&authority, &names, start(), &schedule)];
        let mut signers = BTreeSet::new();
        for second in 0..1000 {
            let now = start() + second * SECOND;
            let facts = Facts { published: published == authority.bundle(), rotate: second == 100 };
            if let Some(next) = authority.step(now, facts, TEST, &schedule).unwrap() {
                authority = next;
            }
            // Publication fails now and then.
            if second % 7 < 3 {
                published = authority.bundle();
            }
            seen.push_back(published.clone());
            if Duration::from_secs(seen.len() as u64) > schedule.settle {
                seen.pop_front();
            }
            for (replica, late) in replicas.iter_mut().zip([1, 5]) {
                if second % late == 0 && authority.outdates(replica, now) {
                    *replica = sign(&authority, &names, now, &schedule);
                }
                signers.insert(replica.authority.clone());
                let leaf = &replica.der().unwrap();
                for bundle in [seen.front().unwrap(), seen.back().unwrap()] {
                    verify(leaf, bundle, &names[0], now).unwrap();
                }
            }
        }
        assert!(signers.len() >= 4, "only {} authorities signed", signers.len());
    }

    fn start() -> Timestamp {
        Timestamp::UNIX_EPOCH + 20_000 * DAY
    }

    fn known(now: Timestamp, schedule: &Schedule) -> Authority {
        let rotate = Facts { published: true, rotate: true };
        let announced =
            Authority::new(now, TEST, schedule).unwrap().step(now, rotate, TEST, schedule).unwrap().unwrap();
        announced.step(now, PUBLISHED, TEST, schedule).unwrap().unwrap()
    }

    fn sign(authority: &Authority, names: &[String], now: Timestamp, schedule: &Schedule) -> SignedCertificate {
        authority.current.sign_server("portolan-webhook", names, now, schedule.serving).unwrap()
    }
}
