//! A capability is one more line in a table: the tickets of `examples/tickets`, beside those that are built in, run in the
//! operator, answer every query, and are in the roles, the webhooks and the chart.

use std::time::Duration;

use clap::Command;
use portolan_control::manifests::{self, Form};
use portolan_control::runtime::app::Process;
use portolan_control::runtime::capability::{Capability, Platform, names};
use portolan_control::runtime::query::QueryError;
use portolan_control::{CAPABILITIES, query};
use serde_json::{Value, json};

use crate::egress::harness::options;
use crate::harness::{Backend, World};
use crate::tickets;

/// The table with one more line.
fn table() -> Vec<&'static Capability> {
    CAPABILITIES.iter().copied().chain([&tickets::CAPABILITY]).collect()
}

/// The operator with one capability of a table, started as `portolan operator --capabilities NAME FLAGS` starts it.
fn operator(world: &World, name: &str, flags: &[&str]) -> anyhow::Result<Process> {
    let table = table();
    let command = table.iter().fold(Command::new("operator"), |command, one| (one.options)(command));
    let flags = command.try_get_matches_from(["operator"].iter().chain(flags))?;
    let chosen = table.iter().filter(|one| one.name == name);
    let starters: Result<Vec<_>, _> = chosen.map(|one| (one.configure)(&flags, &Platform::default())).collect();
    let (starters, mut started) = (starters?, Ok(None));
    let process = Process::start(world.client.clone(), options(), |ctx, registry| {
        started = portolan_control::start(starters, None, ctx, registry);
    })?;
    started?;
    Ok(process)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_more_line_in_the_table_runs_in_the_operator_and_answers_every_query() -> anyhow::Result<()> {
    let table = table();
    let world = World::new(Backend::Embedded, "table", 2).await?;
    let operator = operator(&world, "tickets", &["--tickets-namespace", &world.namespace])?;
    world.add_ticket("a").await?;
    world.converged(1).await?;

    let ticket = |name: &str| json!({ "kind": "Ticket", "metadata": { "name": name, "namespace": world.namespace }, "spec": { "text": "x" } });
    let planned = query::plan(&table, &world.client, vec![ticket("b"), ticket("c")]).await?;
    let numbers: Vec<&Value> = planned.rows.iter().map(|row| &row["to"]).collect();
    assert_eq!(numbers, [&json!(2), &Value::Null], "{:#?}", planned.rows);

    let full = format!("{}/a", world.namespace);
    let why = query::why(&table, &world.client, "ticket", &full, None).await?;
    assert_eq!(why.summary, format!("ticket {full} has number 1"));
    let unknown = query::why(&table, &world.client, "sailor", "x", None).await;
    let Err(QueryError::Invalid { hint, .. }) = unknown else { anyhow::bail!("there is no answer for a sailor") };
    assert_eq!(hint, "ask for eip, policy, egcp, pod, lb, namespace, vsvc, route, target, rule, service or ticket");

    let status = query::status(&table, &world.client, None).await?;
    let shown: Vec<&str> = status.iter().map(|section| section.capability).collect();
    assert_eq!(shown, ["egress", "gateway", "gateway-client", "ipam", "mesh", "mirror", "tickets"]);
    assert_eq!(status[6].result.summary, "1 of 1 tickets have a number");
    tokio::time::timeout(Duration::from_secs(30), operator.stop()).await??;
    Ok(())
}

#[test]
fn one_more_line_in_the_table_is_in_the_roles_the_webhooks_and_the_chart() -> anyhow::Result<()> {
    let table = table();
    assert_eq!(names(&table), ["egress", "gateway", "gateway-client", "ipam", "mesh", "mirror", "tickets"]);
    let rule = "  - apiGroups: [testkit.portolan.dev]\n    resources: [tickets]\n    verbs: [list, watch]\n";
    let roles = manifests::rbac(&table, Form::Plain);
    assert!(roles.contains(rule), "{roles}");
    assert!(!manifests::rbac(CAPABILITIES, Form::Plain).contains("tickets"));
    let template = manifests::rbac(&table, Form::Chart);
    assert!(template.contains("{{- if has \"tickets\" .Values.capabilities }}\n"), "{template}");
    let webhooks = manifests::webhooks(&table, Form::Plain);
    assert!(
        webhooks.contains("name: portolan-tickets\n") && webhooks.contains("path: /validate-ticket\n"),
        "{webhooks}"
    );

    let values = manifests::values(&table, "replicas: 2\n");
    assert!(values.contains("capabilities: [egress, gateway, ipam, mesh, mirror, tickets]\n"), "{values}");
    let values: Value = serde_saphyr::from_str(&values)?;
    assert_eq!(values["tickets"]["namespace"], "default", "{values}");
    assert_eq!(values["gatewayClient"]["secret"], "portolan-gateway-client", "templates cannot name a dash: {values}");
    assert_eq!((&values["egress"]["ipv4"], &values["replicas"]), (&json!(true), &json!(2)), "{values}");
    let environment = manifests::environment(&table);
    assert!(environment.contains("- name: PORTOLAN_TICKETS_NAMESPACE\n"), "{environment}");
    let schema: Value = serde_json::from_str(&manifests::schema(&table, "{ \"properties\": {} }")?)?;
    assert_eq!(schema["properties"]["tickets"]["properties"]["namespace"]["type"], "string", "{schema}");
    Ok(())
}

#[test]
fn writing_the_values_again_changes_nothing() {
    let once = manifests::values(&table(), "a: 1\n");
    assert_eq!(manifests::values(&table(), &once), once);
    let fewer = manifests::values(CAPABILITIES, "# first\n");
    assert!(manifests::values(&table(), &fewer).starts_with("# first\n"), "what people wrote stays");
}
