//! `portolan doctor`: what is wrong, over a table of capabilities, and what can be repaired.
//!
//! First comes what every capability needs, made from its descriptor: an operator, custom resource definitions, admission
//! webhooks. Then each capability checks its own objects.

mod installation;

use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

pub(crate) use installation::Definitions;

use crate::query::chosen;
use crate::runtime::capability::Capability;
use crate::runtime::doctor::{Check, Examination, Repair, Verdict};
use crate::runtime::query::{Column, QueryError, QueryResult, Row, column, row, wide};

/// What is asked for.
#[derive(Clone, Default)]
pub struct Request {
    /// Only this capability.
    pub capability: Option<String>,
    pub examination: Examination,
}

/// Everything that was checked.
#[derive(Debug, Default)]
pub struct Diagnosis {
    findings: Vec<Finding>,
    /// What was repaired before these checks.
    repaired: Vec<Finding>,
}

/// A check, and whose it is.
#[derive(Debug)]
struct Finding {
    /// None: it is about all capabilities.
    capability: Option<&'static str>,
    check: Check,
}

/// How long the operator gets to put right what it was asked to look at.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_secs(1);

/// Checks everything that was asked for. Nothing is written.
pub async fn examine(table: &[&Capability], client: &Client, request: &Request) -> Result<Diagnosis, QueryError> {
    let Request { capability, examination } = request;
    let capabilities = chosen(table, capability.as_deref())?;
    let is_embedded = installation::is_embedded(client).await?;
    let mut findings = Vec::new();
    let mut found = |capability, checks: Vec<Check>| {
        findings.extend(checks.into_iter().map(|check| Finding { capability, check }));
    };
    found(None, vec![installation::operator(client, is_embedded).await?]);
    for capability in capabilities {
        let name = Some(capability.name);
        let missing = installation::definitions(client, capability).await?;
        let is_served = missing.iter().all(|check| check.verdict == Verdict::Ok);
        found(name, missing);
        if !is_embedded {
            found(name, installation::webhooks(client, capability).await?);
        }
        // without its kinds there is nothing to look at, and every check would say so
        if is_served {
            found(name, (capability.queries.doctor)(client.clone(), examination.clone()).await?);
        }
    }
    Ok(Diagnosis { findings, repaired: Vec::new() })
}

/// Makes every repair of a diagnosis, one after the other, and checks everything again.
pub async fn repair(
    table: &[&Capability],
    client: &Client,
    request: &Request,
    diagnosis: Diagnosis,
) -> Result<Diagnosis, QueryError> {
    let (mut repaired, mut asked_operator) = (diagnosis.repaired, false);
    for Finding { capability, check } in diagnosis.findings {
        let Check { name, object, repair: Some(repair), .. } = check else { continue };
        asked_operator |= repair.asks_operator;
        repaired.push(Finding { capability, check: done(name, object, repair).await });
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let again = examine(table, client, request).await?;
        let is_awaited = asked_operator && again.waits_for_operator() && Instant::now() < until;
        if !is_awaited {
            return Ok(Diagnosis { repaired, ..again });
        }
        sleep(PAUSE).await;
    }
}

async fn done(name: &'static str, object: String, repair: Repair) -> Check {
    let does = repair.does.clone();
    match repair.run().await {
        Ok(()) => Check { object, ..Check::ok(name, format!("repaired: {does}")) },
        Err(cause) => {
            let advice = "check your permissions, and repeat: portolan doctor --repair";
            Check::fail(name, object, format!("not repaired: {does}: {cause}"), advice)
        }
    }
}

const COLUMNS: &[Column] = &[
    column("verdict", "VERDICT"),
    column("capability", "CAPABILITY"),
    column("check", "CHECK"),
    column("object", "OBJECT"),
    column("seen", "SEEN"),
    column("do", "DO"),
    wide("repair", "REPAIR"),
];

impl Diagnosis {
    /// What [`repair`] would do.
    pub fn repairs(&self) -> impl Iterator<Item = &str> {
        self.findings.iter().filter_map(|finding| Some(finding.check.repair.as_ref()?.does.as_str()))
    }

    /// As a table: what was repaired, then every check.
    pub fn result(&self) -> QueryResult {
        let all = || self.repaired.iter().chain(&self.findings);
        let count = |verdict: Verdict| all().filter(|finding| finding.check.verdict == verdict).count();
        let (failed, warned) = (count(Verdict::Fail), count(Verdict::Warn));
        let summary = match (failed, warned) {
            (0, 0) => "nothing is wrong".to_owned(),
            (0, warned) => format!("nothing is wrong, {}", counted(warned, "warning")),
            (failed, 0) => counted(failed, "problem"),
            (failed, warned) => format!("{}, {}", counted(failed, "problem"), counted(warned, "warning")),
        };
        let summary = match self.repairs().count() {
            0 => summary,
            repairs => format!("{summary}; {} can be repaired: portolan doctor --repair", counted(repairs, "finding")),
        };
        let rows = all().map(shown).collect();
        QueryResult { columns: COLUMNS, rows, summary, yes: failed == 0, warnings: Vec::new() }
    }

    fn waits_for_operator(&self) -> bool {
        self.findings.iter().any(|finding| finding.check.repair.as_ref().is_some_and(|repair| repair.asks_operator))
    }
}

fn shown(Finding { capability, check }: &Finding) -> Row {
    let Check { name, object, verdict, seen, advice, repair } = check;
    let text = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    row([
        ("verdict", json!(verdict.as_str())),
        ("capability", json!(capability)),
        ("check", json!(name)),
        ("object", text(object)),
        ("seen", json!(seen)),
        ("do", text(advice)),
        ("repair", json!(repair.as_ref().map(|repair| &repair.does))),
    ])
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(check: Check) -> Finding {
        Finding { capability: Some("ipam"), check }
    }

    #[test]
    fn only_a_failed_check_says_no() {
        let mut diagnosis = Diagnosis::default();
        assert_eq!((diagnosis.result().yes, diagnosis.result().summary), (true, "nothing is wrong".to_owned()));
        diagnosis.findings.push(finding(Check::warn("foreign-addresses", "HostSubnet/a1", "10.0.0.7", "remove it")));
        assert_eq!(diagnosis.result().summary, "nothing is wrong, 1 warning");
        assert!(diagnosis.result().yes);
        let repair = Some(Repair::new("write it", async { Ok(()) }));
        let fail = Check { repair, ..Check::fail("namespace-annotations", "Namespace/shop", "missing", "repair it") };
        diagnosis.findings.push(finding(fail));
        let result = diagnosis.result();
        assert!(!result.yes);
        let summary = "1 problem, 1 warning; 1 finding can be repaired: portolan doctor --repair";
        assert_eq!(result.summary, summary);
        assert_eq!((&result.rows[1]["verdict"], &result.rows[1]["repair"]), (&json!("fail"), &json!("write it")));
        assert_eq!(diagnosis.repairs().collect::<Vec<_>>(), ["write it"]);
    }

    #[tokio::test]
    async fn a_repair_that_fails_is_a_problem() {
        let refused = || kube::Error::Api(Box::new(kube::core::Status::failure("no", "Forbidden")));
        let check = done("finalizers", String::new(), Repair::new("remove it", async move { Err(refused()) })).await;
        assert_eq!(check.verdict, Verdict::Fail);
        assert!(check.seen.starts_with("not repaired: remove it: "), "{}", check.seen);
        let check = done("finalizers", String::new(), Repair::new("remove it", async { Ok(()) })).await;
        assert_eq!((check.verdict, &*check.seen), (Verdict::Ok, "repaired: remove it"));
    }
}
