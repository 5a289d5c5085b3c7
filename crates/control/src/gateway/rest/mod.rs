//! The REST API of gateway: tenants announce services and endpoints without access to Kubernetes.
//!
//! ```text
//! client --> server: TLS --> handle: route, login, rate --> services, endpoints, bulk, lists, watch
//!                                                            |  ^ reads              ^ changes
//!                                                            |  '---- Cache ----> feed
//!                                                            '-- writes --> API server
//! ```
//! Every replica serves. Reads come from the cache of the control loop; a write is answered when the cache shows it.

mod backlog;
mod bulk;
mod context;
mod endpoints;
mod error;
mod feed;
mod fields;
mod handle;
mod htpasswd;
mod links;
mod lists;
mod login;
pub(super) mod metrics;
mod names;
mod openapi;
mod options;
mod reason;
mod refusal;
mod reply;
mod routes;
mod server;
mod services;
mod throttle;
mod tls;
mod tree;
mod views;
mod watch;
mod wishes;
mod writes;

use std::net::SocketAddr;
use std::sync::Arc;

pub use error::Error;
pub use openapi::openapi;
pub use options::{Config, RestArgs};
use prometheus_client::registry::Registry;
use tokio::sync::Notify;

use self::context::Context;
use self::feed::Feed;
use self::login::Logins;
use self::metrics::Metrics;
use self::throttle::Buckets;
use self::tls::Tls;
use self::writes::Writes;
use super::observe::Cache;
use crate::runtime::app::Ctx;

/// Where the REST API listens.
#[derive(Debug, Clone, Copy)]
pub struct Handle {
    /// With TLS.
    pub tls: Option<SocketAddr>,
    /// Without.
    pub plain: Option<SocketAddr>,
}

/// Serves the REST API until the process stops. Call it before the watches of the cache start.
pub fn start(ctx: &Ctx, registry: &mut Registry, cache: &Cache, config: Config) -> Result<Handle, Error> {
    let Config { tls, plain, watches, rate, reread } = config;
    if let Some(listen) = plain.filter(|listen| !listen.ip().is_loopback()) {
        return Err(Error::NotLoopback { listen });
    }
    let metrics = Metrics::register(registry);
    let changed = Arc::new(Notify::new());
    let followers = (cache.load_balancers.follow(Arc::clone(&changed)), cache.endpoints.follow(Arc::clone(&changed)));
    let writes = Writes::new(ctx.unfenced.clone());
    let context = Arc::new(Context {
        cache: cache.clone(),
        feed: Arc::new(Feed::new(cache.clone(), followers, metrics.clone(), watches)),
        changed: tokio::sync::watch::Sender::new(0),
        logins: Logins::new(writes.clone(), metrics.clone()).ok_or(Error::NoRandomness)?,
        writes,
        buckets: Buckets::per_second(rate),
        metrics,
        tasks: ctx.tasks.clone(),
        stop: ctx.tasks.stop(),
    });
    let mut handle = Handle { tls: None, plain: None };
    if let Some((listen, folder)) = tls {
        let files = Tls::read(&folder)?;
        let (listener, bound) = server::bind(listen)?;
        handle.tls = Some(bound);
        ctx.tasks.spawn("gateway rest", server::run(listener, Some(files.config()), Arc::clone(&context)));
        ctx.tasks.spawn("gateway rest files", files.keep(reread, ctx.tasks.stop()));
    }
    if let Some(listen) = plain {
        let (listener, bound) = server::bind(listen)?;
        handle.plain = Some(bound);
        ctx.tasks.spawn("gateway rest", server::run(listener, None, Arc::clone(&context)));
    }
    ctx.tasks.spawn("gateway rest feed", follow(context, changed));
    tracing::info!(?handle, "the REST API listens");
    Ok(handle)
}

async fn follow(context: Arc<Context>, changed: Arc<Notify>) {
    loop {
        tokio::select! {
            () = context.stop.cancelled() => return,
            () = changed.notified() => {}
        }
        context.feed.follow();
        context.changed.send_modify(|count| *count = count.wrapping_add(1));
    }
}
