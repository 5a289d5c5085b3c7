//! Multi-cluster Services: two clusters, each with an operator that reads the other. The first tests are the behaviours
//! that the conformance tests of the Multi-Cluster Services API require, in their order.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt as _};
use portolan_api::mirror::{ImportType, RemoteCluster, ServiceExport, ServiceImport, ServiceImportSpec};
use portolan_control::mirror as control;
use portolan_control::runtime::app::Process;
use portolan_testkit::install_definition;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::harness::{Operator, World, merge, stays};
use crate::chart::metrics;
use crate::egress::harness::options;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    an_import_lives_while_one_exporter_remains,
    an_exported_cluster_ip_service_is_imported_in_every_cluster_until_it_is_unexported,
    session_affinity_and_its_time_are_those_of_the_export,
    the_internal_traffic_policy_is_that_of_the_export,
    the_traffic_distribution_is_that_of_the_export,
    an_import_has_one_address_of_each_family,
    ports_are_those_of_the_export_also_with_one_number_on_two_transports,
    ports_of_two_exporters_are_united_and_both_see_the_conflict,
    of_two_numbers_for_one_port_the_oldest_wins_and_both_see_the_conflict,
    a_headless_service_is_imported_as_headless_until_it_is_unexported,
    a_headless_import_never_has_addresses,
    an_external_name_cannot_be_exported,
    of_headless_and_not_the_oldest_wins_and_both_see_the_conflict,
    a_service_that_is_not_exported_reaches_no_other_cluster,
    labels_and_annotations_of_the_oldest_export_are_on_the_import_and_no_others,
    endpoints_follow_the_exporters_and_are_labelled_in_every_cluster,
    clusters_that_agree_write_nothing,
    hand_edits_of_imports_are_repaired_and_marks_of_others_stay,
    an_import_of_somebody_else_is_left_alone,
    what_a_remote_exports_into_a_protected_namespace_is_not_imported,
    a_remote_that_no_longer_shares_takes_its_endpoints_along,
    a_deleted_remote_takes_its_endpoints_along,
}

/// A cluster of the pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The local one of the world.
    West,
    /// The remote one of the world.
    East,
}
use Side::{East, West};

const BOTH: [Side; 2] = [West, East];

/// Two clusters that share Services.
struct Pair {
    world: World,
    west: Operator,
    east: Process,
}

impl Pair {
    async fn new(backend: Backend) -> anyhow::Result<Self> {
        let world = World::new(backend).await?;
        for definition in portolan_api::mcs_crds() {
            install_definition(world.local.clone(), definition.clone()).await?;
            install_definition(world.remote.clone(), definition).await?;
        }
        let own = portolan_api::crds().into_iter().filter(|one| one.spec.names.kind == "RemoteCluster");
        for definition in own {
            install_definition(world.remote.clone(), definition).await?;
        }
        let shared = json!({ "mcs": { "enabled": true, "mirrorServices": false } });
        world.east(shared.clone()).await?;
        world.remote_namespace("operator").await?;
        world.other_way("west", "operator", shared).await?;
        let west =
            world.operator_with(control::Options { cluster_id: Some("west".to_owned()), ..world.options() }).await?;
        let mirror = control::Options {
            operator_namespace: "operator".to_owned(),
            cluster_id: Some("east".to_owned()),
            ..world.options()
        };
        let east = Process::start(world.remote.clone(), options(), |ctx, registry| {
            drop(control::start(ctx, registry, mirror));
        })?;
        world.ready("east").await?;
        Ok(Self { world, west, east })
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.east.stop().await?;
        self.west.stop().await
    }

    fn client(&self, side: Side) -> Client {
        match side {
            West => self.world.local.clone(),
            East => self.world.remote.clone(),
        }
    }

    /// Objects of a kind in the namespace that both have.
    fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self, side: Side) -> Api<K> {
        Api::namespaced(self.client(side), &self.world.namespace)
    }

    async fn create<K>(&self, side: Side, object: Value) -> anyhow::Result<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + serde::Serialize
            + std::fmt::Debug,
    {
        let mut whole = json!({ "apiVersion": K::api_version(&()), "kind": K::kind(&()) });
        merge(&mut whole, object);
        Ok(self.api(side).create(&PostParams::default(), &serde_json::from_value(whole)?).await?)
    }

    /// A Service with these fields in its spec, and an export of it.
    async fn exported(&self, side: Side, name: &str, spec: Value) -> anyhow::Result<()> {
        self.service(side, name, spec).await?;
        self.export(side, name, json!({})).await
    }

    async fn service(&self, side: Side, name: &str, fields: Value) -> anyhow::Result<()> {
        let mut spec = json!({ "ports": [{ "name": "http", "port": 80 }] });
        merge(&mut spec, fields);
        self.create::<Service>(side, json!({ "metadata": { "name": name }, "spec": spec })).await.map(drop)
    }

    async fn export(&self, side: Side, name: &str, spec: Value) -> anyhow::Result<()> {
        self.create::<ServiceExport>(side, json!({ "metadata": { "name": name }, "spec": spec })).await.map(drop)
    }

    async fn unexport(&self, side: Side, name: &str) -> anyhow::Result<()> {
        Ok(self.api::<ServiceExport>(side).delete(name, &DeleteParams::default()).await.map(drop)?)
    }

    /// An EndpointSlice of a Service, as there is one for its pods.
    async fn pods(&self, side: Side, service: &str, addresses: &[&str], port: u16) -> anyhow::Result<()> {
        let endpoints: Vec<Value> =
            addresses.iter().map(|address| json!({ "addresses": [address], "nodeName": "n1" })).collect();
        let slice = json!({
            "metadata": { "name": format!("{service}-pods"), "labels": { "kubernetes.io/service-name": service } },
            "addressType": "IPv4",
            "ports": [{ "name": "http", "port": port, "protocol": "TCP" }],
            "endpoints": endpoints,
        });
        self.create::<EndpointSlice>(side, slice).await.map(drop)
    }

    /// Waits for an import that fits.
    async fn import(
        &self,
        side: Side,
        name: &str,
        what: &str,
        fits: impl Fn(&ServiceImport) -> bool,
    ) -> anyhow::Result<ServiceImport> {
        let mut last = None;
        let waited = eventually(&format!("the import {name} in {side:?} {what}"), async || {
            last = self.api::<ServiceImport>(side).get_opt(name).await?;
            Ok(last.as_ref().is_some_and(&fits))
        })
        .await;
        waited.map_err(|problem| {
            problem.context(format!("it is {:?}", last.as_ref().map(|last| (&last.spec, &last.status))))
        })?;
        last.ok_or_else(|| anyhow::anyhow!("it was there"))
    }

    /// Waits for an import with addresses.
    async fn ready_import(&self, side: Side, name: &str) -> anyhow::Result<ServiceImport> {
        self.import(side, name, "is ready", |import| {
            let conditions = import.status.iter().flat_map(|status| &status.conditions);
            conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
        })
        .await
    }

    async fn no_import(&self, side: Side, name: &str) -> anyhow::Result<()> {
        let what = format!("there is no import {name} in {side:?}");
        eventually(&what, async || Ok(self.api::<ServiceImport>(side).get_opt(name).await?.is_none())).await
    }

    /// Waits for a condition of an export; gives its reason.
    async fn condition(&self, side: Side, name: &str, kind: &str, status: &str) -> anyhow::Result<String> {
        let mut reason = String::new();
        eventually(&format!("the export {name} in {side:?} is {kind}={status}"), async || {
            let export = self.api::<ServiceExport>(side).get(name).await?;
            let conditions = export.status.unwrap_or_default().conditions;
            let found = conditions.into_iter().find(|one| one.type_ == kind && one.status == status);
            reason = found.as_ref().map(|found| found.reason.clone()).unwrap_or_default();
            Ok(found.is_some())
        })
        .await?;
        Ok(reason)
    }

    /// EndpointSlices of an import.
    async fn slices(&self, side: Side, name: &str) -> anyhow::Result<Vec<EndpointSlice>> {
        let of_import = ListParams::default().labels(&format!("multicluster.kubernetes.io/service-name={name}"));
        Ok(self.api::<EndpointSlice>(side).list(&of_import).await?.items)
    }

    /// Waits until the endpoints of an import are `CLUSTER ADDRESS:PORT`.
    async fn endpoints_are(&self, side: Side, name: &str, want: &[&str]) -> anyhow::Result<()> {
        let mut last = Vec::new();
        let waited = eventually(&format!("{name} in {side:?} has the endpoints {want:?}"), async || {
            last = Vec::new();
            for slice in self.slices(side, name).await? {
                let cluster = slice.labels()["multicluster.kubernetes.io/source-cluster"].clone();
                let port = slice.ports.iter().flatten().find_map(|port| port.port).unwrap_or_default();
                let endpoints = slice.endpoints.iter().flatten();
                last.extend(endpoints.map(|endpoint| format!("{cluster} {}:{port}", endpoint.addresses[0])));
            }
            last.sort();
            Ok(last == want)
        })
        .await;
        waited.map_err(|problem| problem.context(format!("they are {last:?}")))
    }

    /// The Service that an import derives.
    async fn derived(&self, side: Side, import: &ServiceImport) -> anyhow::Result<Service> {
        Ok(self.api::<Service>(side).get(&import.annotations()["multicluster.kubernetes.io/derived-service"]).await?)
    }
}

/// Exports are compared by the second in which they were made.
async fn a_second_later() {
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
}

fn spec_of(import: &ServiceImport) -> &ServiceImportSpec {
    &import.spec
}

fn ports_of(import: &ServiceImport) -> Vec<(String, String, i32)> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    import.spec.ports.iter().map(|port| (text(&port.name), text(&port.protocol), port.port)).collect()
}

fn clusters_of(import: &ServiceImport) -> Vec<String> {
    import.status.iter().flat_map(|status| &status.clusters).map(|one| one.cluster.clone()).collect()
}

async fn an_import_lives_while_one_exporter_remains(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    for side in BOTH {
        pair.exported(side, "web", json!({})).await?;
    }
    for side in BOTH {
        pair.import(side, "web", "has both clusters", |import| clusters_of(import) == ["east", "west"]).await?;
    }
    pair.unexport(West, "web").await?;
    for side in BOTH {
        pair.import(side, "web", "has one cluster", |import| clusters_of(import) == ["east"]).await?;
    }
    pair.unexport(East, "web").await?;
    for side in BOTH {
        pair.no_import(side, "web").await?;
    }
    pair.stop().await
}

async fn an_exported_cluster_ip_service_is_imported_in_every_cluster_until_it_is_unexported(
    backend: Backend,
) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    pair.exported(East, "web", json!({})).await?;
    assert_eq!(pair.condition(East, "web", "Valid", "True").await?, "Valid");
    assert_eq!(pair.condition(East, "web", "Ready", "True").await?, "Ready");
    assert_eq!(pair.condition(East, "web", "Conflict", "False").await?, "NoConflicts");
    let mut derived = Vec::new();
    for side in BOTH {
        let import = pair.ready_import(side, "web").await?;
        assert_eq!(
            (import.spec.import_type, clusters_of(&import)),
            (ImportType::ClusterSetIP, vec!["east".to_owned()])
        );
        derived.push(pair.derived(side, &import).await?.name_any());
    }
    pair.unexport(East, "web").await?;
    for (side, derived) in BOTH.into_iter().zip(derived) {
        pair.no_import(side, "web").await?;
        eventually("nothing of the import is left", async || {
            let service = pair.api::<Service>(side).get_opt(&derived).await?;
            Ok(service.is_none() && pair.slices(side, "web").await?.is_empty())
        })
        .await?;
    }
    pair.stop().await
}

async fn session_affinity_and_its_time_are_those_of_the_export(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    let config = json!({ "clientIP": { "timeoutSeconds": 10 } });
    pair.exported(East, "web", json!({ "sessionAffinity": "ClientIP", "sessionAffinityConfig": config })).await?;
    for side in BOTH {
        let import = pair.ready_import(side, "web").await?;
        let derived = pair.derived(side, &import).await?.spec.unwrap_or_default();
        for (affinity, seconds) in [
            (
                import.spec.session_affinity,
                import.spec.session_affinity_config.and_then(|config| config.client_ip?.timeout_seconds),
            ),
            (
                derived.session_affinity,
                derived.session_affinity_config.and_then(|config| config.client_ip?.timeout_seconds),
            ),
        ] {
            assert_eq!((affinity.as_deref(), seconds), (Some("ClientIP"), Some(10)));
        }
    }
    pair.stop().await
}

async fn the_internal_traffic_policy_is_that_of_the_export(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    pair.exported(East, "web", json!({ "internalTrafficPolicy": "Local" })).await?;
    for side in BOTH {
        let import = pair.ready_import(side, "web").await?;
        assert_eq!(import.spec.internal_traffic_policy.as_deref(), Some("Local"));
        // Where no endpoint can be on the client's node, all are used.
        let policy = pair.derived(side, &import).await?.spec.and_then(|spec| spec.internal_traffic_policy);
        assert_eq!(policy.as_deref(), Some(if side == East { "Local" } else { "Cluster" }));
    }
    pair.stop().await
}

async fn the_traffic_distribution_is_that_of_the_export(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    pair.exported(East, "web", json!({ "trafficDistribution": "PreferClose" })).await?;
    for side in BOTH {
        let import = pair.ready_import(side, "web").await?;
        let derived = pair.derived(side, &import).await?.spec.unwrap_or_default();
        let want = Some("PreferClose".to_owned());
        assert_eq!((&import.spec.traffic_distribution, &derived.traffic_distribution), (&want, &want));
    }
    pair.stop().await
}

async fn an_import_has_one_address_of_each_family(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    pair.exported(East, "web", json!({})).await?;
    for side in BOTH {
        let import = pair.ready_import(side, "web").await?;
        let derived = pair.derived(side, &import).await?.spec.unwrap_or_default();
        assert_eq!(Some(&import.spec.ips), derived.cluster_ips.as_ref());
        assert_eq!(Some(&import.spec.ip_families), derived.ip_families.as_ref());
        assert!(import.spec.ips[0].parse::<std::net::IpAddr>().is_ok(), "{:?}", spec_of(&import));
    }
    pair.stop().await
}

async fn ports_are_those_of_the_export_also_with_one_number_on_two_transports(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    let ports = json!([
        { "name": "dns", "port": 53, "protocol": "UDP" },
        { "name": "dns-tcp", "port": 53, "protocol": "TCP", "appProtocol": "dns" },
    ]);
    pair.exported(East, "web", json!({ "ports": ports })).await?;
    for side in BOTH {
        let import = pair.ready_import(side, "web").await?;
        let port = |name: &str, protocol: &str| (name.to_owned(), protocol.to_owned(), 53);
        assert_eq!(ports_of(&import), [port("dns", "UDP"), port("dns-tcp", "TCP")]);
        assert_eq!(import.spec.ports[1].app_protocol.as_deref(), Some("dns"));
    }
    pair.stop().await
}

async fn ports_of_two_exporters_are_united_and_both_see_the_conflict(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    pair.exported(West, "web", json!({})).await?;
    a_second_later().await;
    pair.exported(East, "web", json!({ "ports": [{ "name": "admin", "port": 8080 }] })).await?;
    for side in BOTH {
        pair.import(side, "web", "has both ports", |import| {
            ports_of(import).iter().map(|(name, ..)| name.as_str()).eq(["http", "admin"])
        })
        .await?;
        assert_eq!(pair.condition(side, "web", "Conflict", "True").await?, "PortConflict");
    }
    pair.stop().await
}

async fn of_two_numbers_for_one_port_the_oldest_wins_and_both_see_the_conflict(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    pair.exported(East, "web", json!({})).await?;
    a_second_later().await;
    pair.exported(West, "web", json!({ "ports": [{ "name": "http", "port": 81 }] })).await?;
    for side in BOTH {
        assert_eq!(pair.condition(side, "web", "Conflict", "True").await?, "PortConflict");
        let import = pair.ready_import(side, "web").await?;
        assert_eq!(ports_of(&import), [("http".to_owned(), "TCP".to_owned(), 80)]);
    }
    pair.unexport(West, "web").await?;
    assert_eq!(pair.condition(East, "web", "Conflict", "False").await?, "NoConflicts");
    pair.stop().await
}

async fn a_headless_service_is_imported_as_headless_until_it_is_unexported(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    pair.exported(East, "web", json!({ "clusterIP": "None" })).await?;
    pair.pods(East, "web", &["10.1.0.1"], 8080).await?;
    for side in BOTH {
        let import = pair.ready_import(side, "web").await?;
        assert_eq!(import.spec.import_type, ImportType::Headless);
        pair.endpoints_are(side, "web", &["east 10.1.0.1:8080"]).await?;
        for slice in pair.slices(side, "web").await? {
            assert!(!slice.labels().contains_key("kubernetes.io/service-name"), "{:?}", slice.labels());
        }
    }
    pair.unexport(East, "web").await?;
    for side in BOTH {
        pair.no_import(side, "web").await?;
        pair.endpoints_are(side, "web", &[]).await?;
    }
    pair.stop().await
}

async fn a_headless_import_never_has_addresses(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    pair.exported(East, "web", json!({ "clusterIP": "None" })).await?;
    for side in BOTH {
        let import = pair.ready_import(side, "web").await?;
        assert!(import.spec.ips.is_empty(), "{:?}", import.spec.ips);
        assert!(!import.annotations().contains_key("multicluster.kubernetes.io/derived-service"));
        stays("it has no addresses", async || {
            Ok(pair.api::<ServiceImport>(side).get("web").await?.spec.ips.is_empty())
        })
        .await?;
    }
    pair.stop().await
}

async fn an_external_name_cannot_be_exported(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    pair.exported(East, "web", json!({ "type": "ExternalName", "externalName": "example.com", "ports": [] })).await?;
    assert_eq!(pair.condition(East, "web", "Valid", "False").await?, "InvalidServiceType");
    // A Service that comes later makes an export valid.
    pair.export(East, "late", json!({})).await?;
    assert_eq!(pair.condition(East, "late", "Valid", "False").await?, "NoService");
    pair.service(East, "late", json!({})).await?;
    pair.ready_import(West, "late").await?;
    for side in BOTH {
        pair.no_import(side, "web").await?;
    }
    pair.stop().await
}

async fn of_headless_and_not_the_oldest_wins_and_both_see_the_conflict(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    pair.exported(West, "web", json!({})).await?;
    a_second_later().await;
    pair.exported(East, "web", json!({ "clusterIP": "None" })).await?;
    for side in BOTH {
        let reason = pair.condition(side, "web", "Conflict", "True").await?;
        assert!(reason.contains("TypeConflict"), "{reason}");
        assert_eq!(pair.ready_import(side, "web").await?.spec.import_type, ImportType::ClusterSetIP);
    }
    pair.stop().await
}

async fn a_service_that_is_not_exported_reaches_no_other_cluster(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    pair.service(East, "web", json!({ "type": "NodePort" })).await?;
    pair.pods(East, "web", &["10.1.0.1"], 8080).await?;
    // By then it would be there.
    pair.exported(East, "marker", json!({})).await?;
    pair.ready_import(West, "marker").await?;
    pair.no_import(West, "web").await?;
    assert!(pair.api::<Service>(West).get_opt("web").await?.is_none());
    let written: Vec<String> = pair.west.seen.writes_but_leases().into_iter().map(|write| write.path).collect();
    assert!(!written.iter().any(|path| path.ends_with("/web")), "{written:?}");
    pair.stop().await
}

async fn labels_and_annotations_of_the_oldest_export_are_on_the_import_and_no_others(
    backend: Backend,
) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    for side in BOTH {
        pair.service(side, "web", json!({})).await?;
    }
    let spec = json!({
        "exportedLabels": { "team": "a", "mirror.portolan.dev/remote": "fake", "bad": "no label!" },
        "exportedAnnotations": { "note": "from east" },
    });
    pair.export(East, "web", spec).await?;
    a_second_later().await;
    pair.export(West, "web", json!({ "exportedLabels": { "team": "b" } })).await?;
    for side in BOTH {
        let reason = pair.condition(side, "web", "Conflict", "True").await?;
        assert_eq!(reason, "LabelsConflict,AnnotationsConflict");
        let import = pair.ready_import(side, "web").await?;
        let keys: Vec<&str> = import.labels().keys().map(String::as_str).collect();
        assert_eq!(keys, ["mirror.portolan.dev/created", "team"]);
        assert_eq!((import.labels()["team"].as_str(), import.annotations()["note"].as_str()), ("a", "from east"));
    }
    let patch = json!({ "spec": { "exportedLabels": { "team": null, "tier": "1" } } });
    pair.api::<ServiceExport>(East).patch("web", &PatchParams::default(), &Patch::Merge(patch)).await?;
    for side in BOTH {
        pair.import(side, "web", "has the other label alone", |import| {
            import.labels().get("tier").is_some() && !import.labels().contains_key("team")
        })
        .await?;
    }
    pair.stop().await
}

async fn endpoints_follow_the_exporters_and_are_labelled_in_every_cluster(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    for side in BOTH {
        pair.exported(side, "web", json!({})).await?;
    }
    // Only addresses that the RemoteClusters allow, and none of a cluster of its own.
    pair.pods(West, "web", &["10.1.0.1"], 8080).await?;
    pair.pods(East, "web", &["10.2.0.1", "10.2.0.2", "192.0.2.1", "127.0.0.1"], 9090).await?;
    for side in BOTH {
        let own_others: &[&str] = if side == East { &["east 127.0.0.1:9090", "east 192.0.2.1:9090"] } else { &[] };
        let mut want = vec!["east 10.2.0.1:9090", "east 10.2.0.2:9090", "west 10.1.0.1:8080"];
        want.extend(own_others);
        want.sort_unstable();
        pair.endpoints_are(side, "web", &want).await?;
        let import = pair.ready_import(side, "web").await?;
        let derived = pair.derived(side, &import).await?;
        for slice in pair.slices(side, "web").await? {
            let labels = slice.labels();
            assert_eq!(labels["kubernetes.io/service-name"], derived.name_any());
            assert_eq!(labels["endpointslice.kubernetes.io/managed-by"], "mirror.portolan.dev");
            assert_eq!(slice.owner_references()[0].uid, derived.uid().unwrap_or_default());
            let cluster = &labels["multicluster.kubernetes.io/source-cluster"];
            let is_own = (side == East) == (cluster == "east");
            let nodes = slice.endpoints.iter().flatten().map(|endpoint| endpoint.node_name.is_some());
            assert!(nodes.into_iter().all(|has_node| has_node == is_own), "{slice:?}");
        }
    }
    eventually("the RemoteCluster says which addresses are not allowed", async || {
        let unmet = pair.world.remote_status("east").await?.unmet;
        Ok(unmet.iter().any(|one| one.name == "web" && one.reason == "AddressNotAllowed"))
    })
    .await?;
    pair.api::<EndpointSlice>(East).delete("web-pods", &DeleteParams::default()).await?;
    pair.endpoints_are(West, "web", &["west 10.1.0.1:8080"]).await?;
    pair.unexport(West, "web").await?;
    pair.endpoints_are(West, "web", &[]).await?;
    pair.stop().await
}

async fn clusters_that_agree_write_nothing(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    for side in BOTH {
        pair.exported(side, "web", json!({})).await?;
        pair.pods(side, "web", &[if side == West { "10.1.0.1" } else { "10.2.0.1" }], 8080).await?;
    }
    pair.exported(East, "dns", json!({ "clusterIP": "None" })).await?;
    pair.endpoints_are(West, "web", &["east 10.2.0.1:8080", "west 10.1.0.1:8080"]).await?;
    pair.ready_import(West, "dns").await?;
    pair.condition(West, "web", "Ready", "True").await?;
    let Pair { world, west, east } = pair;
    west.stop().await?;
    let mirror = control::Options {
        cluster_id: Some("west".to_owned()),
        resync_period: std::time::Duration::from_millis(200),
        ..world.options()
    };
    let again = world.operator_with(mirror).await?;
    let decided_more_than = async |count: f64| {
        eventually("it has looked at everything several times", async || {
            let text = metrics(again.process.admin_at()).await?;
            let found = text.lines().find_map(|line| line.strip_prefix("portolan_mirror_import_decisions_total "));
            Ok(found.is_some_and(|found| found.parse::<f64>().is_ok_and(|found| found > count)))
        })
        .await
    };
    let written = || -> Vec<String> {
        let written = again.seen.writes_but_leases().into_iter();
        let ours = written.filter(|write| write.path.contains(&world.namespace));
        ours.map(|write| format!("{} {}", write.method, write.path)).collect()
    };
    // What the one before had not written yet.
    decided_more_than(6.0).await?;
    let before = written();
    decided_more_than(20.0).await?;
    assert_eq!(written(), before);
    east.stop().await?;
    again.stop().await
}

async fn hand_edits_of_imports_are_repaired_and_marks_of_others_stay(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    pair.exported(East, "web", json!({})).await?;
    pair.pods(East, "web", &["10.2.0.1"], 8080).await?;
    let import = pair.ready_import(West, "web").await?;
    pair.endpoints_are(West, "web", &["east 10.2.0.1:8080"]).await?;
    let change = json!({
        "metadata": { "labels": { "mine": "yes" } },
        "spec": { "ports": [{ "name": "http", "port": 1 }], "ips": [] },
    });
    pair.api::<ServiceImport>(West).patch("web", &PatchParams::default(), &Patch::Merge(change)).await?;
    let repaired = pair.import(West, "web", "is repaired", |now| now.spec == import.spec).await?;
    assert_eq!(repaired.labels()["mine"], "yes");
    let derived = pair.derived(West, &import).await?;
    pair.api::<Service>(West).delete(&derived.name_any(), &DeleteParams::default()).await?;
    eventually("there is another derived Service, and its address is on the import", async || {
        let now = pair.api::<ServiceImport>(West).get("web").await?;
        let service = pair.api::<Service>(West).get_opt(&derived.name_any()).await?;
        let ips =
            service.filter(|service| service.uid() != derived.uid()).and_then(|service| service.spec?.cluster_ips);
        Ok(ips.is_some_and(|ips| ips == now.spec.ips))
    })
    .await?;
    pair.endpoints_are(West, "web", &["east 10.2.0.1:8080"]).await?;
    pair.stop().await
}

async fn an_import_of_somebody_else_is_left_alone(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    let theirs = json!({ "metadata": { "name": "web" }, "spec": { "type": "ClusterSetIP", "ports": [] } });
    let before = pair.create::<ServiceImport>(West, theirs).await?;
    pair.exported(East, "web", json!({})).await?;
    pair.ready_import(East, "web").await?;
    let note = pair.world.event("NameConflict", "web").await?;
    assert!(note.contains("delete it to import"), "{note}");
    let now = pair.api::<ServiceImport>(West).get("web").await?;
    assert_eq!((now.resource_version(), now.spec), (before.resource_version(), before.spec));
    pair.stop().await
}

async fn what_a_remote_exports_into_a_protected_namespace_is_not_imported(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    // The operator's own namespace is protected, and kube-system.
    pair.world.remote_namespace(&pair.world.home).await?;
    for namespace in [pair.world.home.as_str(), "kube-system"] {
        let service = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
        let services: Api<Service> = Api::namespaced(pair.client(East), namespace);
        services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
        let exports: Api<ServiceExport> = Api::namespaced(pair.client(East), namespace);
        exports
            .create(
                &PostParams::default(),
                &ServiceExport::new("web", portolan_api::mirror::ServiceExportSpec::default()),
            )
            .await?;
    }
    pair.exported(East, "marker", json!({})).await?;
    pair.ready_import(West, "marker").await?;
    for namespace in [pair.world.home.as_str(), "kube-system"] {
        let imports: Api<ServiceImport> = Api::namespaced(pair.client(West), namespace);
        let found = imports.list(&ListParams::default()).await?.items;
        assert!(found.is_empty(), "{found:?}");
    }
    pair.stop().await
}

async fn a_remote_that_no_longer_shares_takes_its_endpoints_along(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    for side in BOTH {
        pair.exported(side, "web", json!({})).await?;
        pair.pods(side, "web", &[if side == West { "10.1.0.1" } else { "10.2.0.1" }], 8080).await?;
    }
    pair.endpoints_are(West, "web", &["east 10.2.0.1:8080", "west 10.1.0.1:8080"]).await?;
    let remotes: Api<RemoteCluster> = Api::all(pair.client(West));
    let off = json!({ "spec": { "mcs": null } });
    remotes.patch("east", &PatchParams::default(), &Patch::Merge(off)).await?;
    pair.no_import(West, "web").await?;
    pair.endpoints_are(West, "web", &[]).await?;
    let on = json!({ "spec": { "mcs": { "enabled": true } } });
    remotes.patch("east", &PatchParams::default(), &Patch::Merge(on)).await?;
    pair.endpoints_are(West, "web", &["east 10.2.0.1:8080", "west 10.1.0.1:8080"]).await?;
    pair.stop().await
}

async fn a_deleted_remote_takes_its_endpoints_along(backend: Backend) -> anyhow::Result<()> {
    let pair = Pair::new(backend).await?;
    pair.exported(East, "web", json!({})).await?;
    pair.pods(East, "web", &["10.2.0.1"], 8080).await?;
    pair.endpoints_are(West, "web", &["east 10.2.0.1:8080"]).await?;
    pair.world.remotes().delete("east", &DeleteParams::default()).await?;
    pair.no_import(West, "web").await?;
    pair.endpoints_are(West, "web", &[]).await?;
    // The exporter itself goes on.
    pair.ready_import(East, "web").await?;
    pair.stop().await
}
