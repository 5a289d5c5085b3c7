//! The examples of the mesh in `portolan up`, as their README files say: real proxies, real packets.

use std::path::Path;
use std::time::Duration;

use crate::up::Up;
use crate::{Ran, portolan, until};

fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name).display().to_string()
}

/// The gateway's address, once everything is programmed.
fn programmed(up: &Up, services: &str) -> anyhow::Result<String> {
    if let Err(error) = up.kubectl(&format!("wait --for=condition=Programmed --timeout=60s {services}")) {
        anyhow::bail!("{error}\n{}", up.kubectl("get pods,vsvc,tr -o wide")?);
    }
    up.kubectl("get pods -l app=gateway -o jsonpath={.items[0].status.podIP}")
}

#[test]
fn the_first_example_carries_packets_survives_a_restart_and_leaves_no_process() -> anyhow::Result<()> {
    let kept = ["--data-dir", "data"];
    let up = Up::start(tempfile::tempdir()?, &kept)?;
    let example = example("mesh-1");
    let services = "vsvc/gateway-vsvc vsvc/transcoder-vsvc";
    up.kubectl(&format!("apply -f {example}"))?;
    let gateway = programmed(&up, services)?;
    // 3 gateways, the transcoder's two containers, one worker
    assert_eq!(up.children()?.len(), 6);
    // others may run this test at the same time
    let offset = std::process::id() % 100;
    let send = |gateway: &str, port: u32, seconds: u32| {
        portolan(&format!("send udp://{gateway}:9001 hello --from 127.0.0.1:{port} --timeout {seconds}"))
    };
    let Ran { exit, stdout, stderr } = send(&gateway, 9000 + offset, 20);
    assert_eq!((exit, stdout.as_str()), (Some(0), "hello\n"), "{stderr}");
    for port in [8900 + offset, 9100 + offset] {
        let Ran { exit, stdout, stderr } = send(&gateway, port, 1);
        assert_eq!((exit, stdout.as_str()), (Some(1), ""), "{stderr}");
        assert!(stderr.contains("0 of 1 replies within 1 s"), "{stderr}");
    }
    let shown = up.kubectl("get pods -o wide")?;
    assert!(shown.contains("Running") && shown.contains("127.77."), "{shown}");

    // a restart brings everything back, though to other addresses if somebody took these meanwhile
    let up = Up::start(up.stop()?, &kept)?;
    until("packets pass again", || Ok(send(&programmed(&up, services)?, 9000 + offset, 1).exit == Some(0)))?;
    let restarts = "get pods -l app=worker -o jsonpath={.items[0].status.containerStatuses[0].restartCount}";
    until("the restart is counted", || Ok(up.kubectl(restarts)? == "1"))?;

    up.kubectl(&format!("delete -f {example} --timeout=60s"))?;
    until("the pods are gone", || Ok(up.kubectl("get pods -o name")?.is_empty()))?;
    until("no process is left", || Ok(up.children()?.is_empty()))?;
    up.stop()?;
    Ok(())
}

#[test]
fn users_of_the_second_example_meet_and_no_process_outlives_a_kill() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &[])?;
    let services = "vsvc/gateway-user-a-vsvc vsvc/gateway-user-b-vsvc vsvc/worker-vsvc";
    up.kubectl(&format!("apply -f {}", example("mesh-2")))?;
    let gateway = programmed(&up, services)?;
    let (a, b) = ("127.0.0.1:8001", "127.0.0.1:8002");
    let heard = std::thread::scope(|scope| {
        let listening = scope.spawn(|| portolan(&format!("send udp://{gateway}:8002 --from {b} --timeout 30")));
        // until user B listens
        while !listening.is_finished() {
            portolan(&format!("send udp://{gateway}:8001 hello --from {a} --answers 0"));
            std::thread::sleep(Duration::from_millis(100));
        }
        listening.join()
    });
    let Ok(Ran { exit, stdout, stderr }) = heard else { anyhow::bail!("listening panicked") };
    assert_eq!((exit, stdout.as_str()), (Some(0), "hello\n"), "{stderr}");

    let children = up.children()?;
    assert_eq!(children.len(), 7, "a gateway, and three workers with an app and a sidecar each");
    up.kill()?;
    until("every process has ended with it", || {
        Ok(children.iter().all(|id| !Path::new(&format!("/proc/{id}/exe")).exists()))
    })
}

#[test]
fn a_pod_that_cannot_run_says_why() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &[])?;
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[
        {"name":"c","image":"portolan","args":["proxy","--no-such-flag"]}]}}"#;
    let file = up.folder().join("pod.json");
    std::fs::write(&file, pod)?;
    up.kubectl(&format!("apply -f {}", file.display()))?;
    let why = "get pod p -o jsonpath={.status.containerStatuses[0].state.waiting.message}";
    until("its status says what is wrong", || Ok(up.kubectl(why)?.contains("`--no-such-flag` is not an argument")))?;
    up.kubectl("delete pod p --timeout=60s")?;

    std::fs::write(&file, pod.replace("\"proxy\",\"--no-such-flag\"", "\"agent\""))?;
    up.kubectl(&format!("apply -f {}", file.display()))?;
    until("its status says what runs here", || Ok(up.kubectl(why)?.contains("only `args: [proxy, ...]`")))?;
    up.stop()?;
    Ok(())
}
