//! Queries about tickets, from the same plan that the controller acts on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::{Api, Client, ResourceExt as _};
use portolan_control::runtime::capability::{Queries, Why};
use portolan_control::runtime::doctor::{Check, Examination, Repair, edit, of_status};
use portolan_control::runtime::overlay::{list_all, put_object};
use portolan_control::runtime::query::{Column, QueryError, QueryResult, Row, column, row};
use portolan_control::runtime::store::Key;
use portolan_testkit::ticket::{Office, Ticket};
use serde_json::{Value, json};

use super::model::{self, Plan};
use super::observe::Seen;
use super::validate::{self, Rejected};

/// What users can ask.
pub(super) const QUERIES: Queries = Queries {
    plan: |client, changes| Box::pin(plan(client, changes)),
    why: &[Why {
        words: &["ticket", "tickets"],
        about: "NAMESPACE/NAME of a Ticket",
        explain: |client, name, _| Box::pin(why(client, name)),
    }],
    status: |client| Box::pin(status(client)),
    node_loss: None,
    doctor: |client, examination| Box::pin(doctor(client, examination)),
};

/// Every object that a decision may look at, read once.
#[derive(Clone)]
struct Objects {
    tickets: Vec<Ticket>,
    offices: Vec<Office>,
}

impl Objects {
    async fn read(client: &Client) -> Result<Self, QueryError> {
        Ok(Self { tickets: list_all(client, "tickets").await?, offices: list_all(client, "offices").await? })
    }

    fn overlay(&mut self, changes: Vec<Value>) -> Result<(), QueryError> {
        for change in changes {
            if change["kind"] == "Office" {
                put_object(&mut self.offices, &change)?;
            } else {
                put_object(&mut self.tickets, &change)?;
            }
        }
        Ok(())
    }

    /// Every ticket with its number, or why it has none.
    fn decided(&self) -> BTreeMap<Key, Result<u64, String>> {
        let namespaces: BTreeSet<String> = self.tickets.iter().filter_map(Ticket::namespace).collect();
        let mut decided = BTreeMap::new();
        for namespace in namespaces {
            let seen = self.seen(&namespace);
            let (world, rejected) = validate::all(&seen);
            let plan = model::plan(&world);
            decided.extend(seen.tickets.into_keys().map(|key| {
                let outcome = outcome(&key.name, &plan, &rejected);
                (key, outcome)
            }));
        }
        decided
    }

    /// A namespace as the controller sees it.
    fn seen(&self, namespace: &str) -> Seen {
        let is_here = |other: Option<String>| other.as_deref() == Some(namespace);
        let office = self.offices.iter().find(|office| is_here(office.namespace()) && office.name_any() == "office");
        let tickets = self.tickets.iter().filter(|ticket| is_here(ticket.namespace()));
        let keyed = |ticket: &Ticket| {
            (Key { namespace: namespace.to_owned(), name: ticket.name_any() }, Arc::new(ticket.clone()))
        };
        Seen { office: office.cloned().map(Arc::new), tickets: tickets.map(keyed).collect() }
    }
}

const NO_NUMBER: &str = "NoNumberFree";

fn outcome(ticket: &str, plan: &Plan, rejected: &Rejected) -> Result<u64, String> {
    match (plan.taken.get(ticket), rejected.get(ticket)) {
        (_, Some((reason, message))) => Err(format!("{reason}: {message}")),
        (Some(number), None) => Ok(*number),
        (None, None) => Err(format!("{NO_NUMBER}: raise spec.last of Office `office`")),
    }
}

async fn plan(client: Client, changes: Vec<Value>) -> Result<QueryResult, QueryError> {
    let before = Objects::read(&client).await?;
    let mut after = before.clone();
    after.overlay(changes)?;
    let (before, after) = (before.decided(), after.decided());
    let text = |outcome: Option<&Result<u64, String>>| match outcome {
        None | Some(Err(_)) => Value::Null,
        Some(Ok(number)) => json!(number),
    };
    let rows = after.iter().filter(|(key, outcome)| before.get(*key) != Some(*outcome)).map(|(key, outcome)| {
        row([
            ("what", json!(format!("ticket {key}"))),
            ("change", json!(if outcome.is_ok() { "numbered" } else { "refused" })),
            ("from", text(before.get(key))),
            ("to", text(Some(outcome))),
            ("why", json!(outcome.as_ref().err().map_or("the lowest free number", String::as_str))),
        ])
    });
    Ok(QueryResult::of_changes(rows.collect()))
}

const TICKETS: &[Column] = &[column("ticket", "TICKET"), column("number", "NUMBER"), column("problem", "PROBLEM")];

async fn why(client: Client, name: String) -> Result<QueryResult, QueryError> {
    let (namespace, name) = name.split_once('/').unwrap_or(("default", &name));
    let key = Key { namespace: namespace.to_owned(), name: name.to_owned() };
    let decided = Objects::read(&client).await?.decided();
    let Some(outcome) = decided.get(&key) else {
        return Err(QueryError::NotFound {
            what: format!("there is no ticket {key}"),
            hint: "list them: kubectl get tickets -A".to_owned(),
        });
    };
    let summary = match outcome {
        Ok(number) => format!("ticket {key} has number {number}"),
        Err(problem) => format!("ticket {key} has no number: {problem}"),
    };
    let yes = outcome.is_ok();
    Ok(QueryResult { columns: TICKETS, rows: vec![shown(&key, outcome)], summary, yes, warnings: Vec::new() })
}

async fn status(client: Client) -> Result<QueryResult, QueryError> {
    let decided = Objects::read(&client).await?.decided();
    let numbered = decided.values().filter(|outcome| outcome.is_ok()).count();
    let summary = format!("{numbered} of {} tickets have a number", decided.len());
    let rows = decided.iter().map(|(key, outcome)| shown(key, outcome)).collect();
    Ok(QueryResult { columns: TICKETS, rows, summary, yes: numbered == decided.len(), warnings: Vec::new() })
}

async fn doctor(client: Client, examination: Examination) -> Result<Vec<Check>, QueryError> {
    let status = status(client.clone()).await?;
    Ok(of_status("tickets", status, &examination, |row| {
        let (ticket, problem) = (row["ticket"].as_str()?, row["problem"].as_str()?);
        let found = Check::fail("tickets", format!("Ticket/{ticket}"), problem, "raise spec.last, or edit the ticket");
        let (namespace, _) = ticket.split_once('/')?;
        let repair = problem.starts_with(NO_NUMBER).then(|| one_more(&client, namespace));
        Some(Check { repair, ..found })
    }))
}

/// Raises the last number of a namespace's office by one.
fn one_more(client: &Client, namespace: &str) -> Repair {
    let offices: Api<Office> = Api::namespaced(client.clone(), namespace);
    Repair::new(format!("raise spec.last of Office {namespace}/office by one"), async move {
        edit(&offices, "office", |office| Some(json!({ "spec": { "last": office.spec.last + 1 } }))).await
    })
}

fn shown(key: &Key, outcome: &Result<u64, String>) -> Row {
    row([
        ("ticket", json!(key.to_string())),
        ("number", json!(outcome.as_ref().ok())),
        ("problem", json!(outcome.as_ref().err())),
    ])
}
