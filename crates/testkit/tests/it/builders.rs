//! The builders, and the controllers that act on what they build.

use k8s_openapi::api::{
    core::v1::{ConfigMap, Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
};
use portolan_testkit::{
    ControlPlane,
    builders::{self, SERVICE_NAME, ZONE, create},
};

use super::setting::until;

#[test]
fn builders_say_what_a_test_is_about_and_fill_in_the_rest() {
    let node = builders::node("n1").zone("a").address("10.0.0.1").not_ready().build();
    let status = node.status.as_ref().unwrap();
    assert_eq!(node.labels()[ZONE], "a");
    assert_eq!(status.addresses.as_ref().unwrap()[0].address, "10.0.0.1");
    assert_eq!(status.conditions.as_ref().unwrap()[0].status, "False");

    let pod = builders::pod("shop", "p1").label("app", "web").on("n1").ip("10.1.0.1").ip("fd00::1").build();
    let status = pod.status.as_ref().unwrap();
    assert_eq!((pod.namespace().as_deref(), pod.spec.unwrap().node_name.as_deref()), (Some("shop"), Some("n1")));
    assert_eq!(status.pod_ip.as_deref(), Some("10.1.0.1"), "the first address is the primary one");
    assert_eq!(status.pod_ips.as_ref().unwrap().len(), 2);

    let service = builders::service("shop", "web").selects("app", "web").port_of("UDP", "dns", 53, 5353).headless();
    let spec = service.build().spec.unwrap();
    assert_eq!(spec.cluster_ip.as_deref(), Some("None"));
    assert_eq!(spec.ports.unwrap()[0].protocol.as_deref(), Some("UDP"));

    let slice = builders::endpoint_slice("shop", "web-1")
        .of_service("web")
        .port("http", 80)
        .endpoint("10.1.0.1")
        .endpoint_like("10.1.0.2", false, Some("n1"))
        .build();
    assert_eq!(slice.labels()[SERVICE_NAME], "web");
    assert_eq!(slice.endpoints.unwrap()[1].conditions.as_ref().unwrap().ready, Some(false));

    let namespace = builders::namespace("shop").label("team", "a").annotation("note", "b").build();
    assert_eq!((&*namespace.labels()["team"], &*namespace.annotations()["note"]), ("a", "b"));
}

#[tokio::test]
async fn endpointslices_and_garbage_collection_work() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("controllers").await.unwrap();
    let nodes: Api<Node> = Api::all(plane.client());
    let pods: Api<Pod> = Api::namespaced(plane.client(), &namespace);
    let services: Api<Service> = Api::namespaced(plane.client(), &namespace);
    let node = create(&nodes, &builders::node(&namespace).zone("a").address("10.0.0.1").build()).await.unwrap();
    assert!(node.spec.is_none_or(|spec| spec.taints.is_none()), "a node that is ready has no taint to say otherwise");

    for (name, ip) in [("one", "10.1.0.1"), ("two", "10.1.0.2")] {
        let pod = builders::pod(&namespace, name).label("app", "web").on(&namespace).ip(ip).build();
        create(&pods, &pod).await.unwrap();
    }
    let idle = builders::pod(&namespace, "idle").label("app", "web").on(&namespace).ip("10.1.0.3").not_ready().build();
    create(&pods, &idle).await.unwrap();
    create(&services, &builders::service(&namespace, "web").selects("app", "web").port("http", 80).build())
        .await
        .unwrap();

    let slices: Api<EndpointSlice> = Api::namespaced(plane.client(), &namespace);
    let of_web = ListParams::default().labels(&format!("{SERVICE_NAME}=web"));
    until("an EndpointSlice with the two pods that are ready", async || {
        let slices = slices.list(&of_web).await.unwrap();
        let ends = slices.into_iter().flat_map(|slice| slice.endpoints.unwrap_or_default());
        let ready = ends.filter(|end| end.conditions.as_ref().is_some_and(|is| is.ready == Some(true)));
        let mut ready: Vec<String> = ready.flat_map(|end| end.addresses).collect();
        ready.sort();
        (ready == ["10.1.0.1", "10.1.0.2"]).then_some(())
    })
    .await;

    let maps: Api<ConfigMap> = Api::namespaced(plane.client(), &namespace);
    let map = |name: &str| ConfigMap {
        metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    let owner = maps.create(&PostParams::default(), &map("owner")).await.unwrap();
    let mut owned = map("owned");
    owned.owner_references_mut().extend(owner.owner_ref(&()));
    maps.create(&PostParams::default(), &owned).await.unwrap();
    maps.delete("owner", &DeleteParams::default()).await.unwrap();
    until("the owned object goes after its owner", async || {
        maps.get_opt("owned").await.unwrap().is_none().then_some(())
    })
    .await;

    // No kubelet confirms the end of a pod, so it must not be waited for.
    let now = DeleteParams::default().grace_period(0);
    for pod in ["one", "two", "idle"] {
        pods.delete(pod, &now).await.unwrap();
    }
    nodes.delete(&namespace, &DeleteParams::default()).await.unwrap();
}
