//! The state of one replica's view: is it alive, what is armed, what has passed.

use std::{mem, sync::Arc, time::Instant};

use http::request;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    fault::{Fault, Phase},
    injection::{Faults, Injection, Interference},
    script::{Break, Scripts, WatchStep},
    trace::Exchange,
};

/// The switches that watches obey while they are open.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Switches {
    /// How often all watches were cut; a stream remembers the number it was opened at.
    pub(super) cuts: u64,
    pub(super) frozen: Option<u64>,
    /// Watches of paths that end so deliver nothing.
    pub(super) held: Option<&'static str>,
}

/// What runs for a replica from its start to its kill: its connections, and its writes under way.
#[derive(Debug, Clone, Default)]
pub(super) struct Life {
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
}

enum LifeState {
    Alive(Life),
    /// The last answer is being delivered; nothing else is taken.
    Dying(Life, Kill),
    Dead,
}

/// Whom to tell that a replica is dead.
pub(super) type Kill = oneshot::Sender<()>;

/// What to do to a request.
pub(super) type Interfere = Box<dyn Fn(&Exchange) -> Option<Interference> + Send>;

/// Which requests something is about.
pub(super) type Filter = Box<dyn Fn(&Exchange) -> bool + Send>;

struct Armed {
    left: u64,
    phase: Phase,
    counts: Filter,
    done: Kill,
}

struct State {
    life: LifeState,
    faults: Faults,
    decided: u64,
    armed: Option<Armed>,
    interfere: Option<Interfere>,
    scripts: Scripts,
    trace: Vec<Exchange>,
}

pub(super) struct Replica {
    pub(super) upstream: Client,
    state: Mutex<State>,
    switches: watch::Sender<Switches>,
}

/// A request that was let in.
pub(super) struct Admitted {
    pub(super) record: Record,
    pub(super) exchange: Exchange,
    pub(super) injection: Injection,
    pub(super) kill: Option<(Phase, Kill)>,
    pub(super) life: Life,
}

impl Replica {
    pub(super) fn new(upstream: Client, faults: Faults) -> Self {
        let state = State {
            life: LifeState::Alive(Life::default()),
            faults,
            decided: 0,
            armed: None,
            interfere: None,
            scripts: Scripts::default(),
            trace: Vec::new(),
        };
        Self { upstream, state: Mutex::new(state), switches: watch::Sender::new(Switches::default()) }
    }

    /// Records a request and decides what becomes of it; nothing if the replica is not alive.
    pub(super) fn admit(self: &Arc<Self>, head: &request::Parts) -> Option<Admitted> {
        let mut state = self.state.lock();
        let mut exchange = Exchange::new(state.trace.len() as u64 + 1, head);
        let record = Record { replica: Arc::clone(self), number: exchange.number };
        let LifeState::Alive(life) = &state.life else {
            exchange.fault = Some(Fault::Refused);
            state.trace.push(exchange);
            drop(state); // The record takes the lock again when it is dropped.
            return None;
        };
        let life = life.clone();
        let kill = take_if_due(&mut state.armed, &exchange);
        state.decided += 1;
        let interference = state.interfere.as_ref().and_then(|interfere| interfere(&exchange));
        let injection = match (&kill, interference) {
            (Some(_), _) => Injection::none(),
            (None, Some(interference)) => Injection::interfered(interference),
            (None, None) => state.faults.decide(state.decided, &exchange),
        };
        exchange.fault = kill.as_ref().map(|(phase, _)| Fault::Killed(*phase));
        exchange.delayed = injection.delay;
        state.trace.push(exchange.clone());
        Some(Admitted { record, exchange, injection, kill, life })
    }

    pub(super) fn interfere(&self, interfere: Interfere) {
        self.state.lock().interfere = Some(interfere);
    }

    pub(super) fn arm(&self, n: u64, phase: Phase, counts: Filter) -> oneshot::Receiver<()> {
        let (done, dead) = oneshot::channel();
        self.state.lock().armed = Some(Armed { left: n, phase, counts, done });
        dead
    }

    /// Takes no more requests, so that the answer about to be delivered is the last.
    pub(super) fn start_dying(&self, done: Kill) {
        let mut state = self.state.lock();
        state.life = match mem::replace(&mut state.life, LifeState::Dead) {
            LifeState::Alive(life) => LifeState::Dying(life, done),
            other @ (LifeState::Dying(..) | LifeState::Dead) => other,
        };
    }

    /// Closes all connections, and tells `done` when what was under way has ended.
    pub(super) fn die(&self, done: Option<Kill>) {
        let life = mem::replace(&mut self.state.lock().life, LifeState::Dead);
        let (life, waiting) = match life {
            LifeState::Alive(life) => (life, None),
            LifeState::Dying(life, waiting) => (life, Some(waiting)),
            LifeState::Dead => return,
        };
        life.stop.cancel();
        life.tasks.close();
        tokio::spawn(async move {
            life.tasks.wait().await;
            for done in waiting.into_iter().chain(done) {
                // Who no longer waits need not be told.
                done.send(()).ok();
            }
        });
    }

    pub(super) fn revive(&self) {
        let mut state = self.state.lock();
        if matches!(state.life, LifeState::Dead) {
            state.life = LifeState::Alive(Life::default());
        }
    }

    /// Closes all connections without waiting; for when the proxy goes away, maybe outside of a runtime.
    pub(super) fn stop(&self) {
        let life = mem::replace(&mut self.state.lock().life, LifeState::Dead);
        if let LifeState::Alive(life) | LifeState::Dying(life, _) = life {
            life.stop.cancel();
        }
    }

    pub(super) fn life(&self) -> Option<Life> {
        match &self.state.lock().life {
            LifeState::Alive(life) => Some(life.clone()),
            LifeState::Dying(..) | LifeState::Dead => None,
        }
    }

    pub(super) fn set_faults(&self, faults: Faults) {
        let mut state = self.state.lock();
        (state.faults, state.decided) = (faults, 0);
    }

    pub(super) fn switch(&self, change: impl FnOnce(&mut Switches)) {
        self.switches.send_modify(change);
    }

    pub(super) fn switches(&self) -> watch::Receiver<Switches> {
        self.switches.subscribe()
    }

    pub(super) fn script(&self, path: &str, steps: Vec<WatchStep>) {
        self.state.lock().scripts.set(path, steps);
        // Wakes the streams: the first step may be due at once.
        self.switch(|_| {});
    }

    pub(super) fn script_left(&self, path: &str) -> usize {
        self.state.lock().scripts.left(path)
    }

    pub(super) fn script_refuses(&self, path: &str) -> bool {
        self.state.lock().scripts.refuses(path)
    }

    pub(super) fn script_breaks(&self, path: &str) -> Option<Break> {
        self.state.lock().scripts.break_due(path)
    }

    pub(super) fn script_passes(&self, path: &str, bookmark: bool) -> bool {
        let scripts = &mut self.state.lock().scripts;
        if bookmark { scripts.bookmark_passes(path) } else { scripts.event_passes(path) }
    }

    pub(super) fn trace(&self, keep: impl Fn(&Exchange) -> bool) -> Vec<Exchange> {
        self.state.lock().trace.iter().filter(|exchange| keep(exchange)).cloned().collect()
    }

    pub(super) fn note(&self, number: u64, change: impl FnOnce(&mut Exchange)) {
        let index = usize::try_from(number - 1).expect("a place in a Vec is a usize");
        change(&mut self.state.lock().trace[index]);
    }
}

fn take_if_due(armed: &mut Option<Armed>, exchange: &Exchange) -> Option<(Phase, Kill)> {
    let kill = armed.as_mut().filter(|kill| (kill.counts)(exchange))?;
    kill.left = kill.left.saturating_sub(1);
    if kill.left > 0 {
        return None;
    }
    armed.take().map(|kill| (kill.phase, kill.done))
}

/// The open entry of a request in the trace; finished when dropped.
pub(super) struct Record {
    replica: Arc<Replica>,
    number: u64,
}

impl Record {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn answered(&self, code: u16) {
        self.replica.note(self.number, |exchange| exchange.answered = Some(code));
    }

    pub(super) fn fault(&self, fault: Fault) {
        self.replica.note(self.number, |exchange| exchange.fault = Some(fault));
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.replica.note(self.number, |exchange| exchange.finished = Some(Instant::now()));
    }
}
