//! Nodes, their pods, and what survives a restart.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Node, Pod, ReplicationController, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use portolan_simulator::cluster::{self, Cluster};
use serde_json::json;

#[tokio::test]
async fn workloads_on_simulated_nodes_have_their_pods_and_count_them() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let options = cluster::Options {
        listen: ([127, 0, 0, 1], 0).into(),
        data_dir: None,
        kubeconfig: folder.path().join("kubeconfig"),
        nodes: 2,
        network: cluster::Network::number(0),
        run_elsewhere: Some("portolan".to_owned()),
    };
    let cluster = Cluster::start(options).await?;
    let client = cluster.client();
    let template = |label: &str| {
        let container = json!({ "name": "c", "image": "nothing" });
        json!({ "metadata": { "labels": { "app": label } }, "spec": { "containers": [container] } })
    };
    let spec = |label: &str| {
        json!({
            "metadata": { "name": label },
            "spec": { "selector": { "matchLabels": { "app": label } }, "template": template(label) },
        })
    };
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), "default");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    deployments.create(&PostParams::default(), &serde_json::from_value(spec("web"))?).await?;
    sets.create(&PostParams::default(), &serde_json::from_value(spec("gate"))?).await?;
    let merge = |patch| Patch::Merge(patch);
    deployments.patch("web", &PatchParams::default(), &merge(json!({ "spec": { "replicas": 3 } }))).await?;

    let names = |pods: Vec<Pod>| pods.iter().map(|pod| pod.labels()["app"].clone()).collect::<Vec<_>>();
    let ready = async |count: i32| {
        loop {
            let deployment = deployments.get("web").await?;
            let status = deployment.status.unwrap_or_default();
            if status.ready_replicas.unwrap_or_default() == count
                && status.observed_generation == deployment.metadata.generation
            {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let patience = Duration::from_mins(1);
    tokio::time::timeout(patience, ready(3)).await??;
    let gate = async {
        while sets.get("gate").await?.status.is_none_or(|status| status.number_ready != 2) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(patience, gate).await??;
    assert_eq!(names(pods.list(&ListParams::default()).await?.items), ["gate", "gate", "web", "web", "web"]);

    let replica_sets: Api<ReplicaSet> = Api::namespaced(client.clone(), "default");
    let [first] = &replica_sets.list(&ListParams::default()).await?.items[..] else {
        panic!("one set for one template")
    };
    assert_eq!(first.owner_references()[0].name, "web");
    let [pod, ..] = &pods.list(&ListParams::default().labels("app=web")).await?.items[..] else { panic!("pods") };
    assert_eq!(pod.owner_references()[0].name, first.name_any());
    assert_eq!(pod.labels()["pod-template-hash"], first.labels()["pod-template-hash"]);

    let other = json!({ "spec": { "replicas": 1, "template": { "metadata": { "annotations": { "a": "b" } } } } });
    deployments.patch("web", &PatchParams::default(), &merge(other)).await?;
    tokio::time::timeout(patience, ready(1)).await??;
    let replaced = async {
        loop {
            let left = pods.list(&ListParams::default().labels("app=web")).await?.items;
            if left.len() == 1 && left[0].annotations().contains_key("a") {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(patience, replaced).await??;

    // a set that selects its nodes has one there and none elsewhere
    let selecting =
        json!({ "spec": { "template": { "spec": { "nodeSelector": { "kubernetes.io/hostname": "node-2" } } } } });
    sets.patch("gate", &PatchParams::default(), &merge(selecting)).await?;
    let moved = async {
        loop {
            let left = pods.list(&ListParams::default().labels("app=gate")).await?.items;
            let nodes: Vec<_> = left.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref()).collect();
            if nodes == ["node-2"] {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(patience, moved).await??;

    // pods of that image are left to whoever runs them
    let own = json!({ "metadata": { "name": "own" }, "spec": { "nodeName": "node-1", "containers": [{ "name": "c", "image": "portolan:1" }] } });
    pods.create(&PostParams::default(), &serde_json::from_value(own)?).await?;
    let mut other = template("other");
    other["metadata"]["name"] = json!("other");
    other["spec"]["nodeName"] = json!("node-1");
    pods.create(&PostParams::default(), &serde_json::from_value(other)?).await?;
    let runs = async {
        while pods.get_status("other").await?.status.is_none_or(|status| status.pod_ip.is_none()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(patience, runs).await??;
    let status = pods.get("own").await?.status.unwrap_or_default();
    assert_eq!((status.phase.as_deref(), status.pod_ip), (Some("Pending"), None));
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods.delete("own", &now).await?;
    pods.delete("other", &now).await?;

    deployments.delete("web", &DeleteParams::default()).await?;
    sets.delete("gate", &DeleteParams::default()).await?;
    let gone = async {
        while !pods.list(&ListParams::default()).await?.items.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(patience, gone).await??;
    cluster.stop().await;
    Ok(())
}

#[tokio::test]
async fn pods_of_a_replication_controller_go_with_it_or_stay_as_the_deletion_says() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let options = cluster::Options {
        listen: ([127, 0, 0, 1], 0).into(),
        data_dir: None,
        kubeconfig: folder.path().join("kubeconfig"),
        nodes: 1,
        network: cluster::Network::number(0),
        run_elsewhere: None,
    };
    let cluster = Cluster::start(options).await?;
    let controllers: Api<ReplicationController> = Api::namespaced(cluster.client(), "default");
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "default");
    let eventually = async |name: &str, replicas: i32, owned: usize, left: usize| {
        let met = async {
            loop {
                let pods = pods.list(&ListParams::default().labels(&format!("app={name}"))).await?.items;
                let status = controllers.get_opt(name).await?.and_then(|controller| controller.status);
                let now = pods.iter().filter(|pod| !pod.owner_references().is_empty()).count();
                if (status.map_or(0, |status| status.replicas), now, pods.len()) == (replicas, owned, left) {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), met).await?
    };
    for (name, policy, left) in [("going", DeleteParams::background(), 0), ("staying", DeleteParams::orphan(), 2)] {
        let template = json!({
            "metadata": { "labels": { "app": name } }, "spec": { "containers": [{ "name": "c", "image": "nothing" }] },
        });
        let controller = json!({ "metadata": { "name": name }, "spec": { "replicas": 2, "template": template } });
        controllers.create(&PostParams::default(), &serde_json::from_value(controller)?).await?;
        eventually(name, 2, 2, 2).await?;
        controllers.delete(name, &policy).await?;
        eventually(name, 0, 0, left).await?;
    }
    cluster.stop().await;
    Ok(())
}

#[tokio::test]
async fn the_servers_own_service_is_there_and_comes_back() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let options = cluster::Options {
        listen: ([127, 0, 0, 1], 0).into(),
        data_dir: None,
        kubeconfig: folder.path().join("kubeconfig"),
        nodes: 0,
        network: cluster::Network::number(0),
        run_elsewhere: None,
    };
    let cluster = Cluster::start(options).await?;
    let services: Api<Service> = Api::namespaced(cluster.client(), "default");
    let slices: Api<EndpointSlice> = Api::namespaced(cluster.client(), "default");
    for _ in 0..2 {
        let complete = async {
            loop {
                let (service, slice) = (services.get_opt("kubernetes").await?, slices.get_opt("kubernetes").await?);
                if let (Some(service), Some(slice)) = (service, slice) {
                    return anyhow::Ok((service, slice));
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let (service, slice) = tokio::time::timeout(Duration::from_mins(1), complete).await??;
        assert_eq!(service.spec.unwrap_or_default().cluster_ip.as_deref(), Some("10.96.0.1"));
        assert_eq!(slice.endpoints.unwrap_or_default()[0].addresses, ["127.0.0.1"]);
        let port = slice.ports.unwrap_or_default()[0].port;
        assert_eq!(port, Some(i32::from(cluster.address().port())));
        services.delete("kubernetes", &DeleteParams::default()).await?;
    }
    cluster.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_bare_pod_gets_a_node_or_a_reason_why_not() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let options = cluster::Options {
        listen: ([127, 0, 0, 1], 0).into(),
        data_dir: None,
        kubeconfig: folder.path().join("kubeconfig"),
        nodes: 2,
        network: cluster::Network::number(0),
        run_elsewhere: None,
    };
    let cluster = Cluster::start(options).await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "default");
    let create = async |name: &str, selector: serde_json::Value| {
        let spec = json!({ "containers": [{ "name": "c", "image": "nothing" }], "nodeSelector": selector });
        let pod = serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec }))?;
        pods.create(&PostParams::default(), &pod).await.map_err(anyhow::Error::from)
    };
    let until = async |name: &str, holds: fn(&Pod) -> bool| {
        let met = async {
            loop {
                let pod = pods.get(name).await?;
                if holds(&pod) {
                    return anyhow::Ok(pod);
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), met).await?
    };
    let runs = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"));
    let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());

    create("first", json!({})).await?;
    let first = until("first", runs).await?;
    create("second", json!({})).await?;
    let second = until("second", runs).await?;
    assert_eq!((node(&first).as_deref(), node(&second).as_deref()), (Some("node-1"), Some("node-2")));

    create("picky", json!({ "zone": "west" })).await?;
    let refused = |pod: &Pod| pod.status.iter().flat_map(|status| status.conditions.iter().flatten()).any(|_| true);
    let picky = until("picky", refused).await?;
    let conditions = picky.status.and_then(|status| status.conditions).unwrap_or_default();
    assert_eq!((conditions[0].type_.as_str(), conditions[0].status.as_str()), ("PodScheduled", "False"));
    assert_eq!(
        conditions[0].message.as_deref(),
        Some("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.")
    );
    let nodes: Api<Node> = Api::all(cluster.client());
    let label = Patch::Merge(json!({ "metadata": { "labels": { "zone": "west" } } }));
    nodes.patch("node-2", &PatchParams::default(), &label).await?;
    let picky = until("picky", runs).await?;
    assert_eq!(node(&picky).as_deref(), Some("node-2"));
    let conditions = picky.status.and_then(|status| status.conditions).unwrap_or_default();
    assert!(conditions.iter().all(|condition| condition.status == "True"), "{conditions:?}");
    cluster.stop().await;
    Ok(())
}

#[tokio::test]
async fn simulated_nodes_are_ready_and_survive_a_restart() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let options = cluster::Options {
        listen: ([127, 0, 0, 1], 0).into(),
        data_dir: Some(folder.path().join("data")),
        kubeconfig: folder.path().join("kubeconfig"),
        nodes: 2,
        network: cluster::Network::number(0),
        run_elsewhere: None,
    };
    let mut uids = Vec::new();
    for _ in 0..2 {
        let cluster = Cluster::start(options.clone()).await?;
        let nodes: Api<Node> = Api::all(cluster.client());
        let list = nodes.list(&ListParams::default().labels("portolan.dev/simulated=true")).await?;
        for node in &list {
            let status = node.status.clone().unwrap();
            assert_eq!(status.conditions.unwrap()[0].status, "True");
            assert_eq!(status.addresses.unwrap().len(), 2);
        }
        uids.push(list.iter().filter_map(ResourceExt::uid).collect::<Vec<_>>());
        cluster.stop().await;
        // A client that outlives the server does not hold the folder, and cannot write.
        let late = serde_json::from_value(json!({ "metadata": { "name": "late" } }))?;
        let refused = nodes.create(&PostParams::default(), &late).await.expect_err("the store is closed");
        assert!(refused.to_string().contains("the store is closed"), "{refused}");
    }
    assert_eq!((uids[0].len(), &uids[0]), (2, &uids[1]));
    Ok(())
}
