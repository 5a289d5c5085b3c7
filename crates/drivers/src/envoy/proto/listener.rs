//! Listeners and their filters.

use prost::Message;

use super::{Address, Any, Duration, named};

/// `envoy.config.listener.v3.Listener`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Listener {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) address: Option<Address>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) filter_chains: Vec<FilterChain>,
    #[prost(message, repeated, tag = "9")]
    pub(crate) listener_filters: Vec<ListenerFilter>,
    #[prost(message, optional, tag = "11")]
    pub(crate) freebind: Option<bool>,
    #[prost(message, optional, tag = "18")]
    pub(crate) udp_listener_config: Option<UdpListenerConfig>,
    #[prost(message, optional, tag = "29")]
    pub(crate) enable_reuse_port: Option<bool>,
}
named!(Listener, "envoy.config.listener.v3", "Listener");

/// `envoy.config.listener.v3.FilterChain`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FilterChain {
    #[prost(message, repeated, tag = "3")]
    pub(crate) filters: Vec<Filter>,
}

/// `envoy.config.listener.v3.Filter`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Filter {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) typed_config: Option<Any>,
}

/// `envoy.config.listener.v3.ListenerFilter`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListenerFilter {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) typed_config: Option<Any>,
}

/// `envoy.config.listener.v3.UdpListenerConfig`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct UdpListenerConfig {
    #[prost(message, optional, tag = "5")]
    pub(crate) downstream_socket_config: Option<UdpSocketConfig>,
}

/// `envoy.config.core.v3.UdpSocketConfig`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct UdpSocketConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) max_rx_datagram_size: Option<u64>,
}

/// `envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TcpProxy {
    #[prost(string, tag = "1")]
    pub(crate) stat_prefix: String,
    #[prost(string, tag = "2")]
    pub(crate) cluster: String,
    #[prost(message, optional, tag = "7")]
    pub(crate) max_connect_attempts: Option<u32>,
    #[prost(message, optional, tag = "8")]
    pub(crate) idle_timeout: Option<Duration>,
}
named!(TcpProxy, "envoy.extensions.filters.network.tcp_proxy.v3", "TcpProxy");

/// `envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct UdpProxyConfig {
    #[prost(string, tag = "1")]
    pub(crate) stat_prefix: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) idle_timeout: Option<Duration>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) hash_policies: Vec<HashPolicy>,
    #[prost(message, optional, tag = "6")]
    pub(crate) upstream_socket_config: Option<UdpSocketConfig>,
    #[prost(message, optional, tag = "9")]
    pub(crate) matcher: Option<Matcher>,
}
named!(UdpProxyConfig, "envoy.extensions.filters.udp.udp_proxy.v3", "UdpProxyConfig");

/// `envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.HashPolicy`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct HashPolicy {
    #[prost(bool, tag = "1")]
    pub(crate) source_ip: bool,
}

/// `envoy.extensions.filters.udp.udp_proxy.v3.Route`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Route {
    #[prost(string, tag = "1")]
    pub(crate) cluster: String,
}
named!(Route, "envoy.extensions.filters.udp.udp_proxy.v3", "Route");

/// `xds.type.matcher.v3.Matcher`, of which only the answer without any condition is needed.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Matcher {
    #[prost(message, optional, tag = "3")]
    pub(crate) on_no_match: Option<OnMatch>,
}

/// `xds.type.matcher.v3.Matcher.OnMatch`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct OnMatch {
    #[prost(message, optional, tag = "2")]
    pub(crate) action: Option<TypedExtensionConfig>,
}

/// `xds.core.v3.TypedExtensionConfig`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TypedExtensionConfig {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) typed_config: Option<Any>,
}
