//! Names of endpoints, looked up on a thread of their own.

use super::commands::Command;
use super::ring::Ring;
use super::slab::Key;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Names that wait to be looked up; more fail at once.
const WAITING: usize = 1024;
/// Names kept.
const KEPT: usize = 10_000;

/// Asks the system for addresses and remembers the answers.
pub(super) struct Resolver {
    questions: SyncSender<Question>,
    answers: Arc<Mutex<BTreeMap<String, Answer>>>,
}

struct Question {
    name: String,
    stage: (Key, usize),
    reply: Arc<Ring<Command>>,
}

struct Answer {
    at: Instant,
    addresses: Arc<[IpAddr]>,
}

impl Resolver {
    pub(super) fn start() -> io::Result<Self> {
        let (questions, asked) = sync_channel::<Question>(WAITING);
        let answers: Arc<Mutex<BTreeMap<String, Answer>>> = Arc::default();
        let kept = Arc::clone(&answers);
        std::thread::Builder::new().name("proxy-names".to_owned()).spawn(move || {
            for Question { name, stage: (session, stage), reply } in asked {
                let addresses = look_up(&name);
                let mut kept = kept.lock();
                if kept.len() >= KEPT {
                    kept.clear();
                }
                kept.insert(name, Answer { at: Instant::now(), addresses: Arc::clone(&addresses) });
                drop(kept);
                // A full ring means that the worker is far behind; the attempt times out and is made again.
                reply.push(Command::Resolved { session, stage, addresses }).ok();
            }
        })?;
        Ok(Self { questions, answers })
    }

    /// An answer that is not too old.
    pub(super) fn known(&self, name: &str, ttl: Duration) -> Option<Arc<[IpAddr]>> {
        let answers = self.answers.lock();
        answers.get(name).filter(|answer| answer.at.elapsed() < ttl).map(|answer| Arc::clone(&answer.addresses))
    }

    /// Asks; the answer comes as a command. False if too many wait.
    pub(super) fn ask(&self, name: &str, session: Key, stage: usize, reply: &Arc<Ring<Command>>) -> bool {
        let question = Question { name: name.to_owned(), stage: (session, stage), reply: Arc::clone(reply) };
        self.questions.try_send(question).is_ok()
    }
}

fn look_up(name: &str) -> Arc<[IpAddr]> {
    let found = (name, 0).to_socket_addrs();
    found.map(|addresses| addresses.map(|address| address.ip().to_canonical()).collect()).unwrap_or_default()
}
