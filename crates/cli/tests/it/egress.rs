//! Egress as a newcomer meets it: `portolan up`, kubectl, and the questions one can ask.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::up::Up;
use crate::{Ran, portolan};

#[test]
fn addresses_move_when_a_node_is_not_ready_and_portolan_says_why() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &[])?;
    up.kubectl("wait egp/web egp/payments --for condition=Ready --timeout 60s")?;
    let node = up.kubectl("get egp web -o jsonpath={.status.node}")?;
    assert_eq!(up.kubectl("get egp web -o jsonpath={.status.eip.ipv4}")?, "10.6.1.55");
    assert!(up.kubectl("get addr")?.contains("10.6.1.55"), "the ledger lists it");

    let lost = ask(&up, &format!("status egress --simulate-loss {node}"));
    assert_eq!(lost.exit, Some(0), "{lost:?}");
    let target = word_after(&lost.stdout, &node);
    let patch = r#"{"status":{"conditions":[{"type":"Ready","status":"False"}]}}"#;
    up.kubectl(&format!("patch node {node} --subresource status --patch {patch}"))?;
    let began = Instant::now();
    while up.kubectl("get egp web -o jsonpath={.status.node}")? != target {
        anyhow::ensure!(began.elapsed() < Duration::from_mins(1), "it did not move to {target}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let why = ask(&up, "why policy default/web");
    assert!(why.stdout.contains(&format!("leave with 10.6.1.55 through node {target}")), "{why:?}");
    assert!(ask(&up, "why eip 10.6.1.55").stdout.contains(&target));
    up.stop()?;
    Ok(())
}

#[test]
fn plan_says_what_would_move_and_writes_nothing() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &[])?;
    up.kubectl("wait egp/web egp/payments --for condition=Ready --timeout 60s")?;
    let node = up.kubectl("get egp web -o jsonpath={.status.node}")?;
    let version = up.kubectl("get addr 10.6.1.55 -o jsonpath={.metadata.resourceVersion}")?;
    let file = up.folder().join("change.yaml");
    std::fs::write(
        &file,
        format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {node}, labels: {{egress: \"no\"}}}}\n"),
    )?;
    let planned = ask(&up, &format!("plan -f {} -o json", file.display()));
    assert_eq!(planned.exit, Some(1), "something would change: {planned:?}");
    let plan: serde_json::Value = serde_json::from_str(&planned.stdout)?;
    assert_eq!(plan["ok"], false, "{plan}");
    let moved = plan["rows"].as_array().into_iter().flatten().find(|row| row["what"] == "10.6.1.55");
    let moved = moved.ok_or_else(|| anyhow::anyhow!("10.6.1.55 would move: {plan}"))?;
    assert_eq!((moved["change"].as_str(), moved["from"].as_str()), (Some("moves"), Some(node.as_str())));
    assert_eq!(up.kubectl("get addr 10.6.1.55 -o jsonpath={.metadata.resourceVersion}")?, version);
    std::fs::write(&file, "kind: EgressGateway\nmetadata: {name: eg1}\n")?;
    let same = ask(&up, &format!("plan -f {}", file.display()));
    assert_eq!((same.exit, same.stdout.as_str(), same.stderr.as_str()), (Some(0), "nothing would change\n", ""));
    up.stop()?;
    Ok(())
}

#[test]
fn all_examples_can_be_applied_together_and_become_ready() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &[])?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/egress");
    up.kubectl(&format!("apply -f {}", folder.display()))?;
    for file in std::fs::read_dir(&folder)? {
        let file = file?.path();
        let text = std::fs::read_to_string(&file)?;
        let waits: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# kubectl wait ")).collect();
        assert!(!waits.is_empty(), "{} does not say what to wait for", file.display());
        for wait in waits {
            up.kubectl(&format!("wait {wait} --timeout=120s")).with_context(|| file.display().to_string())?;
        }
    }
    let objects = up.kubectl("get egw,egp,egcp -A -o name")?;
    assert_eq!(objects.lines().count(), 5 + 6 + 1, "no file writes over an object of another:\n{objects}");
    for kind in ["egw", "egp", "egcp"] {
        up.kubectl(&format!("wait {kind} --all -A --for=condition=Ready --timeout=120s"))?;
    }
    up.stop()?;
    Ok(())
}

pub(crate) fn ask(up: &Up, line: &str) -> Ran {
    portolan(&format!("{line} --kubeconfig {}", up.folder().join("kubeconfig").display()))
}

/// The word that follows another one in a table.
fn word_after(table: &str, word: &str) -> String {
    let mut words = table.split_whitespace().skip_while(|found| *found != word);
    words.nth(1).unwrap_or_default().to_owned()
}
