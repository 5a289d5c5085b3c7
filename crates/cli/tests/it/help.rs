use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;

use crate::{Ran, portolan, program, ran};

#[test]
fn the_program_explains_itself() {
    let Ran { exit, stdout, stderr } = portolan("--help");
    assert_eq!((exit, stderr.as_str()), (Some(0), ""));
    assert_eq!(
        stdout,
        "\
Run the network edge of Kubernetes clusters: every way in, out, across and through

Usage: portolan [OPTIONS] <COMMAND>

Commands:
  up           Run everything in one process on an embedded Kubernetes API server
  operator     Run the control plane against a cluster
  agent        Run the data path of this node: egress rules, gateway tunnels, probes
  proxy        Run the multi-protocol proxy, configured over l7mp's REST API
  send         Send a datagram and print the replies
  plan         Show what applying objects would change, without writing anything
  why          Explain the state of an object step by step
  status       Show the state of all capabilities or of one, or simulate the loss of a node
  doctor       Find what is wrong with capabilities and their objects, and repair it
  crds         Print the custom resource definitions as YAML
  cleanup      Remove what the operator has made on a cluster, once the operator is gone
  completions  Print the completion script for a shell

Options:
  -h, --help     Print help
  -V, --version  Print version

Output:
  -q, --quiet  Print data and errors only

Examples:
  portolan up
  portolan operator --capabilities egress
  portolan crds | kubectl apply --server-side -f -

Exit codes:
  0  yes: done, healthy, found, or nothing would change
  1  no: failed, unhealthy, not found, or something would change
  2  usage: the command cannot be run as given, or is not built in
  3  unreachable: the cluster does not respond
"
    );
}

#[test]
fn every_command_explains_itself_on_stdout() {
    for command in [
        "up",
        "operator",
        "agent",
        "proxy",
        "send",
        "plan",
        "why",
        "status",
        "doctor",
        "crds",
        "cleanup",
        "completions",
    ] {
        for flag in ["-h", "--help"] {
            let Ran { exit, stdout, stderr } = portolan(&format!("{command} {flag}"));
            assert_eq!((exit, stderr.as_str()), (Some(0), ""), "{command} {flag}");
            for part in [format!("Usage: portolan {command}"), format!("Examples:\n  portolan {command}")] {
                assert!(stdout.contains(&part), "{command} {flag} lacks `{part}`:\n{stdout}");
            }
        }
    }
}

#[test]
fn a_command_with_flags_shows_headings_environment_and_values() {
    let Ran { stdout, .. } = portolan("operator --help");
    for part in [
        "Capabilities:\n      --capabilities <NAME>\n",
        "          - egress:         Out: fixed source addresses for pods\n",
        "          [env: PORTOLAN_CAPABILITIES]\n          [default: egress,gateway,ipam,mesh,mirror]\n",
        "Webhook:\n      --webhook-secret <NAME>\n",
        "Mesh:\n      --cluster-domain <DOMAIN>\n",
        "Cluster:\n      --kubeconfig <FILE>\n",
    ] {
        assert!(stdout.contains(part), "it lacks `{part}`:\n{stdout}");
    }
}

#[test]
fn the_version_names_commit_and_served_api_versions() {
    for flag in ["--version", "-V"] {
        let Ran { exit, stdout, stderr } = portolan(flag);
        assert_eq!((exit, stderr.as_str()), (Some(0), ""));
        let start = format!("portolan {} (commit ", env!("CARGO_PKG_VERSION"));
        assert!(stdout.starts_with(&start), "{stdout}");
        let served = ")\nserved API versions: egressgateway.spidernet.io/v1beta1, egw.acnodal.io/v1, l7mp.io/v1, portolan.dev/v1alpha1\n";
        assert!(stdout.ends_with(served), "{stdout}");
    }
}

#[test]
fn the_binary_named_kubectl_portolan_speaks_as_a_plugin() {
    let plugin = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubectl-portolan");
    drop(std::fs::remove_file(&plugin));
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_portolan"), &plugin).unwrap();
    let help = ran(program(&plugin).args(["crds", "--help"]).output());
    assert!(help.stdout.contains("Usage: kubectl portolan crds"), "{}", help.stdout);
    assert!(help.stdout.contains("\n  kubectl portolan crds --output-dir"), "{}", help.stdout);
    let error = ran(program(&plugin).arg("agent").output());
    assert!(error.stderr.ends_with("kubectl portolan --version\n"), "{}", error.stderr);
}

#[test]
fn completions_know_the_commands_of_each_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let Ran { exit, stdout, stderr } = portolan(&format!("completions {shell}"));
        assert_eq!((exit, stderr.as_str()), (Some(0), ""), "{shell}");
        for word in ["operator", "completions", "capabilities"] {
            assert!(stdout.contains(word), "{shell} does not complete `{word}`");
        }
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_success() {
    let mut child = program(Path::new(env!("CARGO_BIN_EXE_portolan")))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut complaint = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert_eq!((child.wait().unwrap().code(), complaint.as_str()), (Some(0), ""));
}
