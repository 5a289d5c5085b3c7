//! A proxy between one replica and an API server that makes things go wrong on purpose.
//!
//! ```text
//! controller (one replica) --plain HTTP--> FaultProxy --any kube::Client--> API server
//! ```
//!
//! One [`FaultProxy`] is the view that one replica has of the cluster: freeze it, cut it off or kill it, and
//! the others see nothing of that. Credentials and TLS are the upstream client's. What passes is recorded in
//! the [`trace`](FaultProxy::trace), and the trace tells the truth: a write that was sent is followed to its
//! end even when the replica was cut off meanwhile.
//!
//! Chance comes from [`Faults::seed`] alone: the same requests in the same order meet the same faults.

use std::{fs, net::Ipv4Addr, net::SocketAddr, path::Path, sync::Arc};

use anyhow::Context;
use kube::{Client, Config};
use tokio::{
    net::TcpListener,
    sync::oneshot,
    task::{AbortHandle, spawn},
};

use self::replica::Replica;
pub use self::{
    fault::{Fault, Phase},
    injection::{Faults, Interference},
    script::WatchStep,
    tls::TlsFront,
    trace::Exchange,
};
use crate::kubeconfig::kubeconfig;

mod fault;
mod forward;
mod injection;
mod replica;
mod response;
mod script;
mod serve;
mod status;
mod target;
mod tls;
mod trace;
mod watch;

/// The view of one replica; it stops serving when dropped.
pub struct FaultProxy {
    replica: Arc<Replica>,
    address: SocketAddr,
    accepting: AbortHandle,
}

impl FaultProxy {
    /// Starts a proxy on a free port of 127.0.0.1, in the runtime of the caller. The upstream client should retry
    /// nothing by itself (`default_retry = false`), or faults of its server are hidden.
    pub async fn start(upstream: Client, faults: Faults) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("starting a fault proxy failed")?;
        let address = listener.local_addr()?;
        let replica = Arc::new(Replica::new(upstream, faults));
        let accepting = spawn(serve::accept(listener, Arc::clone(&replica))).abort_handle();
        Ok(Self { replica, address, accepting })
    }

    /// The configuration of a client of this proxy, which retries nothing by itself.
    pub fn config(&self) -> Config {
        let mut config = Config::new(self.url().parse().expect("an address makes a URL"));
        config.default_retry = false;
        config
    }

    /// A client of this proxy; call it within a tokio runtime.
    pub fn client(&self) -> Client {
        Client::try_from(self.config()).expect("plain HTTP needs nothing that could be missing")
    }

    /// TLS in front of this proxy.
    pub async fn with_tls(&self) -> anyhow::Result<TlsFront> {
        TlsFront::start(self.address).await
    }

    /// Writes a kubeconfig for programs that should go through this proxy.
    pub fn write_kubeconfig(&self, path: &Path) -> anyhow::Result<()> {
        let content = kubeconfig(&self.url(), None, None).to_string();
        fs::write(path, content).with_context(|| format!("writing {} failed", path.display()))
    }

    /// Replaces the faults, and counts requests from zero again, as the seed sees them.
    pub fn set_faults(&self, faults: Faults) {
        self.replica.set_faults(faults);
    }

    /// Kills the replica at its `n`-th write from now, 1 being the next. See [`FaultProxy::kill_at`].
    pub fn kill_at_write(&self, n: u64, phase: Phase) -> oneshot::Receiver<()> {
        self.kill_at(n, phase, Exchange::is_write)
    }

    /// Kills the replica at its `n`-th request from now that `counts`, 1 being the next.
    ///
    /// From then on it is as if the process was gone: connections are closed, further ones are closed when they
    /// come. The receiver fires once nothing of this replica can change the cluster any more, writes under way
    /// included. Random faults spare the request that kills. A second call replaces the first, whose receiver
    /// then fails.
    pub fn kill_at(
        &self,
        n: u64,
        phase: Phase,
        counts: impl Fn(&Exchange) -> bool + Send + 'static,
    ) -> oneshot::Receiver<()> {
        self.replica.arm(n, phase, Box::new(counts))
    }

    /// From now on closes the connection on every request that `refused` picks, without sending it on.
    pub fn refuse(&self, refused: impl Fn(&Exchange) -> bool + Send + 'static) {
        self.interfere(move |exchange| refused(exchange).then_some(Interference::Drop));
    }

    /// From now on does to every request what `interfere` says; to the others, what chance says. A second call replaces
    /// the first.
    pub fn interfere(&self, interfere: impl Fn(&Exchange) -> Option<Interference> + Send + 'static) {
        self.replica.interfere(Box::new(interfere));
    }

    /// Kills the replica at this moment, and returns once nothing of it can change the cluster any more.
    pub async fn kill(&self) {
        let (done, dead) = oneshot::channel();
        self.replica.die(Some(done));
        // The sender is dropped unused only if the replica was dead before.
        dead.await.ok();
    }

    /// Serves again after a kill, as for a process started anew.
    pub fn revive(&self) {
        self.replica.revive();
    }

    /// Whether the replica is served.
    pub fn is_alive(&self) -> bool {
        self.replica.life().is_some()
    }

    /// Freezes what the replica sees at a resource version, or thaws it.
    ///
    /// Lists are answered as of that version. Watches deliver the events up to it and then fall silent. Reads of
    /// one object and writes are not touched. A change ends the watches that have held something back, so that
    /// the client resumes. A watch that asks for a list in the stream (`sendInitialEvents`) is refused with 400,
    /// as the API server cannot answer it for an old version.
    pub fn freeze_at(&self, resource_version: Option<u64>) {
        self.replica.switch(|switches| switches.frozen = resource_version);
    }

    /// Stops delivering the watch events of paths that end so (all of them, for an empty end), or goes on with those
    /// that came meanwhile.
    pub fn hold_watch_events(&self, path: Option<&'static str>) {
        self.replica.switch(|switches| switches.held = path);
    }

    /// Cuts the connection of every watch that is open at this moment.
    pub fn cut_watches(&self) {
        self.replica.switch(|switches| switches.cuts += 1);
    }

    /// Says step by step what happens to the watches of one path, beginning with the one that is open.
    ///
    /// `path` is how the path ends: `tickets`, or `namespaces/shop/tickets`, or all of it. A script replaces the
    /// one before it; when it is done, events pass.
    pub fn script_watch(&self, path: &str, steps: Vec<WatchStep>) {
        self.replica.script(path, steps);
    }

    /// How many steps of the script for `path` have not been done yet.
    pub fn script_left(&self, path: &str) -> usize {
        self.replica.script_left(path)
    }

    /// Every request so far, in the order they came.
    pub fn trace(&self) -> Vec<Exchange> {
        self.replica.trace(|_| true)
    }

    /// Every request so far that wrote, or would have without its fault.
    pub fn writes(&self) -> Vec<Exchange> {
        self.replica.trace(Exchange::is_write)
    }

    /// [`FaultProxy::writes`] without those to Leases, whose number depends on time alone.
    pub fn writes_but_leases(&self) -> Vec<Exchange> {
        self.replica.trace(|exchange| exchange.is_write() && !exchange.is_lease())
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.replica.stop();
    }
}
