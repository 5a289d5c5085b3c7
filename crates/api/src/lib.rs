//! The Kubernetes kinds that Portolan serves and reads, as they are on the wire.
//!
//! Five older systems keep their formats, and what is new lives in `portolan.dev/v1alpha1`:
//!
//! | capability | group | kinds |
//! |---|---|---|
//! | gateway | `egw.acnodal.io/v1` | EGW, Account, ServicePrefix, ServiceGroup, LoadBalancer, Endpoint, NodeConfig |
//! | egress | `egressgateway.spidernet.io/v1beta1` | EgressGateway, EgressPolicy, EgressClusterPolicy, EgressTunnel, EgressEndpointSlice and their kin |
//! | ipam | `network.openshift.io/v1` | NetNamespace, HostSubnet; annotations on Namespaces |
//! | ipam | `cloud.network.openshift.io/v1` | CloudPrivateIPConfig |
//! | ipam | `k8s.ovn.org/v1` | EgressIP |
//! | mirror | `portolan.dev/v1alpha1` | RemoteCluster; a label and an annotation on Services, EndpointSlices |
//! | mirror | `multicluster.x-k8s.io/v1beta1` | ServiceExport, ServiceImport, as Kubernetes defines them |
//! | mesh | `l7mp.io/v1` | VirtualService, Route, Target, Rule |
//! | all | `portolan.dev/v1alpha1` | AddressClaim: one object per address at the edge |
//!
//! Each capability has its kinds, one file per kind. Beside them stand the words that more than one place
//! must spell alike: labels, annotations, finalizers, condition types and reasons.
//!
//! A field's documentation is what `kubectl explain` prints: what the field does, its default, and what empty
//! means. Rules that the API server can check are CEL rules here, with messages that say the fix.
//!
//! This crate does not know `portolan-core`: `control` turns what is written here into checked domain types.
#![warn(missing_docs)]
#![expect(clippy::duplicated_attributes, reason = "kube takes several printer columns as repeated attributes")]

/// Makes a struct with `metadata` a resource, for kinds that kube's derive does not know.
#[macro_export]
macro_rules! resource {
    ($type:ident, $group:expr, $version:expr, $kind:expr, $plural:expr, $scope:ty) => {
        impl ::kube::Resource for $type {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> ::std::borrow::Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> ::std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> ::std::borrow::Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> ::std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &::kube::api::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ::kube::api::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub mod address_claim;
pub mod egress;
pub mod gateway;
pub mod ipam;
pub mod mesh;
pub mod mirror;
mod schema;
pub mod well_known;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// Every custom resource definition of ours, in the order in which they are applied.
pub fn crds() -> Vec<CustomResourceDefinition> {
    [
        address_claim::AddressClaim::crd(),
        egress::EgressGateway::crd(),
        egress::EgressPolicy::crd(),
        egress::EgressClusterPolicy::crd(),
        egress::EgressTunnel::crd(),
        egress::EgressEndpointSlice::crd(),
        egress::EgressClusterEndpointSlice::crd(),
        schema::ruled(
            egress::EgressClusterInfo::crd(),
            "self.metadata.name == 'default'",
            "there is one EgressClusterInfo, and its name is `default`",
        ),
        mesh::VirtualService::crd(),
        mesh::Route::crd(),
        mesh::Target::crd(),
        mesh::Rule::crd(),
        mirror::RemoteCluster::crd(),
    ]
    .into_iter()
    .chain(gateway::crds())
    .map(schema::finished)
    .collect()
}

/// The definitions of the Multi-Cluster Services API. They belong to Kubernetes and not to us, so they are installed only
/// where nobody else has.
pub fn mcs_crds() -> Vec<CustomResourceDefinition> {
    [mirror::ServiceExport::crd(), mirror::ServiceImport::crd()].map(schema::finished).into()
}

/// The definitions of OpenShift's kinds that ipam reads and writes. They belong to OpenShift and not to us, so they are
/// for clusters without it.
pub fn openshift_crds() -> Vec<CustomResourceDefinition> {
    vec![ipam::net_namespace(), ipam::host_subnet(), ipam::cloud_private_ip_config()]
}

/// The definitions of OVN-Kubernetes's kinds that ipam writes addresses to. They belong to OVN-Kubernetes and not to us, so
/// they are for tests: a cluster that serves them and those of OpenShift SDN has no obvious network plugin.
pub fn ovn_crds() -> Vec<CustomResourceDefinition> {
    vec![ipam::egress_ip()]
}
