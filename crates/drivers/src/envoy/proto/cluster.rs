//! Clusters and their endpoints.

use prost::Message;

use super::{Address, Duration, named};

/// `envoy.config.cluster.v3.Cluster`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Cluster {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(enumeration = "DiscoveryType", tag = "2")]
    pub(crate) discovery_type: i32,
    #[prost(message, optional, tag = "3")]
    pub(crate) eds_cluster_config: Option<EdsClusterConfig>,
    #[prost(message, optional, tag = "4")]
    pub(crate) connect_timeout: Option<Duration>,
    #[prost(enumeration = "LbPolicy", tag = "6")]
    pub(crate) lb_policy: i32,
    #[prost(message, optional, tag = "10")]
    pub(crate) circuit_breakers: Option<CircuitBreakers>,
    #[prost(message, optional, tag = "19")]
    pub(crate) outlier_detection: Option<OutlierDetection>,
}
named!(Cluster, "envoy.config.cluster.v3", "Cluster");

/// `envoy.config.cluster.v3.Cluster.DiscoveryType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum DiscoveryType {
    Static = 0,
    Eds = 3,
}

/// `envoy.config.cluster.v3.Cluster.LbPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum LbPolicy {
    RoundRobin = 0,
    Maglev = 5,
}

/// `envoy.config.cluster.v3.Cluster.EdsClusterConfig`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct EdsClusterConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) eds_config: Option<ConfigSource>,
}

/// `envoy.config.core.v3.ConfigSource`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct ConfigSource {
    #[prost(message, optional, tag = "3")]
    pub(crate) ads: Option<AggregatedConfigSource>,
    /// 2 is version 3.
    #[prost(int32, tag = "6")]
    pub(crate) resource_api_version: i32,
}

/// `envoy.config.core.v3.AggregatedConfigSource`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct AggregatedConfigSource {}

/// `envoy.config.cluster.v3.CircuitBreakers`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CircuitBreakers {
    #[prost(message, repeated, tag = "1")]
    pub(crate) thresholds: Vec<Thresholds>,
}

/// `envoy.config.cluster.v3.CircuitBreakers.Thresholds`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Thresholds {
    #[prost(message, optional, tag = "2")]
    pub(crate) max_connections: Option<u32>,
    #[prost(message, optional, tag = "3")]
    pub(crate) max_pending_requests: Option<u32>,
    #[prost(message, optional, tag = "4")]
    pub(crate) max_requests: Option<u32>,
    #[prost(message, optional, tag = "5")]
    pub(crate) max_retries: Option<u32>,
}

/// `envoy.config.cluster.v3.OutlierDetection`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct OutlierDetection {
    #[prost(message, optional, tag = "2")]
    pub(crate) interval: Option<Duration>,
    #[prost(message, optional, tag = "3")]
    pub(crate) base_ejection_time: Option<Duration>,
    #[prost(message, optional, tag = "4")]
    pub(crate) max_ejection_percent: Option<u32>,
    #[prost(bool, tag = "12")]
    pub(crate) split_external_local_origin_errors: bool,
    #[prost(message, optional, tag = "13")]
    pub(crate) consecutive_local_origin_failure: Option<u32>,
}

/// `envoy.config.endpoint.v3.ClusterLoadAssignment`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ClusterLoadAssignment {
    #[prost(string, tag = "1")]
    pub(crate) cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) endpoints: Vec<LocalityLbEndpoints>,
}
named!(ClusterLoadAssignment, "envoy.config.endpoint.v3", "ClusterLoadAssignment");

/// `envoy.config.endpoint.v3.LocalityLbEndpoints`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LocalityLbEndpoints {
    #[prost(message, repeated, tag = "2")]
    pub(crate) lb_endpoints: Vec<LbEndpoint>,
}

/// `envoy.config.endpoint.v3.LbEndpoint`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LbEndpoint {
    #[prost(message, optional, tag = "1")]
    pub(crate) endpoint: Option<Endpoint>,
}

/// `envoy.config.endpoint.v3.Endpoint`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Endpoint {
    #[prost(message, optional, tag = "1")]
    pub(crate) address: Option<Address>,
}
