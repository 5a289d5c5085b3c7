//! The parts of one process, started and stopped in order.

use std::num::NonZeroUsize;
use std::sync::Arc;

use super::logs::Logs;
use super::signals::Signals;
use super::{Failure, describe, refused};
use crate::config::json::Json;
use crate::config::types::Admin;
use crate::io::{DataPlane, sys};
use crate::rest::options::Options;
use crate::rest::server::{self, Listen, Running};
use crate::rest::{Api, Settings};

/// A running proxy.
pub(super) struct Proxy {
    options: Options,
    plane: Arc<DataPlane>,
    api: Arc<Api>,
    server: Running,
}

impl Proxy {
    /// Starts workers, API and listeners, in this order; all are open when this returns.
    pub(super) fn start(options: Options, config: &Json, admin: &Admin, logs: Logs) -> Result<Self, Failure> {
        let workers = options.workers.map(NonZeroUsize::get).or(admin.workers).filter(|workers| *workers > 0);
        let workers = workers.unwrap_or_else(sys::processors);
        let access = options.access()?;
        let cannot_serve = || match options.api {
            Some(address) => format!("cannot serve the API on {address}"),
            None => "cannot start the API".to_owned(),
        };
        let listen = Listen::new(&options, &access).map_err(Failure::start(cannot_serve()))?;
        let (api_handler, queue) = server::api_queue();
        let host_mapping = options.host_mapping();
        let start = crate::io::Options {
            workers,
            host_mapping,
            api_handler: Some(api_handler),
            ..crate::io::Options::default()
        };
        let plane = DataPlane::start(start).map_err(Failure::start("cannot start workers"))?;
        let settings = Settings {
            strict: options.strict,
            enabled: !options.no_api,
            ready_when_programmed: options.ready_when_programmed,
            instance: instance(),
            workers,
            on_admin: Box::new(move |admin| logs.follow(admin)),
        };
        let api = Arc::new(Api::new(Arc::clone(&plane) as _, access, settings));
        let server = server::start(Arc::clone(&api), queue, listen).map_err(Failure::start(cannot_serve()))?;
        api.load(config).map_err(|refusal| refused(&options, &refusal))?;
        let address = server.address.map(|address| address.to_string());
        tracing::info!(workers, api = address, "proxy started");
        Ok(Self { options, plane, api, server })
    }

    /// Reads the configuration file again and applies it; an invalid file changes nothing.
    pub(super) fn reload(&self) {
        if self.options.config.is_none() {
            return tracing::info!("reload requested, but no configuration file was given");
        }
        let read = self.options.static_config().map_err(|error| super::with_cause(&error));
        match read.and_then(|config| self.api.load(&config).map_err(|refusal| describe(&refusal))) {
            Ok(()) => tracing::info!("configuration file reloaded"),
            Err(why) => {
                tracing::error!(why, "reload failed, configuration unchanged: fix the file and send SIGHUP again");
            }
        }
    }

    /// Accepts no new sessions and waits up to `drain_timeout` for existing ones; a second signal ends the wait.
    pub(super) async fn drain(self, signals: &mut Signals) {
        let Self { options: _, plane, api, server } = self;
        let timeout = api.begin_drain();
        tracing::info!(seconds = timeout.as_secs_f64(), "draining: waiting for sessions to end");
        let (done, drained) = tokio::sync::oneshot::channel();
        let draining = std::thread::Builder::new().name("drain".to_owned()).spawn(move || {
            plane.drain(timeout);
            // after a second signal nobody waits for this
            done.send(()).ok();
        });
        if let Err(error) = draining {
            return tracing::error!(%error, "cannot wait for sessions to end");
        }
        tokio::select! {
            _ = drained => tracing::info!("stopped"),
            () = signals.stop() => tracing::warn!("stopped by a second signal without waiting for sessions"),
        }
        server.stop();
    }
}

/// A name for this process; in a pod it contains the pod name.
fn instance() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}-{}", host.trim(), std::process::id())
}
