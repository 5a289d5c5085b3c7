//! The parts of one process, started and stopped in order.

use std::num::NonZeroUsize;
use std::sync::Arc;

use super::logs::Logs;
use super::signals::Signals;
use super::{Failure, refused, words};
use crate::config::json::Json;
use crate::config::types::Admin;
use crate::io::{DataPlane, sys};
use crate::rest::options::Options;
use crate::rest::server::{self, Listen, Running};
use crate::rest::{Api, Settings};

/// A proxy that takes sessions.
pub(super) struct Proxy {
    options: Options,
    plane: Arc<DataPlane>,
    api: Arc<Api>,
    server: Running,
}

impl Proxy {
    /// Starts workers, API and listeners, in this order; when it returns, all are open.
    pub(super) fn start(options: Options, config: &Json, admin: &Admin, logs: Logs) -> Result<Self, Failure> {
        let workers = options.workers.map(NonZeroUsize::get).or(admin.workers).filter(|workers| *workers > 0);
        let workers = workers.unwrap_or_else(sys::processors);
        let access = options.access()?;
        let unlistening = || match options.api {
            Some(address) => format!("the API cannot listen on {address}"),
            None => "the API cannot be started".to_owned(),
        };
        let listen = Listen::new(&options, &access).map_err(Failure::start(unlistening()))?;
        let (desk, inbox) = server::desk();
        let home = options.home();
        let start = crate::io::Options { workers, home, desk: Some(desk), ..crate::io::Options::default() };
        let plane = DataPlane::start(start).map_err(Failure::start("workers cannot be started"))?;
        let settings = Settings {
            strict: options.strict,
            enabled: !options.no_api,
            instance: instance(),
            workers,
            on_admin: Box::new(move |admin| logs.follow(admin)),
        };
        let api = Arc::new(Api::new(Arc::clone(&plane) as _, access, settings));
        let server = server::start(Arc::clone(&api), inbox, listen).map_err(Failure::start(unlistening()))?;
        api.load(config).map_err(|refusal| refused(&options, &refusal))?;
        let address = server.address.map(|address| address.to_string());
        tracing::info!(workers, api = address, "the proxy runs");
        Ok(Self { options, plane, api, server })
    }

    /// Puts the file in force as it is by now; a bad one changes nothing.
    pub(super) fn reload(&self) {
        if self.options.config.is_none() {
            return tracing::info!("there is no file to read again");
        }
        let read = self.options.static_config().map_err(|error| super::with_cause(&error));
        match read.and_then(|config| self.api.load(&config).map_err(|refusal| words(&refusal))) {
            Ok(()) => tracing::info!("the file is in force as it is by now"),
            Err(why) => {
                tracing::error!(why, "the file was not taken, and nothing has changed: mend it and send SIGHUP");
            }
        }
    }

    /// Takes no further sessions and waits for those that run, as long as the configuration says; a second signal
    /// ends the wait.
    pub(super) async fn drain(self, signals: &mut Signals) {
        let Self { options: _, plane, api, server } = self;
        let patience = api.begin_drain();
        tracing::info!(seconds = patience.as_secs_f64(), "stopping: sessions may end by themselves");
        let (done, drained) = tokio::sync::oneshot::channel();
        let draining = std::thread::Builder::new().name("drain".to_owned()).spawn(move || {
            plane.drain(patience);
            // nobody waits any more after a second signal
            done.send(()).ok();
        });
        if let Err(error) = draining {
            return tracing::error!(%error, "sessions cannot be waited for");
        }
        tokio::select! {
            _ = drained => tracing::info!("stopped"),
            () = signals.stop() => tracing::warn!("stopped by a second signal, without waiting for sessions"),
        }
        server.stop();
    }
}

/// A name for this process: pods are named after themselves.
fn instance() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}-{}", host.trim(), std::process::id())
}
