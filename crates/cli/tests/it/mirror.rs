//! The remotes of `portolan up`, as `examples/mirror/README.md` shows them.

use crate::up::Up;
use crate::{Ran, portolan, until};

const STOPPED: &str = "simulator.portolan.dev/stopped";

/// The endpoints of a mirror, sorted.
fn endpoints(up: &Up, service: &str) -> anyhow::Result<Vec<String>> {
    let addresses = "-o jsonpath={.items[*].endpoints[*].addresses[0]}";
    let line = format!("-n shop get endpointslices -l kubernetes.io/service-name={service} {addresses}");
    let mut addresses: Vec<String> = up.kubectl(&line)?.split_whitespace().map(str::to_owned).collect();
    addresses.sort();
    Ok(addresses)
}

/// The status of a condition.
fn condition(up: &Up, remote: &str, condition: &str) -> anyhow::Result<String> {
    up.kubectl(&format!("get rcluster {remote} -o jsonpath={{.status.conditions[?(@.type==\"{condition}\")].status}}"))
}

#[test]
fn services_of_remotes_appear_nodes_flap_and_a_remote_goes_away_and_returns() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &["--remotes", "2"])?;
    up.kubectl("wait --for=condition=Ready --timeout=60s rcluster/remote-1 rcluster/remote-2")?;
    let services = up.kubectl("-n shop get services -o name")?;
    let names: Vec<&str> = services.lines().filter_map(|line| line.strip_prefix("service/")).collect();
    assert_eq!(names, ["dns", "dns-remote-2", "web", "web-remote-2"]);
    assert_eq!(up.kubectl("-n shop get service dns -o jsonpath={.spec.ports[0].protocol}")?, "UDP");
    let nodes = ["10.7.0.2", "10.7.0.3", "10.7.0.4"];
    until("both have their nodes", || {
        let second = ["10.8.0.2", "10.8.0.3", "10.8.0.4"];
        Ok(endpoints(&up, "web")? == nodes && endpoints(&up, "web-remote-2")? == second)
    })?;

    // a node leaves by label and returns, another is deleted
    let excluded = "node.kubernetes.io/exclude-from-external-load-balancers";
    let first = "kubeconfig-remote-1";
    up.kubectl_with(first, &format!("label node node-1 {excluded}=true"))?;
    until("the excluded node has left", || Ok(endpoints(&up, "web")? == nodes[1..]))?;
    up.kubectl_with(first, &format!("label node node-1 {excluded}-"))?;
    up.kubectl_with(first, "delete node node-3")?;
    until("one is back and one is gone", || Ok(endpoints(&up, "web")? == nodes[..2]))?;

    // the remote goes away: what is mirrored of it stays, and the other remote is as it was
    let address = up.kubectl("-n shop get service web -o jsonpath={.spec.clusterIP}")?;
    up.kubectl(&format!("annotate rcluster remote-1 {STOPPED}=true"))?;
    until("it is out of reach", || Ok(condition(&up, "remote-1", "Connected")? == "False"))?;
    assert!(up.kubectl_with(first, "get nodes --request-timeout=5s").is_err(), "its API server has ended");
    assert_eq!(endpoints(&up, "web")?, nodes[..2]);
    assert_eq!(condition(&up, "remote-2", "Ready")?, "True");

    // it returns with its objects, and the deleted node is simulated again
    up.kubectl(&format!("annotate rcluster remote-1 {STOPPED}-"))?;
    up.kubectl("wait --for=condition=Ready --timeout=60s rcluster/remote-1")?;
    until("all nodes are back", || Ok(endpoints(&up, "web")? == nodes))?;
    assert_eq!(up.kubectl("-n shop get service web -o jsonpath={.spec.clusterIP}")?, address);

    // while one is stopped, the end is clean as well
    up.kubectl(&format!("annotate rcluster remote-2 {STOPPED}=true"))?;
    until("the second is out of reach", || Ok(condition(&up, "remote-2", "Connected")? == "False"))?;
    up.stop()?;
    Ok(())
}

#[test]
fn remotes_keep_their_objects_in_the_data_dir() -> anyhow::Result<()> {
    let kept = ["--data-dir", "data", "--remotes", "1"];
    let up = Up::start(tempfile::tempdir()?, &kept)?;
    let kubeconfig = "kubeconfig-remote-1";
    let service = r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"more","namespace":"shop"},
        "spec":{"type":"NodePort","ports":[{"port":80,"nodePort":30090}]}}"#;
    let file = up.folder().join("service.json");
    std::fs::write(&file, service)?;
    up.kubectl_with(kubeconfig, &format!("apply -f {}", file.display()))?;
    until("a new Service is mirrored", || Ok(endpoints(&up, "more")?.len() == 3))?;
    let address = up.kubectl("-n shop get service more -o jsonpath={.spec.clusterIP}")?;

    let up = Up::start(up.stop()?, &kept)?;
    up.kubectl("wait --for=condition=Ready --timeout=60s rcluster/remote-1")?;
    assert_eq!(up.kubectl("-n shop get service more -o jsonpath={.spec.clusterIP}")?, address);
    up.kubectl_with(kubeconfig, "-n shop delete service more")?;
    until("its mirror is gone", || Ok(!up.kubectl("-n shop get services -o name")?.contains("service/more")))?;
    up.stop()?;
    Ok(())
}

#[test]
fn remotes_need_nodes_and_are_few() {
    for (line, error) in [
        ("up --empty --remotes 1", "the argument '--empty' cannot be used with '--remotes <NUMBER>'"),
        ("up --remotes 6", "invalid value '6' for '--remotes <NUMBER>': 6 is not in 0..=5"),
    ] {
        let Ran { exit, stderr, .. } = portolan(line);
        assert_eq!(exit, Some(2), "{stderr}");
        assert!(stderr.contains(error), "{stderr}");
    }
}
