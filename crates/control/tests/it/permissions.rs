//! Least privilege: the requests of the operator are exactly what `deploy/manifests/rbac.yaml` grants. The operator does
//! everything it can do once, and the server records its requests.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Endpoints, Namespace, Node, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use portolan_api::address_claim::AddressClaim;
use portolan_api::egress::{
    EgressClusterEndpointSlice, EgressClusterPolicy, EgressEndpointSlice, EgressGateway, EgressPolicy, EgressTunnel,
};
use portolan_api::gateway::{Account, Endpoint, LoadBalancer, NodeConfig, ServiceGroup, ServicePrefix};
use portolan_api::ipam::{CloudPrivateIpConfig, EgressIp, NetworkConfig};
use portolan_api::mesh::{Route, Rule, Target, VirtualService};
use portolan_api::mirror::{RemoteCluster, ServiceExport, ServiceExportSpec, ServiceImport};
use portolan_apiserver::ApiServer;
use portolan_apiserver::auth::{Identity, Record};
use portolan_apiserver::controllers::Namespaces;
use portolan_control::CAPABILITIES;
use portolan_control::runtime::app::{Options, Process};
use portolan_control::runtime::capability::{CloudSource, Platform};
use portolan_control::runtime::{lease, webhook};
use portolan_simulator::{agents, openshift};
use portolan_testkit::builders;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use crate::egress::harness::{app, options, selector};
use crate::harness::{Backend, Server, eventually};
use crate::mesh::harness::{SIDECAR, fresh_address, run_proxy};
use crate::mirror::harness::make_namespace;

/// Where the manifests put the operator, and what it is called there.
const NAMESPACE: &str = "portolan";
const USER: &str = "system:serviceaccount:portolan:portolan-operator";
/// How many nodes are on the cloud.
const IPAM_NODES: usize = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operator_asks_for_what_its_roles_grant_and_they_grant_what_it_asks_for() -> anyhow::Result<()> {
    let server = ApiServer::memory().await;
    let admin = server.client();
    prepare(&admin).await?;
    server.recorder().switch(true);
    let agents = Process::start(admin.clone(), options(), |ctx, _| {
        agents::start(ctx);
        openshift::start(ctx);
    })?;
    let rest = SocketAddr::new(fresh_address().into(), 8080);
    let (operator, hooks) = operator(&client_of(&server, USER), rest)?;
    everything(&admin).await?;
    everything_of_ipam(&admin).await?;
    everything_of_ipam_with_ovn(&admin).await?;
    everything_of_the_mesh(&admin).await?;
    everything_of_the_mirror(&admin).await?;
    everything_of_the_gateway(&admin, rest).await?;
    hooks.rotate_now();
    let mut asked = BTreeSet::new();
    eventually("the Secret was written anew", async || {
        asked.extend(server.recorder().take());
        Ok(asked.iter().any(|record| record.user == USER && record.resource == "secrets" && record.verb == "update"))
    })
    .await?;
    operator.stop().await?;
    agents.stop().await?;
    asked.extend(server.recorder().take());
    asked.retain(|record| record.user == USER);
    let granted = grants()?;
    let refused: Vec<&Record> =
        asked.iter().filter(|record| !granted.iter().any(|grant| grant.allows(record))).collect();
    // an apply that makes an object needs to be allowed both
    let is_for_apply = |grant: &Grant| {
        let patch = Grant { verb: "patch".to_owned(), ..grant.clone() };
        grant.verb == "create" && asked.iter().any(|record| patch.allows(record))
    };
    let is_used = |grant: &Grant| asked.iter().any(|record| grant.allows(record)) || is_for_apply(grant);
    let unused: Vec<&Grant> = granted.iter().filter(|grant| !is_used(grant)).collect();
    assert!(
        refused.is_empty() && unused.is_empty(),
        "asked for and not granted: {refused:#?}\ngranted and not asked for: {unused:#?}"
    );
    Ok(())
}

/// A client in this process that is this user.
fn client_of(server: &ApiServer, user: &str) -> Client {
    let identity = Identity { common_name: user.to_owned(), organizations: vec!["system:masters".to_owned()] };
    let (server, identity) = (server.clone(), Arc::new(identity));
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (server, identity) = (server.clone(), identity.clone());
        async move {
            let (head, body) = request.into_parts();
            let bytes = body.collect().await?.to_bytes();
            let body = Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
            Ok::<_, kube::Error>(server.answer(Request::from_parts(head, body), Some(&identity)).await)
        }
    });
    Client::new(service, "default")
}

/// What an administrator installs before the operator starts.
async fn prepare(admin: &Client) -> anyhow::Result<()> {
    portolan_control::install::definitions(admin).await?;
    // Kinds that not every cluster has, so that they are watched.
    for definition in portolan_api::ovn_crds() {
        portolan_testkit::install_definition(admin.clone(), definition).await?;
    }
    let multus = serde_json::from_value(crate::gateway::deployments::multus())?;
    portolan_testkit::install_definition(admin.clone(), multus).await?;
    for (group, kind, plural) in [
        ("crd.projectcalico.org", "IPPool", "ippools"),
        ("networking.k8s.io", "ServiceCIDR", "servicecidrs"),
        ("config.openshift.io", "Network", "networks"),
    ] {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.{group}"),
                "annotations": { "api-approved.kubernetes.io": "unapproved, stands in for the real one" }
            },
            "spec": {
                "group": group, "scope": "Cluster",
                "names": { "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List") },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true
                } } }]
            }
        });
        let definition: CustomResourceDefinition = serde_json::from_value(definition)?;
        portolan_testkit::install_definition(admin.clone(), definition).await?;
    }
    builders::create(&Api::all(admin.clone()), &builders::namespace(NAMESPACE).build()).await?;
    network_plugin(admin, "OpenShiftSDN").await?;
    let nowhere = |path: &str| WebhookClientConfig {
        url: Some(format!("https://127.0.0.1:1{path}")),
        ..WebhookClientConfig::default()
    };
    for admission in CAPABILITIES.iter().filter_map(|capability| capability.admission) {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(admin.clone());
        configure(&api, serde_json::to_value(admission.validating(nowhere))?).await?;
        let api: Api<MutatingWebhookConfiguration> = Api::all(admin.clone());
        configure(&api, serde_json::to_value(admission.mutating(nowhere))?).await?;
    }
    Ok(())
}

/// Creates a webhook configuration that has hooks. The operator publishes its CA there; that nobody answers at the
/// address must not stop this test's own requests.
async fn configure<K>(api: &Api<K>, mut configuration: Value) -> anyhow::Result<()>
where
    K: Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    let hooks = configuration["webhooks"].as_array_mut().map(Vec::as_mut_slice).unwrap_or_default();
    if hooks.is_empty() {
        return Ok(());
    }
    for hook in hooks {
        hook["failurePolicy"] = json!("Ignore");
        hook["objectSelector"] = json!({ "matchLabels": { "nobody": "has-this" } });
    }
    api.create(&PostParams::default(), &serde_json::from_value(configuration)?).await?;
    Ok(())
}

/// As `portolan operator` runs it, with election and webhook.
fn operator(client: &Client, rest: SocketAddr) -> anyhow::Result<(Process, webhook::Handle)> {
    let election = lease::Options::of_operator(NAMESPACE, "test");
    let admissions = || CAPABILITIES.iter().filter_map(|capability| capability.admission);
    let config = webhook::Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        names: vec!["portolan-webhook.portolan.svc".to_owned()],
        client_ca: None,
        secret_namespace: NAMESPACE.to_owned(),
        secret_name: "portolan-webhook".to_owned(),
        validating: admissions().filter(|one| !one.validating.is_empty()).map(|one| one.name.to_owned()).collect(),
        mutating: admissions().filter(|one| !one.mutating.is_empty()).map(|one| one.name.to_owned()).collect(),
        schedule: webhook::Schedule::default(),
        linger: Duration::ZERO,
    };
    let cloud = CloudSource::Memory(Arc::new(openshift::cloud(IPAM_NODES)?));
    let platform = Platform { namespace: NAMESPACE.to_owned(), cloud, ..Platform::default() };
    let starters: Result<Vec<_>, _> = CAPABILITIES
        .iter()
        .map(|capability| {
            let command = (capability.options)(clap::Command::new(capability.name).no_binary_name(true));
            let rest = format!("--gateway-rest-plain-listen={rest}");
            let flags: &[&str] = match capability.name {
                "mirror" => &["--mirror-allow-loopback-remotes"],
                "gateway" => &[
                    &rest,
                    "--gateway-envoy-image=envoy:test",
                    "--gateway-multus",
                    "--gateway-xds-listen=127.0.0.1:0",
                    "--gateway-drain=1s",
                ],
                // nobody listens there, and that is enough: what it asks the API server for is all the same
                "gateway-client" => &["--gateway-client-url", "http://127.0.0.1:1/api/egw/accounts/a/groups/g"],
                _ => Default::default(),
            };
            (capability.configure)(&command.get_matches_from(flags), &platform)
        })
        .collect();
    let (starters, mut started) = (starters?, Ok(None));
    let process =
        Process::start(client.clone(), Options { election: Some(election), ..options() }, |ctx, registry| {
            started = portolan_control::start(starters, Some(config), ctx, registry);
        })?;
    Ok((process, started?.context("the webhook was asked for")?))
}

/// Gives the operator a reason for everything it can do.
async fn everything(admin: &Client) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(admin.clone());
    for name in ["n1", "n2"] {
        builders::create(&nodes, &builders::node(name).label("egress", "true").build()).await?;
    }
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "default");
    builders::create(&pods, &builders::pod("default", "web").label("app", "web").on("n1").ip("10.40.0.1").build())
        .await?;
    let gateways: Api<EgressGateway> = Api::all(admin.clone());
    let pool = json!({ "ippools": { "ipv4": ["10.6.1.60-10.6.1.61"] }, "nodeSelector": selector() });
    create(&gateways, "eg1", pool).await?;
    let (policies, cluster_policies): (Api<EgressPolicy>, Api<EgressClusterPolicy>) =
        (Api::namespaced(admin.clone(), "default"), Api::all(admin.clone()));
    let spec = json!({ "egressGatewayName": "eg1", "egressIP": { "allocatorPolicy": "rr" }, "appliedTo": app("web") });
    create(&policies, "web", spec.clone()).await?;
    create(&cluster_policies, "all", spec).await?;
    let claims: Api<AddressClaim> = Api::all(admin.clone());
    let count = async || -> anyhow::Result<usize> { Ok(claims.list(&ListParams::default()).await?.items.len()) };
    eventually("two addresses are held", async || Ok(count().await? == 2)).await?;
    let (slices, cluster_slices): (Api<EgressEndpointSlice>, Api<EgressClusterEndpointSlice>) =
        (Api::all(admin.clone()), Api::all(admin.clone()));
    let sliced = async || -> anyhow::Result<(usize, usize)> {
        let (one, two) =
            (slices.list(&ListParams::default()).await?, cluster_slices.list(&ListParams::default()).await?);
        Ok((one.items.len(), two.items.len()))
    };
    eventually("the pod is listed twice", async || Ok(sliced().await? == (1, 1))).await?;
    pods.delete("web", &DeleteParams::default().grace_period(0)).await?;
    eventually("the slices are gone", async || Ok(sliced().await? == (0, 0))).await?;
    // A tunnel of the original has a finalizer, and its node goes.
    let tunnels: Api<EgressTunnel> = Api::all(admin.clone());
    let finalizer = Patch::Merge(json!({ "metadata": { "finalizers": ["egressgateway.spidernet.io/egresstunnel"] } }));
    tunnels.patch("n2", &PatchParams::default(), &finalizer).await?;
    nodes.delete("n2", &DeleteParams::default()).await?;
    eventually("its tunnel is gone", async || Ok(tunnels.get_opt("n2").await?.is_none())).await?;
    policies.delete("web", &DeleteParams::default()).await?;
    cluster_policies.delete("all", &DeleteParams::default()).await?;
    eventually("no address is held", async || Ok(count().await? == 0)).await?;
    gateways.delete("eg1", &DeleteParams::default()).await?;
    eventually("the gateway is gone", async || Ok(gateways.get_opt("eg1").await?.is_none())).await?;
    let leases: Api<Lease> = Api::namespaced(admin.clone(), NAMESPACE);
    let version = leases.get("portolan-operator").await?.metadata.resource_version;
    eventually("the lease is renewed", async || {
        Ok(leases.get("portolan-operator").await?.metadata.resource_version != version)
    })
    .await
}

/// The same for ipam: a namespace gets addresses, and gives them back.
async fn everything_of_ipam(admin: &Client) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(admin.clone());
    for number in 1..=IPAM_NODES {
        let node = builders::node(&format!("node-{number}"))
            .label("node-role.kubernetes.io/worker", "")
            .label("topology.kubernetes.io/zone", openshift::zone(number));
        let mut node = serde_json::to_value(node.build())?;
        node["spec"]["providerID"] = json!(openshift::provider_id(number));
        builders::create(&nodes, &serde_json::from_value::<Node>(node)?).await?;
    }
    make_namespace(admin, "leaving").await?;
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    let asks = |value: Value| {
        let annotations = json!({ "egressip-ipam-operator.redhat-cop.io/egressipam": value });
        Patch::Merge(json!({ "metadata": { "annotations": annotations } }))
    };
    namespaces.patch("leaving", &PatchParams::default(), &asks(json!("yes"))).await?;
    let list = "egressip-ipam-operator.redhat-cop.io/egressips";
    let is_listed = async || -> anyhow::Result<bool> {
        Ok(namespaces.get("leaving").await?.metadata.annotations.unwrap_or_default().contains_key(list))
    };
    eventually("the namespace has addresses", async || is_listed().await).await?;
    namespaces.patch("leaving", &PatchParams::default(), &asks(Value::Null)).await?;
    eventually("it has none", async || Ok(!is_listed().await?)).await
}

/// The same with OVN-Kubernetes.
async fn everything_of_ipam_with_ovn(admin: &Client) -> anyhow::Result<()> {
    network_plugin(admin, "OVNKubernetes").await?;
    make_namespace(admin, "flying").await?;
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    let annotate = async |annotations: Value| {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        namespaces.patch("flying", &PatchParams::default(), &patch).await
    };
    annotate(json!({ "egressip-ipam-operator.redhat-cop.io/egressipam": "yes" })).await?;
    let private_ips: Api<CloudPrivateIpConfig> = Api::all(admin.clone());
    let asked = json!({
        "apiVersion": "cloud.network.openshift.io/v1", "kind": "CloudPrivateIPConfig",
        "metadata": { "name": "10.6.32.90" }, "spec": { "node": "node-1" },
    });
    private_ips.create(&PostParams::default(), &serde_json::from_value(asked)?).await?;
    eventually("an address of OVN-Kubernetes is attached", async || {
        let status = private_ips.get("10.6.32.90").await?.status.unwrap_or_default();
        Ok(status.conditions.iter().any(|one| one.status == "True"))
    })
    .await?;
    let egress_ips: Api<EgressIp> = Api::all(admin.clone());
    eventually("the namespace has an EgressIP", async || Ok(egress_ips.get_opt("flying").await?.is_some())).await?;
    let wanted = ["10.6.32.77", "10.6.33.77"];
    annotate(json!({ "egressip-ipam-operator.redhat-cop.io/egressips": wanted.join(",") })).await?;
    let is_as_wanted = async || -> anyhow::Result<bool> {
        Ok(egress_ips.get_opt("flying").await?.is_some_and(|found| found.spec.egress_ips == wanted))
    };
    eventually("it has other addresses", async || is_as_wanted().await).await?;
    let edited = Patch::Merge(json!({ "spec": { "egressIPs": [wanted[0]] } }));
    egress_ips.patch("flying", &PatchParams::default(), &edited).await?;
    eventually("an edit is undone", async || is_as_wanted().await).await?;
    annotate(json!({ "egressip-ipam-operator.redhat-cop.io/egressipam": null })).await?;
    eventually("it has none", async || Ok(egress_ips.get_opt("flying").await?.is_none())).await
}

/// The same for the gateway: a tenant with everything, which goes with its account.
async fn everything_of_the_gateway(admin: &Client, rest: SocketAddr) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    eventually("the provider's namespace is there", async || Ok(namespaces.get_opt("egw").await?.is_some())).await?;
    let prefixes: Api<ServicePrefix> = Api::namespaced(admin.clone(), "egw");
    create(&prefixes, "default", json!({ "subnet": "192.0.2.0/24", "pool": "192.0.2.0/28" })).await?;
    let node_configs: Api<NodeConfig> = Api::namespaced(admin.clone(), "egw");
    create(&node_configs, "default", json!({ "base": { "gue-endpoint": { "egw-address": "198.51.100.1" } } })).await?;
    let accounts: Api<Account> = Api::namespaced(admin.clone(), "egw");
    create(&accounts, "acme", json!({})).await?;
    eventually("the account has a namespace", async || Ok(namespaces.get_opt("egw-acme").await?.is_some())).await?;
    let groups: Api<ServiceGroup> = Api::namespaced(admin.clone(), "egw-acme");
    create(&groups, "sample", json!({ "service-prefix": "egw/default", "auth-creds": "secret" })).await?;
    let balancers: Api<LoadBalancer> = Api::namespaced(admin.clone(), "egw-acme");
    create(&balancers, "web", json!({ "service-group": "sample", "public-ports": [{ "port": 80 }] })).await?;
    let endpoints: Api<Endpoint> = Api::namespaced(admin.clone(), "egw-acme");
    let spec = json!({
        "load-balancer": "web", "address": "10.1.0.1", "node-address": "10.0.0.1", "port": { "port": 8080 },
    });
    create(&endpoints, "web-1", spec).await?;
    // as the original left them
    let finalizer = Patch::Merge(json!({ "metadata": { "finalizers": ["egw.acnodal.io/endpointFinalizer"] } }));
    endpoints.patch("web-1", &PatchParams::default(), &finalizer).await?;
    eventually("the load balancer has a tunnel, and the endpoint no finalizer", async || {
        let tunnels = balancers.get("web").await?.status.is_some_and(|status| !status.gue_tunnel_endpoints.is_empty());
        Ok(tunnels && endpoints.get("web-1").await?.metadata.finalizers.unwrap_or_default().is_empty())
    })
    .await?;
    everything_of_rest(admin, rest).await?;
    // a holder that is gone: the API server itself is asked
    let holder = json!({ "kind": "LoadBalancer", "namespace": "egw-acme", "name": "gone", "uid": "gone", "ports": [] });
    let section = json!({ "address": "192.0.2.9", "prefixRef": "egw/default", "holders": [holder] });
    let claims: Api<AddressClaim> = Api::all(admin.clone());
    create(&claims, "192.0.2.9", json!({ "gateway": section })).await?;
    eventually("the address is released", async || {
        let section = claims.get_opt("192.0.2.9").await?.and_then(|claim| claim.spec.gateway);
        Ok(section.is_none_or(|section| section.holders.is_empty()))
    })
    .await?;
    let confirmed = json!({ "metadata": { "annotations": { "portolan.dev/delete-with-contents": "true" } } });
    accounts.patch("acme", &PatchParams::default(), &Patch::Merge(confirmed)).await?;
    accounts.delete("acme", &DeleteParams::default()).await?;
    let gone = eventually("account and namespace are gone", async || {
        Ok(accounts.get_opt("acme").await?.is_none() && namespaces.get_opt("egw-acme").await?.is_none())
    });
    tokio::select! {
        gone = gone => gone,
        () = Namespaces.run(admin.clone(), CancellationToken::new()) => anyhow::bail!("it runs until it is stopped"),
    }
}

/// What REST clients do.
async fn everything_of_rest(admin: &Client, rest: SocketAddr) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "egw-acme");
    let users = format!("tenant:{}", bcrypt::hash("secret", 4)?);
    let users = json!({ "metadata": { "name": "api-users" }, "stringData": { "auth": users } });
    secrets.create(&PostParams::default(), &serde_json::from_value(users)?).await?;
    let basic = "Basic dGVuYW50OnNlY3JldA==";
    let account = "/api/egw/accounts/acme";
    let service =
        json!({ "service": { "metadata": { "name": "rest" }, "spec": { "public-ports": [{ "port": 81 }] } } });
    let endpoint = |name: &str| {
        let port = json!({ "name": name, "port": 8081, "protocol": "TCP" });
        json!({ "endpoint": { "spec": { "address": "10.1.0.2", "node-address": "10.0.0.1", "port": port } } })
    };
    let endpoints = format!("{account}/services/rest/endpoints");
    for (method, path, login, body, code) in [
        ("POST", format!("{account}/groups/sample/services"), basic, service, "302"),
        ("PUT", format!("{endpoints}/one"), basic, endpoint(""), "201"),
        ("PUT", format!("{endpoints}/one"), basic, endpoint("http"), "200"),
        ("DELETE", format!("{endpoints}/one"), basic, Value::Null, "200"),
        ("DELETE", format!("{account}/services/rest"), basic, Value::Null, "200"),
        ("GET", account.to_owned(), "Bearer unknown", Value::Null, "401"),
    ] {
        let answer = send(rest, method, &path, login, &body).await?;
        anyhow::ensure!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{method} {path}: {answer}");
    }
    Ok(())
}

async fn send(to: SocketAddr, method: &str, path: &str, login: &str, body: &Value) -> anyhow::Result<String> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut stream = tokio::net::TcpStream::connect(to).await?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: gateway\r\nauthorization: {login}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Says which network plugin the cluster has.
async fn network_plugin(admin: &Client, name: &str) -> anyhow::Result<()> {
    let networks: Api<NetworkConfig> = Api::all(admin.clone());
    let network = json!({
        "apiVersion": "config.openshift.io/v1", "kind": "Network", "metadata": { "name": "cluster" },
        "status": { "networkType": name },
    });
    networks.patch("cluster", &PatchParams::apply("test").force(), &Patch::Apply(network)).await?;
    Ok(())
}

/// The same for the mesh: all four kinds in force on a proxy, and generated objects that come, change and go.
async fn everything_of_the_mesh(admin: &Client) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let address = fresh_address();
    let _proxy = run_proxy("gateway", address, SIDECAR, folder.path())?;
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "default");
    let pod = builders::pod("default", "gateway").label("app", "gateway").label("l7mp.io/proxy", "true");
    builders::create(&pods, &pod.ip(&address.to_string()).build()).await?;
    let (services, routes): (Api<VirtualService>, Api<Route>) =
        (Api::namespaced(admin.clone(), "default"), Api::namespaced(admin.clone(), "default"));
    let (targets, rules): (Api<Target>, Api<Rule>) =
        (Api::namespaced(admin.clone(), "default"), Api::namespaced(admin.clone(), "default"));
    let naked: Api<Service> = Api::namespaced(admin.clone(), "default");
    let worker = json!({ "selector": { "app": "worker" }, "ports": [{ "protocol": "UDP", "port": 9999 }] });
    create(&naked, "worker", worker).await?;
    let gateway = json!({ "matchLabels": { "app": "gateway" } });
    let echo = json!({ "route": { "destination": { "spec": { "protocol": "Echo" } } } });
    create(&routes, "way", json!({ "destination": "worker" })).await?;
    create(&targets, "own", json!({ "selector": gateway, "cluster": { "spec": { "protocol": "Echo" } } })).await?;
    let listener = json!({ "protocol": "UDP", "port": 9001 });
    let way = json!([{ "action": { "route": "way" } }]);
    create(&services, "gateway", json!({ "selector": gateway, "listener": listener, "rules": way })).await?;
    let rulelist = "gateway.default.virtualservice.cluster.local";
    create(&rules, "more", json!({ "selector": gateway, "rulelist": rulelist, "rule": { "action": echo } })).await?;
    let is_told =
        |metadata: &ObjectMeta| metadata.annotations.iter().flatten().any(|(key, _)| key == "operator.l7mp.io/applied");
    eventually("each of them was told that it is in force", async || {
        Ok(is_told(&services.get("gateway").await?.metadata)
            && is_told(&routes.get("way").await?.metadata)
            && is_told(&targets.get("own").await?.metadata)
            && is_told(&rules.get("more").await?.metadata))
    })
    .await?;
    let port = Patch::Merge(json!({ "spec": { "ports": [{ "protocol": "UDP", "port": 9998 }] } }));
    naked.patch("worker", &PatchParams::default(), &port).await?;
    eventually("what was generated follows", async || {
        let (service, target) = (services.get("worker").await?, targets.get("worker").await?);
        Ok(service.spec.0["listener"]["port"] == 9998 && target.spec.0["cluster"]["spec"]["port"] == 9998)
    })
    .await?;
    routes.delete("way", &DeleteParams::default()).await?;
    eventually("what nobody names is gone", async || {
        Ok(services.get_opt("worker").await?.is_none() && targets.get_opt("worker").await?.is_none())
    })
    .await
}

async fn create<K>(api: &Api<K>, name: &str, spec: Value) -> anyhow::Result<()>
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    let object = json!({ "metadata": { "name": name }, "spec": spec });
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

/// One verb on one resource, in one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Grant {
    /// None: everywhere.
    namespace: Option<String>,
    group: String,
    resource: String,
    verb: String,
    /// None: any name.
    name: Option<String>,
}

impl Grant {
    fn allows(&self, record: &Record) -> bool {
        let resource = match record.subresource.as_str() {
            "" => record.resource.clone(),
            subresource => format!("{}/{subresource}", record.resource),
        };
        self.namespace.as_ref().is_none_or(|namespace| *namespace == record.namespace)
            && (self.group.as_str(), self.resource.as_str(), self.verb.as_str())
                == (record.group.as_str(), resource.as_str(), record.verb.as_str())
            && self.name.as_ref().is_none_or(|name| *name == record.name)
    }
}

/// Gives the mirror a reason for everything it can do.
async fn everything_of_the_mirror(admin: &Client) -> anyhow::Result<()> {
    let remote = Server::start(Backend::Embedded).await?;
    for namespace in ["kube-system", "shop"] {
        make_namespace(&remote.client, namespace).await?;
    }
    let nodes = Api::<Node>::all(remote.client.clone());
    let node = |name: &str, address: &str| {
        let status = json!({
            "conditions": [{ "type": "Ready", "status": "True" }],
            "addresses": [{ "type": "InternalIP", "address": address }],
        });
        serde_json::from_value::<Node>(json!({ "metadata": { "name": name }, "status": status }))
    };
    nodes.create(&PostParams::default(), &node("n1", "10.91.0.1")?).await?;
    let sources = Api::<Service>::namespaced(remote.client.clone(), "shop");
    let spec = json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": 30080 }] });
    let source = json!({ "metadata": { "name": "web" }, "spec": spec });
    sources.create(&PostParams::default(), &serde_json::from_value(source)?).await?;
    let secrets = Api::<Secret>::namespaced(admin.clone(), NAMESPACE);
    let kubeconfig = std::fs::read_to_string(&remote.kubeconfig)?;
    let secret = json!({ "metadata": { "name": "east" }, "stringData": { "kubeconfig": kubeconfig } });
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    // Endpoints of Barrelman on a Service that asks for endpoints.
    let labels = json!({ "tfw.io/barrelman": "true" });
    let here = |namespace: &str| Api::<Service>::namespaced(admin.clone(), namespace);
    let hand = json!({
        "metadata": { "name": "hand", "labels": labels }, "spec": { "ports": [{ "port": 80, "targetPort": 30080 }] },
    });
    here("default").create(&PostParams::default(), &serde_json::from_value(hand)?).await?;
    let endpoints = Api::<Endpoints>::namespaced(admin.clone(), "default");
    let old = json!({ "metadata": { "name": "hand", "labels": labels } });
    endpoints.create(&PostParams::default(), &serde_json::from_value(old)?).await?;
    let remotes = Api::<RemoteCluster>::all(admin.clone());
    let east = json!({
        "apiVersion": "portolan.dev/v1alpha1", "kind": "RemoteCluster", "metadata": { "name": "east" },
        "spec": {
            "credentials": { "kubeconfigSecret": { "name": "east" } },
            "addresses": { "allowedCIDRs": ["10.91.0.0/16"] },
            "adoptBarrelman": true,
        },
    });
    remotes.create(&PostParams::default(), &serde_json::from_value(east)?).await?;
    let mirrors = here("shop");
    eventually("a source is mirrored", async || Ok(mirrors.get_opt("web").await?.is_some())).await?;
    eventually("old Endpoints go", async || Ok(endpoints.get_opt("hand").await?.is_none())).await?;
    nodes.create(&PostParams::default(), &node("n2", "10.91.0.2")?).await?;
    let slices = Api::<EndpointSlice>::namespaced(admin.clone(), "default");
    let of_hand = ListParams::default().labels("kubernetes.io/service-name=hand");
    eventually("a slice is replaced", async || {
        let slices = slices.list(&of_hand).await?;
        Ok(slices.items.iter().flat_map(|slice| slice.endpoints.iter().flatten()).count() == 2)
    })
    .await?;
    let unlabelled = Patch::Merge(json!({ "metadata": { "labels": { "tfw.io/barrelman": null } } }));
    here("default").patch("hand", &PatchParams::default(), &unlabelled).await?;
    eventually("slices go", async || Ok(slices.list(&of_hand).await?.items.is_empty())).await?;
    let node_ports = Patch::Merge(json!({ "spec": { "mirrorType": "NodePort" } }));
    remotes.patch("east", &PatchParams::default(), &node_ports).await?;
    eventually("a mirror is changed", async || {
        Ok(mirrors.get("web").await?.spec.is_some_and(|spec| spec.type_.as_deref() == Some("NodePort")))
    })
    .await?;
    let old_and_shared = Patch::Merge(json!({ "spec": { "writeEndpoints": true, "mcs": { "enabled": true } } }));
    remotes.patch("east", &PatchParams::default(), &old_and_shared).await?;
    let written = Api::<Endpoints>::namespaced(admin.clone(), "shop");
    eventually("Endpoints are made", async || Ok(written.get_opt("web").await?.is_some())).await?;
    nodes.create(&PostParams::default(), &node("n3", "10.91.0.3")?).await?;
    eventually("Endpoints are replaced", async || {
        let subsets = written.get("web").await?.subsets.unwrap_or_default();
        Ok(subsets.iter().flat_map(|subset| subset.addresses.iter().flatten()).count() == 3)
    })
    .await?;
    let shared = json!({ "metadata": { "name": "shared" }, "spec": { "ports": [{ "port": 80 }] } });
    here("shop").create(&PostParams::default(), &serde_json::from_value(shared)?).await?;
    let exports = Api::<ServiceExport>::namespaced(admin.clone(), "shop");
    exports.create(&PostParams::default(), &ServiceExport::new("shared", ServiceExportSpec::default())).await?;
    let imports = Api::<ServiceImport>::namespaced(admin.clone(), "shop");
    eventually("a Service is shared", async || {
        let import = imports.get_opt("shared").await?;
        let is_ready = import
            .and_then(|import| import.status)
            .is_some_and(|status| status.conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True"));
        Ok(is_ready && exports.get("shared").await?.status.is_some())
    })
    .await?;
    exports.delete("shared", &DeleteParams::default()).await?;
    eventually("it is shared no more", async || Ok(imports.get_opt("shared").await?.is_none())).await?;
    remotes.delete("east", &DeleteParams::default()).await?;
    eventually("mirrors go with their remote", async || Ok(mirrors.get_opt("web").await?.is_none())).await
}

fn grants() -> anyhow::Result<BTreeSet<Grant>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/manifests/rbac.yaml");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(file)?)?;
    let mut grants = BTreeSet::new();
    for document in documents {
        let rules: Vec<PolicyRule> = serde_json::from_value(document["rules"].clone()).unwrap_or_default();
        let namespace = document["metadata"]["namespace"].as_str().map(str::to_owned);
        for rule in rules {
            anyhow::ensure!(rule.non_resource_urls.is_none(), "paths are not granted: {rule:?}");
            let names: Vec<Option<String>> = match rule.resource_names {
                Some(names) => names.into_iter().map(Some).collect(),
                None => vec![None],
            };
            for (group, resource) in rule
                .api_groups
                .iter()
                .flatten()
                .flat_map(|group| rule.resources.iter().flatten().map(move |resource| (group, resource)))
            {
                for (verb, name) in rule.verbs.iter().flat_map(|verb| names.iter().map(move |name| (verb, name))) {
                    grants.insert(Grant {
                        namespace: namespace.clone(),
                        group: group.clone(),
                        resource: resource.clone(),
                        verb: verb.clone(),
                        name: name.clone(),
                    });
                }
            }
        }
    }
    Ok(grants)
}
