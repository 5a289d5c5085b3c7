//! The whole program with one more line in its table of capabilities: every command knows the tickets of
//! `crates/control/examples/tickets`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use kube::api::PostParams;
use kube::{Api, Client};
use portolan_apiserver::running::{Options, Running};
use portolan_testkit::program::example;
use portolan_testkit::ticket::{Office, OfficeSpec, Ticket, TicketSpec};
use portolan_testkit::{Program, install};

use crate::{Ran, program, ran};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_knows_a_capability_that_is_one_more_line_in_the_table() -> anyhow::Result<()> {
    let binary = example("portolan", "portolan-tickets")?;
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    let server = Running::start(Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        data_dir: None,
        kubeconfig: kubeconfig.clone(),
        workloads: false,
    })
    .await?;
    prepare(server.client()).await?;
    let ask = |line: &str| run(&binary, &format!("{line} --kubeconfig {}", kubeconfig.display()));

    let help = run(&binary, "operator --help");
    for part in
        ["- tickets: Tickets: a number and a receipt for each\n", "Tickets:\n      --tickets-namespace <NAME>\n"]
    {
        assert!(help.stdout.contains(part), "it lacks `{part}`:\n{}", help.stdout);
    }
    let flags = "operator --capabilities tickets --lease-namespace default --admin-listen 127.0.0.1:0 --kubeconfig";
    let mut arguments: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    arguments.push(kubeconfig.display().to_string());
    let operator = Program::start("tickets", &binary, &arguments, folder.path())?;
    let began = std::time::Instant::now();
    while ask("status tickets").exit != Some(0) {
        anyhow::ensure!(began.elapsed().as_secs() < 60, "no number: {}", operator.log_tail());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let all = ask("status");
    assert_eq!((all.exit, all.stderr.as_str()), (Some(0), ""), "what is not installed is not wrong: {all:?}");
    let missing = "not installed; to install its definitions: portolan crds | kubectl apply --server-side -f -";
    assert!(
        all.stdout
            .starts_with(&format!("egress: {missing}\nmesh: {missing}\n\ntickets: 1 of 1 tickets have a number\n")),
        "{all:?}"
    );
    assert!(all.stdout.contains("default/first  1"), "{all:?}");
    let why = ask("why ticket first");
    assert_eq!((why.exit, why.stderr.as_str()), (Some(0), ""), "{why:?}");
    assert!(why.stdout.ends_with("ticket default/first has number 1\n"), "{why:?}");
    let file = folder.path().join("second.yaml");
    std::fs::write(&file, "{kind: Ticket, metadata: {name: second}, spec: {text: x}}")?;
    let plan = ask(&format!("plan -f {}", file.display()));
    assert!(plan.exit == Some(1) && plan.stdout.ends_with("1 change\n"), "{plan:?}");
    assert!(plan.stdout.contains("ticket default/second  numbered  -     2"), "{plan:?}");

    for name in ["second", "third"] {
        add(server.client(), name).await?;
    }
    let found = ask("doctor tickets third");
    assert_eq!(found.exit, Some(1), "{found:?}");
    let line = found.stdout.lines().find(|line| line.contains("Ticket/default/third")).unwrap_or_default();
    assert!(line.starts_with("fail ") && line.contains("NoNumberFree: raise spec.last"), "{found:?}");
    let unasked = ask("doctor tickets --repair");
    assert_eq!((unasked.exit, unasked.stdout.as_str()), (Some(2), ""), "{unasked:?}");
    assert!(unasked.stderr.ends_with("hint: repair without asking: portolan doctor --repair --yes\n"), "{unasked:?}");
    let repaired = ask("doctor tickets --repair --yes -o json");
    assert_eq!(repaired.exit, Some(0), "{repaired:?}");
    let found: serde_json::Value = serde_json::from_str(&repaired.stdout)?;
    assert_eq!(found["summary"], "nothing is wrong");
    assert_eq!(found["rows"][0]["seen"], "repaired: raise spec.last of Office default/office by one", "{found}");

    let roles = run(&binary, "manifests").stdout;
    assert!(roles.contains("resources: [tickets]\n") && roles.contains("path: /validate-ticket\n"), "{roles}");
    let reference = run(&binary, "reference").stdout;
    assert!(reference.contains("`PORTOLAN_TICKETS_NAMESPACE`"), "{reference}");
    drop(operator);
    server.stop().await;
    Ok(())
}

async fn prepare(client: Client) -> anyhow::Result<()> {
    install::<Ticket>(client.clone()).await?;
    install::<Office>(client.clone()).await?;
    let offices: Api<Office> = Api::namespaced(client.clone(), "default");
    offices.create(&PostParams::default(), &Office::new("office", OfficeSpec { last: 2 })).await?;
    add(client, "first").await
}

async fn add(client: Client, name: &str) -> anyhow::Result<()> {
    let tickets: Api<Ticket> = Api::namespaced(client, "default");
    let spec = TicketSpec { text: "x".to_owned(), desk: None };
    tickets.create(&PostParams::default(), &Ticket::new(name, spec)).await?;
    Ok(())
}

fn run(binary: &Path, line: &str) -> Ran {
    ran(program(&PathBuf::from(binary)).args(line.split_whitespace()).output())
}
