//! Changes one object under optimistic lock: read, change, replace; on conflict read again, for as long as it takes.

use kube::Client;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::backoff::Backoff;
use super::endpoint::{Endpoint, Part};
use super::error::Error;
use super::store::Key;
use super::watch::Kind;

/// What the caller's function makes of the object as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<T> {
    /// The object was changed: write it, then answer this.
    Write(T),
    /// It says already what is wanted: answer this without writing.
    Keep(T),
}

/// Reads the object at `key`, lets `change` edit it and replaces it, until that went through or `stop` is cancelled.
///
/// `change` runs once per try, on a fresh read each time. An answer that was lost is followed by another try, so it
/// must find its own earlier work: record a number under the name of who asked, and keep it when it is there.
/// An error of `change` (nothing free, say) ends the work at once.
pub async fn change<K, T, E>(
    client: &Client,
    key: &Key,
    part: Part,
    stop: &CancellationToken,
    mut change: impl FnMut(&mut K) -> Result<Change<T>, E>,
) -> Result<T, E>
where
    K: Kind + Serialize,
    E: From<Error>,
{
    let endpoint = Endpoint::<K>::of(client, key);
    let what = || format!("changing {} {key}", K::kind(&()));
    let (mut conflicts, mut failures) = (Backoff::CONFLICTS.delays(), Backoff::REQUESTS.delays());
    loop {
        let problem = match endpoint.get(&key.name).await {
            Ok(Some(mut object)) => {
                let answer = match change(&mut object)? {
                    Change::Keep(answer) => return Ok(answer),
                    Change::Write(answer) => answer,
                };
                match endpoint.replace(part, &key.name, &object).await {
                    Ok(_) => return Ok(answer),
                    Err(cause) => Error::from_request(what(), cause),
                }
            }
            Ok(None) => {
                return Err(Error::Invalid { what: what(), problem: "it does not exist: create it".into() }.into());
            }
            Err(cause) => Error::from_request(what(), cause),
        };
        if !may_pass(&problem) {
            return Err(problem.into());
        }
        debug!(%problem, "trying again");
        let lost_a_race = matches!(problem, Error::Conflict { .. });
        let delays = if lost_a_race { &mut conflicts } else { &mut failures };
        let pause = problem.retry_after().unwrap_or_else(|| delays.pause());
        tokio::select! {
            () = stop.cancelled() => return Err(Error::Stopped { what: what() }.into()),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Whether the same request can succeed later without anyone editing anything.
fn may_pass(problem: &Error) -> bool {
    match problem {
        Error::Conflict { .. } => true,
        Error::Request { cause, .. } => {
            let kube::Error::Api(status) = cause.as_ref() else { return true };
            status.code == 429 || status.code >= 500
        }
        Error::NotLeading { .. } | Error::Stopped { .. } | Error::Invalid { .. } => false,
    }
}
