//! The signals that the proxy handles.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

pub(super) struct Signals {
    reload: Signal,
    terminate: Signal,
    interrupt: Signal,
}

/// What a signal requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalAction {
    Reload,
    Stop,
}

impl SignalAction {
    pub(super) const fn is_reload(self) -> bool {
        matches!(self, Self::Reload)
    }
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            reload: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.reload.recv() => SignalAction::Reload,
            _ = self.terminate.recv() => SignalAction::Stop,
            _ = self.interrupt.recv() => SignalAction::Stop,
        }
    }

    /// Waits for a signal to stop, whatever else comes.
    pub(super) async fn stop(&mut self) {
        while self.next().await.is_reload() {}
    }
}
