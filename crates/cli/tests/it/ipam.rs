//! Ipam in `portolan up`, as `examples/ipam/README.md` shows it.

use std::path::Path;

use crate::up::Up;
use crate::{Ran, portolan, until};

const PREFIX: &str = "egressip-ipam-operator.redhat-cop.io";

fn ask(up: &Up, line: &str) -> Ran {
    portolan(&format!("{line} --kubeconfig {}", up.folder().join("kubeconfig").display()))
}

/// Nodes of the addresses of a namespace in one zone.
fn nodes(up: &Up, namespace: &str, zone: &str) -> anyhow::Result<Vec<String>> {
    let columns = "custom-columns=OWNER:.spec.cloud.owner.name,ZONE:.spec.cloud.zone,NODE:.status.cloud.node,STATE:.status.cloud.state";
    let table = up.kubectl(&format!("get addr --no-headers -o {columns}"))?;
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = rows.filter(|row| row[..2] == [namespace, zone] && row[3] == "Published");
    Ok(ours.map(|row| row[2].to_owned()).collect())
}

#[test]
fn annotated_namespaces_get_addresses_that_move_when_a_node_is_lost() -> anyhow::Result<()> {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/ipam/namespace.yaml");
    let up = Up::start(tempfile::tempdir()?, &[])?;
    until("each node has a HostSubnet", || Ok(up.kubectl("get hostsubnets -o name")?.lines().count() == 3))?;
    let planned = ask(&up, &format!("plan -f {}", example.display()));
    assert_eq!(planned.exit, Some(1), "{planned:?}");
    assert!(planned.stdout.contains("gets an address in zone sim-b"), "{planned:?}");
    up.kubectl(&format!("apply -f {}", example.display()))?;
    until("both namespaces are served", || Ok(ask(&up, "status ipam").exit == Some(0)))?;
    let list = format!("jsonpath={{.metadata.annotations.{}/egressips}}", PREFIX.replace('.', "\\."));
    assert_eq!(up.kubectl(&format!("get namespace billing -o {list}"))?, "10.6.32.70,10.6.33.70");
    let of_shop = up.kubectl("get netnamespace shop -o jsonpath={.egressIPs}")?;
    assert!(of_shop.contains("10.6.32.") && of_shop.contains("10.6.33."), "{of_shop}");
    let why = ask(&up, "why namespace shop");
    assert_eq!(why.exit, Some(0), "{why:?}");

    // what a node had is on the other node of its zone
    let before = nodes(&up, "shop", "sim-a")?;
    let [node] = &before[..] else { anyhow::bail!("one address in each zone: {before:?}") };
    let other = if node == "node-1" { "node-3" } else { "node-1" };
    let predicted = ask(&up, &format!("status ipam --simulate-loss {node}"));
    assert!(predicted.stdout.contains(other), "{predicted:?}");
    up.kubectl(&format!("delete node {node}"))?;
    until("its address moved", || Ok(nodes(&up, "shop", "sim-a")? == [other]))?;
    assert_eq!(up.kubectl("get netnamespace shop -o jsonpath={.egressIPs}")?, of_shop);

    // a namespace that opts out gives its addresses back
    up.kubectl(&format!("annotate namespace shop {PREFIX}/egressipam-"))?;
    until("it leaves with none", || {
        Ok(up.kubectl("get netnamespace shop -o jsonpath={.egressIPs}")?.trim_matches(['[', ']']).is_empty()
            && up.kubectl(&format!("get namespace shop -o {list}"))?.is_empty())
    })?;
    up.stop()?;
    Ok(())
}
