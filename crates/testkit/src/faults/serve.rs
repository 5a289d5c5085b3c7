//! Takes connections and answers requests.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, header};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use super::{
    fault::{Fault, Phase},
    forward,
    replica::{Admitted, Life, Replica},
    response::{Closed, ProxyResponse, full},
    status, watch,
};

/// A body that breaks off in the middle.
fn half(body: &Bytes) -> UnsyncBoxBody<Bytes, Closed> {
    let parts = [Some(body.slice(..body.len() / 2)), None];
    StreamBody::new(stream::iter(parts).then(|part| async {
        // While this waits, hyper writes out what came before the break.
        tokio::task::yield_now().await;
        part.map(Frame::data).ok_or(Closed)
    }))
    .boxed_unsync()
}

/// Takes connections until aborted; those to a dead replica are closed at once.
pub(super) async fn accept(listener: TcpListener, replica: Arc<Replica>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if let Some(life) = replica.life() {
                    let tasks = life.tasks.clone();
                    tasks.spawn(serve(stream, Arc::clone(&replica), life));
                }
            }
            // Out of file descriptors, most likely: others may free some.
            Err(error) => {
                tracing::warn!(%error, "taking a connection failed");
                tokio::task::yield_now().await;
            }
        }
    }
}

async fn serve(stream: TcpStream, replica: Arc<Replica>, life: Life) {
    let last = Arc::new(AtomicBool::new(false));
    let service = service_fn(|request| answer(Arc::clone(&replica), request, Arc::clone(&last)));
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // An error is a connection closed by one side or the other: nothing to do about it.
    life.stop.run_until_cancelled(connection).await;
    // By then the last answer has been written out.
    if last.load(Ordering::Acquire) {
        replica.die(None);
    }
}

async fn answer(
    replica: Arc<Replica>,
    request: Request<Incoming>,
    last: Arc<AtomicBool>,
) -> Result<ProxyResponse, Closed> {
    let (head, body) = request.into_parts();
    let mut admitted = replica.admit(&head).ok_or(Closed)?;
    let body = body.collect().await.map_err(|_| Closed)?.to_bytes();
    let frozen = replica.switches().borrow().frozen;
    let request = forward::request(head, body, &admitted.exchange, frozen).map_err(|_| Closed)?;

    let answer = match admitted.kill.take() {
        Some((Phase::BeforeSend, done)) => {
            replica.die(Some(done));
            return Err(Closed);
        }
        Some((Phase::AfterCommit, done)) => {
            let answer = forward::whole(&replica, &admitted, request).await;
            replica.die(Some(done));
            return Err(answer.err().unwrap_or(Closed));
        }
        Some((Phase::AfterAnswer, done)) => {
            let answer = forward::whole(&replica, &admitted, request).await;
            replica.start_dying(done);
            last.store(true, Ordering::Release);
            let mut answer = answer?.map(full);
            answer.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
            answer
        }
        None => return decided(replica, admitted, request).await,
    };
    admitted.record.answered(answer.status().as_u16());
    Ok(answer)
}

/// Answers a request that does not kill, as the rng and the scripts say.
async fn decided(
    replica: Arc<Replica>,
    admitted: Admitted,
    request: Request<kube::client::Body>,
) -> Result<ProxyResponse, Closed> {
    let Admitted { record, exchange, injection, .. } = &admitted;
    if !injection.delay.is_zero() {
        tokio::time::sleep(injection.delay).await;
    }
    let scripted = exchange.is_watch() && replica.script_refuses(&exchange.path);
    let fault = if scripted { Some(Fault::Gone) } else { injection.fault };
    if let Some(fault) = fault {
        record.fault(fault);
    }
    let frozen = replica.switches().borrow().frozen.is_some();
    let answer = match fault {
        Some(Fault::DroppedBefore) => return Err(Closed),
        Some(Fault::DroppedAfter) => {
            forward::whole(&replica, &admitted, request).await?;
            return Err(Closed);
        }
        Some(Fault::CutAnswer) => forward::whole(&replica, &admitted, request).await?.map(|body| half(&body)),
        Some(Fault::Conflict) => status::conflict(),
        Some(Fault::Gone) if exchange.is_watch() && injection.in_stream && !scripted => status::gone_in_stream(),
        Some(Fault::Gone) => status::gone(),
        Some(Fault::Throttled(seconds)) => status::throttled(seconds),
        Some(Fault::ServerError(code)) => status::server_error(code),
        // The other faults are never rolled.
        None | Some(Fault::CutWatch | Fault::Killed(_) | Fault::Refused | Fault::Unreachable) => {
            if exchange.is_watch() && frozen && exchange.parameter("sendInitialEvents") == Some("true") {
                status::bad_request("a frozen view cannot stream a list: list first, then watch")
            } else if exchange.is_watch() {
                return watch::open(replica, admitted, request).await;
            } else {
                forward::whole(&replica, &admitted, request).await?.map(full)
            }
        }
    };
    record.answered(answer.status().as_u16());
    Ok(answer)
}
