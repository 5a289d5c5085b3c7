//! Answers requests: signature, faults, then the account.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::DATE;
use http::request::Parts;
use jiff::Timestamp;
use parking_lot::Mutex;

use super::account::Account;
use super::call::{Answered, Ec2Fault};
use super::parameters::Parameters;
use super::response::Refusal;
use crate::aws::keys::KeyRing;
use crate::aws::server::{Answer, Cut, text};
use crate::aws::sigv4::{self, Refused};
use crate::faults::Phase;

pub(super) async fn answer(
    account: Arc<Mutex<Account>>,
    keys: KeyRing,
    head: Parts,
    body: Bytes,
) -> Result<Answer, Cut> {
    let parameters = Parameters::parse(&body);
    let plan = Plan::make(&mut account.lock(), &parameters)?;
    tokio::time::sleep(plan.before).await;
    let answer = respond(&mut account.lock(), &keys, &plan, &parameters, &head, &body);
    tokio::time::sleep(plan.after).await;
    answer
}

/// What happens to one request besides the answer.
struct Plan {
    fault: Option<Ec2Fault>,
    before: Duration,
    after: Duration,
}

impl Plan {
    fn make(account: &mut Account, parameters: &Parameters) -> Result<Self, Cut> {
        if account.is_dead {
            account.log(parameters, Answered::Cut);
            return Err(Cut);
        }
        let action = parameters.get("Action").unwrap_or_default();
        let mut fault = account.faults.get_mut(action).and_then(std::collections::VecDeque::pop_front);
        if !action.starts_with("Describe") {
            account.writes += 1;
            let writes = account.writes;
            if let Some(kill) = account.kill.as_mut().filter(|kill| kill.at_write == writes) {
                fault = Some(match kill.phase {
                    Phase::BeforeSend => Ec2Fault::CutBefore,
                    Phase::AfterCommit => Ec2Fault::CutAfterCommit,
                    Phase::AfterAnswer => Ec2Fault::CutAfterAnswer,
                });
                // Whoever waits for it may have given up.
                kill.killed.take().map_or(Ok(()), |killed| killed.send(())).unwrap_or_default();
                account.is_dead = true;
            }
        }
        let half = account.latency / 2;
        let slow = if let Some(Ec2Fault::Slow(pause)) = fault { pause } else { Duration::ZERO };
        Ok(Self { fault, before: half, after: half + slow })
    }
}

fn respond(
    account: &mut Account,
    keys: &KeyRing,
    plan: &Plan,
    parameters: &Parameters,
    head: &Parts,
    body: &[u8],
) -> Result<Answer, Cut> {
    match &plan.fault {
        Some(Ec2Fault::CutBefore) => {
            account.log(parameters, Answered::Cut);
            return Err(Cut);
        }
        Some(Ec2Fault::Status(status)) => {
            account.log(parameters, Answered::Refused(status.to_string()));
            return Ok(text(*status, "text/html", "<html>sorry".to_owned()));
        }
        Some(Ec2Fault::Error { status, code, message }) => {
            let refusal = Refusal { status: *status, code: (*code).to_owned(), message: message.clone() };
            account.log(parameters, Answered::Refused(refusal.code.clone()));
            return Ok(dated(account, text(*status, "text/xml", refusal.body())));
        }
        Some(Ec2Fault::CutAfterCommit | Ec2Fault::CutAfterAnswer | Ec2Fault::Slow(_)) | None => {}
    }
    let outcome = check(account, keys, head, body).and_then(|()| account.execute(parameters));
    account.strangers_act();
    if matches!(plan.fault, Some(Ec2Fault::CutAfterCommit)) {
        account.log(parameters, Answered::Cut);
        return Err(Cut);
    }
    let (status, body, answered) = match outcome {
        Ok(body) => (200, body, Answered::Ok),
        Err(refusal) => (refusal.status, refusal.body(), Answered::Refused(refusal.code)),
    };
    account.log(parameters, answered);
    let mut answer = dated(account, text(status, "text/xml;charset=UTF-8", body));
    if matches!(plan.fault, Some(Ec2Fault::CutAfterAnswer)) {
        answer.headers_mut().insert("connection", http::HeaderValue::from_static("close"));
    }
    Ok(answer)
}

fn check(account: &Account, keys: &KeyRing, head: &Parts, body: &[u8]) -> Result<(), Refusal> {
    let is_form = head.headers.get("content-type").and_then(|kind| kind.to_str().ok());
    if head.method != Method::POST || !is_form.is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded"))
    {
        let message = "a POST with a form is needed".to_owned();
        return Err(Refusal { status: 405, code: "MethodNotAllowed".to_owned(), message });
    }
    sigv4::verify(head, body, keys, account.now()).map(drop).map_err(|Refused { status, code, message }| Refusal {
        status,
        code: code.to_owned(),
        message,
    })
}

/// Answers show the clock of the stand-in.
fn dated(account: &Account, mut answer: Answer) -> Answer {
    if let Ok(now) = Timestamp::try_from(account.now()) {
        let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        answer.headers_mut().insert(DATE, date.parse().expect("a date is a header"));
    }
    answer
}
