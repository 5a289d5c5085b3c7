//! The control plane starts, works, and ends when it should.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, CustomResourceExt, api::PostParams};
use portolan_testkit::{
    ControlPlane, install,
    ticket::{Office, Ticket},
};

use super::setting::{LIMIT, ticket};

#[test]
fn the_control_plane_is_ready_and_serves_kubectl() {
    let plane = ControlPlane::shared();
    println!("ready after {:.1?}", plane.ready_after());
    let output = plane.kubectl().args(["get", "serviceaccount", "default", "-o", "name"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "serviceaccount/default\n", "{output:?}");
}

#[tokio::test]
async fn two_control_planes_run_side_by_side() {
    let first = ControlPlane::shared();
    // Blocking within a runtime, as a test may do that needs a control plane of its own.
    let second = ControlPlane::start().unwrap();
    println!("ready after {:.1?}, beside another", second.ready_after());
    let namespace = second.namespace("only-here").await.unwrap();
    assert!(Api::<Namespace>::all(second.client()).get_opt(&namespace).await.unwrap().is_some());
    assert!(Api::<Namespace>::all(first.client()).get_opt(&namespace).await.unwrap().is_none());

    let (processes, folder) = (second.process_ids(), second.folder().to_owned());
    assert!(processes.len() == 3 && processes.iter().all(|id| runs(*id)));
    drop(second);
    assert!(!processes.iter().any(|id| runs(*id)), "the programs end with the value");
    assert!(!folder.exists(), "the folder goes with the value");
}

#[test]
fn processes_end_with_the_test_process() {
    let mut holder = Command::new(env!("CARGO_BIN_EXE_portolan-testkit"))
        .arg("run")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let kubeconfig = lines.next().unwrap().unwrap();
    assert!(fs::exists(kubeconfig).unwrap());
    let processes: Vec<u32> = lines.next().unwrap().unwrap().split(' ').map(|id| id.parse().unwrap()).collect();
    assert!(processes.len() == 3 && processes.iter().all(|id| runs(*id)));

    // SIGKILL: nothing in that process can clean up.
    holder.kill().unwrap();
    holder.wait().unwrap();

    let deadline = Instant::now() + LIMIT;
    while processes.iter().any(|id| runs(*id)) {
        assert!(Instant::now() < deadline, "one of {processes:?} outlived the process that started it");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[tokio::test]
async fn a_kind_can_be_installed_by_many_at_once_and_keeps_its_rules() {
    let plane = ControlPlane::shared();
    let many = futures::future::join_all((0..4).map(|_| install::<Office>(plane.client()))).await;
    assert!(many.iter().all(Result::is_ok), "{many:?}");
    install::<Ticket>(plane.client()).await.unwrap();

    let namespace = plane.namespace("rules").await.unwrap();
    let tickets: Api<Ticket> = Api::namespaced(plane.client(), &namespace);
    tickets.create(&PostParams::default(), &ticket("good")).await.unwrap();
    let mut empty = ticket("empty");
    empty.spec.text.clear();
    let refused = tickets.create(&PostParams::default(), &empty).await.unwrap_err().to_string();
    assert!(refused.contains("text is empty: say what the ticket is for"), "{refused}");
}

#[test]
fn every_field_of_the_sample_kinds_is_explained() {
    for definition in [Ticket::crd(), Office::crd()] {
        let schema = definition.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
        for part in ["spec", "status"] {
            for (name, field) in schema.properties.as_ref().unwrap()[part].properties.as_ref().unwrap() {
                assert!(field.description.is_some(), "{part}.{name}");
            }
        }
    }
}

/// Whether a process runs; one that has ended and that nobody has waited for does not.
fn runs(id: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{id}/stat")) else { return false };
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}
