//! DNS names of endpoints, resolved on separate threads.
//!
//! The system resolver is used, so that `/etc/hosts`, search domains and other settings of the machine apply. It does not
//! report TTLs, so a name in use is resolved again every `ttl_min` seconds, while sessions use the last answer; if
//! resolving fails, that answer is used for `ttl_max` seconds more.

use super::command::Command;
use super::ring::Ring;
use super::slab::Key;
use crate::config::types::Dns;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// Names that wait to be looked up; more fail at once.
const WAITING: usize = 1024;
/// Names kept.
const KEPT: usize = 10_000;
/// Lookups at a time, so that one dead name does not hold up the others.
const THREADS: usize = 4;

/// How names become addresses.
pub type Lookup = Arc<dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync>;

/// Looks a name up as the system does.
pub(crate) fn of_system() -> Lookup {
    Arc::new(|name| Ok((name, 0).to_socket_addrs()?.map(|address| address.ip().to_canonical()).collect()))
}

/// Asks for addresses and remembers the answers.
pub(crate) struct Resolver {
    /// To one thread each; a name is always the same one's.
    questions: Vec<SyncSender<Question>>,
    answers: Arc<Mutex<BTreeMap<String, Answer>>>,
}

struct Question {
    name: String,
    asker: Option<Asker>,
}

/// The stage that waits for an answer; none for a refresh.
struct Asker {
    session: Key,
    stage: usize,
    reply: Arc<Ring<Command>>,
}

struct Answer {
    asked: Instant,
    /// When the addresses were last heard of.
    heard: Instant,
    addresses: Arc<[IpAddr]>,
}

impl Resolver {
    pub(crate) fn start(lookup: &Lookup) -> io::Result<Self> {
        let answers: Arc<Mutex<BTreeMap<String, Answer>>> = Arc::default();
        let mut questions = Vec::with_capacity(THREADS);
        for _ in 0..THREADS {
            let (sender, asked) = sync_channel::<Question>(WAITING);
            let (answers, lookup) = (Arc::clone(&answers), Arc::clone(lookup));
            let thread = std::thread::Builder::new().name("proxy-names".to_owned());
            thread.spawn(move || answer_all(&asked, &answers, &lookup))?;
            questions.push(sender);
        }
        Ok(Self { questions, answers })
    }

    /// The addresses of a name, as far as they are known; none are known of a name that was asked for in vain.
    pub(crate) fn known(&self, name: &str, dns: Dns, now: Instant) -> Option<Arc<[IpAddr]>> {
        let mut answers = self.answers.lock();
        let answer = answers.get_mut(name)?;
        let fresh = now.saturating_duration_since(answer.asked) < Duration::from_secs(dns.ttl_min.max(1));
        let usable = now.saturating_duration_since(answer.heard) < Duration::from_secs(dns.ttl_max);
        if !fresh && (!usable || answer.addresses.is_empty()) {
            return None;
        }
        if !fresh && self.send(name, None) {
            answer.asked = now;
        }
        Some(Arc::clone(&answer.addresses))
    }

    /// Asks; the answer comes as a command. False if too many wait.
    pub(crate) fn ask(&self, name: &str, session: Key, stage: usize, reply: &Arc<Ring<Command>>) -> bool {
        self.send(name, Some(Asker { session, stage, reply: Arc::clone(reply) }))
    }

    fn send(&self, name: &str, asker: Option<Asker>) -> bool {
        let thread = xxh3_64(name.as_bytes()) as usize % self.questions.len();
        self.questions[thread].try_send(Question { name: name.to_owned(), asker }).is_ok()
    }
}

fn answer_all(asked: &Receiver<Question>, answers: &Mutex<BTreeMap<String, Answer>>, lookup: &Lookup) {
    for Question { name, asker } in asked {
        let found = lookup(&name).ok().filter(|addresses| !addresses.is_empty());
        let addresses = note(&mut answers.lock(), name, found, Instant::now());
        if let Some(Asker { session, stage, reply }) = asker {
            // A full ring means that the worker is far behind; the attempt times out and is made again.
            reply.push(Command::Resolved { session, stage, addresses }).ok();
        }
    }
}

/// Keeps an answer; a failure does not take the place of addresses.
fn note(
    answers: &mut BTreeMap<String, Answer>,
    name: String,
    found: Option<Vec<IpAddr>>,
    now: Instant,
) -> Arc<[IpAddr]> {
    if answers.len() >= KEPT && !answers.contains_key(&name) {
        answers.clear();
    }
    let answer = answers.entry(name).or_insert_with(|| Answer { asked: now, heard: now, addresses: Arc::default() });
    answer.asked = now;
    if let Some(found) = found {
        answer.heard = now;
        answer.addresses = found.into();
    }
    Arc::clone(&answer.addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_made_fresh_in_the_background_and_outlives_a_failing_name_service_for_a_while() {
        let answer: Arc<Mutex<io::Result<Vec<IpAddr>>>> = Arc::new(Mutex::new(Ok(vec![[10, 0, 0, 1].into()])));
        let given = Arc::clone(&answer);
        let lookup: Lookup = Arc::new(move |_| match &*given.lock() {
            Ok(addresses) => Ok(addresses.clone()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        });
        let resolver = Resolver::start(&lookup).unwrap();
        let dns = Dns { ttl_min: 5, ttl_max: 300 };
        let known = |after: u64| resolver.known("a", dns, Instant::now() + Duration::from_secs(after));
        let until = |what: &str, holds: &dyn Fn() -> bool| {
            let end = Instant::now() + Duration::from_secs(10);
            while !holds() {
                assert!(Instant::now() < end, "{what}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let key = Key { slot: 0, generation: 0 };
        assert!(known(0).is_none() && resolver.ask("a", key, 0, &Ring::new(1).unwrap()));
        let first: &[IpAddr] = &[[10, 0, 0, 1].into()];
        until("the first answer", &|| known(0).as_deref() == Some(first));
        *answer.lock() = Ok(vec![[10, 0, 0, 2].into()]);
        assert_eq!(known(4).as_deref(), Some(first), "not asked again so soon");
        assert_eq!(known(6).as_deref(), Some(first), "asked again, and nobody waits");
        let second: &[IpAddr] = &[[10, 0, 0, 2].into()];
        until("the second answer", &|| known(0).as_deref() == Some(second));
        *answer.lock() = Err(io::ErrorKind::TimedOut.into());
        assert_eq!(known(200).as_deref(), Some(second), "the name service fails");
        assert!(known(600).is_none(), "too old");
    }
}
