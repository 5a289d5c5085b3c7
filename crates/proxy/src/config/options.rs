//! Settings: options of listeners and clusters, and the `admin` section.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::transport::udp::config::UdpMode;

/// Options of a listener. Keys that are not here are kept for readers and otherwise ignored.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct ListenerOptions {
    /// Seconds to keep a finished session in lists.
    #[serde(deserialize_with = "super::parse::seconds")]
    pub track: f64,
    /// Seconds without a packet in either direction; zero disables it. Absent: the default of the protocol.
    #[serde(deserialize_with = "super::parse::maybe_seconds")]
    pub idle_timeout: Option<f64>,
    /// Seconds for the handshake of WebSocket, JSONSocket and HTTP.
    #[serde(deserialize_with = "super::parse::seconds")]
    pub setup_timeout: f64,
    pub max_sessions: Option<usize>,
    /// Per address; per /64 for IPv6.
    pub max_sessions_per_source: Option<usize>,
    pub evict: Evict,
    /// Whether labels that a JSONSocket client sends are merged into `/labels`.
    pub import_labels: bool,
    /// Ends sessions when the listener is deleted, even if not recursively.
    #[serde(rename = "removeOrphanSessions")]
    pub remove_orphan_sessions: bool,
    /// Stands for `spec.options.mode`.
    pub mode: Option<UdpMode>,
    pub qos: Option<Qos>,
    pub monitoring: Option<Monitoring>,
}

impl Default for ListenerOptions {
    fn default() -> Self {
        Self {
            track: 0.0,
            idle_timeout: None,
            setup_timeout: 10.0,
            max_sessions: None,
            max_sessions_per_source: None,
            evict: Evict::Refuse,
            import_labels: true,
            remove_orphan_sessions: false,
            mode: None,
            qos: None,
            monitoring: None,
        }
    }
}

/// What happens to a new session at the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Evict {
    #[default]
    Refuse,
    /// The least recently used session is ended.
    Lru,
}

/// Rates and marking; a rate that is absent does not limit.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Qos {
    #[serde(deserialize_with = "super::parse::maybe_rate")]
    pub packets_per_second: Option<f64>,
    #[serde(deserialize_with = "super::parse::maybe_rate")]
    pub bytes_per_second: Option<f64>,
    /// Packets that may come at once; absent: those of one tenth of a second.
    #[serde(deserialize_with = "super::parse::maybe_rate")]
    pub burst: Option<f64>,
    pub per_source: Option<Box<Qos>>,
    #[serde(deserialize_with = "super::parse::dscp")]
    pub dscp: Option<u8>,
    pub drop_policy: DropPolicy,
}

impl Qos {
    /// The DSCP of outgoing packets; 0 unless configured.
    pub fn code_point(&self) -> u8 {
        self.dscp.unwrap_or(0)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DropPolicy {
    #[default]
    Newest,
    Oldest,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Monitoring {
    /// Metadata paths whose values go into the access log, four at most.
    pub labels: Vec<String>,
    pub access_log: Option<bool>,
    #[serde(deserialize_with = "super::parse::maybe_rate")]
    pub sample_ratio: Option<f64>,
}

/// Options of a cluster: circuit breaking, rates, passive health.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClusterOptions {
    /// Stages that are connected or connecting.
    pub max_sessions: Option<usize>,
    /// Stages that connect.
    pub max_pending: Option<usize>,
    /// Stages that wait for another attempt or make one. Retries are a fifth of first attempts at most besides.
    pub max_retries: Option<usize>,
    pub qos: Option<Qos>,
    pub outlier: Outlier,
    /// Kept, not acted on.
    pub health_check: Option<Value>,
}

/// When an endpoint that fails is left alone for a while: one that refuses, resets, cannot be reached or takes too
/// long to connect to.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct Outlier {
    /// Zero: never.
    pub consecutive_failures: u32,
    /// Seconds; doubled at each further ejection, to five minutes.
    #[serde(deserialize_with = "super::parse::seconds")]
    pub eject_for: f64,
    /// Percent of a cluster's endpoints.
    #[serde(deserialize_with = "super::parse::seconds")]
    pub max_ejected: f64,
}

impl Default for Outlier {
    fn default() -> Self {
        Self { consecutive_failures: 3, eject_for: 10.0, max_ejected: 50.0 }
    }
}

/// The `admin` section.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct Admin {
    pub log_level: LogLevel,
    /// `stdout`, `stderr` or a path.
    pub log_file: Option<String>,
    pub access_log_path: Option<PathBuf>,
    /// How much of a client's address the access log shows.
    pub access_log_addresses: Addresses,
    pub strict: bool,
    /// Seconds for sessions to end by themselves after the signal to stop.
    #[serde(deserialize_with = "super::parse::seconds")]
    pub drain_timeout: f64,
    pub workers: Option<usize>,
    pub limits: Limits,
    pub endpoint_policy: EndpointPolicy,
    /// Directories that socket files may lie in.
    pub uds_dirs: Vec<PathBuf>,
    /// The directory that Logger clusters may write in; absent: to standard output alone.
    pub log_dir: Option<PathBuf>,
    pub allow_stdio: bool,
    pub dns: Dns,
    /// Metric clusters also count by session name, for 1000 sessions at most.
    pub metrics_per_session: bool,
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            log_level: LogLevel::Info,
            log_file: None,
            access_log_path: None,
            access_log_addresses: Addresses::Whole,
            strict: false,
            drain_timeout: 10.0,
            workers: None,
            limits: Limits::default(),
            endpoint_policy: EndpointPolicy::default(),
            uds_dirs: vec![PathBuf::from("/var/run"), PathBuf::from("/run")],
            log_dir: None,
            allow_stdio: false,
            dns: Dns::default(),
            metrics_per_session: false,
        }
    }
}

/// How much of an address is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Addresses {
    #[default]
    Whole,
    /// The /24 of IPv4 or the /48 of IPv6.
    Cut,
}

/// l7mp's log levels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Everything
    Silly,
    /// Debugging
    Verbose,
    /// Changes that a user notices
    #[default]
    Info,
    /// Same as info
    Notice,
    /// Degraded, but working
    Warn,
    /// Failures
    Error,
    /// Nothing
    Silent,
}

impl LogLevel {
    /// The level in the words of our own logs.
    pub const fn directive(self) -> &'static str {
        match self {
            Self::Silly => "trace",
            Self::Verbose => "debug",
            Self::Info | Self::Notice => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Silent => "off",
        }
    }

    /// The word on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Silly => "silly",
            Self::Verbose => "verbose",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Silent => "silent",
        }
    }
}

/// How long answers of the name service are kept, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Dns {
    pub ttl_min: u64,
    pub ttl_max: u64,
}

impl Default for Dns {
    fn default() -> Self {
        Self { ttl_min: 5, ttl_max: 300 }
    }
}

/// Bounds on everything that comes from outside. Sizes are bytes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Limits {
    pub body: usize,
    pub object: usize,
    pub json_depth: usize,
    pub name: usize,
    /// Per kind.
    pub objects: usize,
    pub endpoints_per_cluster: usize,
    pub rules_per_list: usize,
    pub predicate_nodes: usize,
    pub regex: usize,
    pub metadata: usize,
    pub jsonsocket_header: usize,
    pub http_head: usize,
    pub http_headers: usize,
    pub ws_message: usize,
    pub sessions: usize,
    pub api_connections: usize,
    /// Milliseconds for one API request.
    pub api_request_ms: u64,
    /// Per worker, all sessions together.
    pub setup_queue: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const KIB: usize = 1024;
        const MIB: usize = 1024 * KIB;
        Self {
            body: 8 * MIB,
            object: MIB,
            json_depth: 32,
            name: 1024,
            objects: 100_000,
            endpoints_per_cluster: 10_000,
            rules_per_list: 10_000,
            predicate_nodes: 1000,
            regex: 4 * KIB,
            metadata: 64 * KIB,
            jsonsocket_header: 8 * KIB,
            http_head: 16 * KIB,
            http_headers: 100,
            ws_message: 16 * MIB,
            sessions: 1_000_000,
            api_connections: 64,
            api_request_ms: 10_000,
            setup_queue: 64 * MIB,
        }
    }
}

/// Which addresses sessions may connect to. Checked at connect time, after names are resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EndpointPolicy {
    /// Comes before every other rule, the built-in ones included.
    pub allow: Vec<IpNet>,
    pub deny: Vec<IpNet>,
    /// Addresses and ports of the API itself; filled in by the process, never from outside.
    #[serde(skip)]
    pub own: Vec<std::net::SocketAddr>,
}

impl EndpointPolicy {
    /// Whether a session may connect there, and if not, why.
    pub fn check(&self, address: IpAddr, port: u16) -> Result<(), &'static str> {
        let address = address.to_canonical();
        if self.own.iter().any(|own| own.port() == port && reaches(own.ip(), address)) {
            return Err("it is this proxy's own API address");
        }
        if self.allow.iter().any(|net| net.contains(&address)) {
            return Ok(());
        }
        if self.deny.iter().any(|net| net.contains(&address)) {
            return Err("admin.endpoint_policy denies it");
        }
        if link_local(address) {
            return Err("link-local addresses are denied");
        }
        if address.is_multicast() {
            return Err("multicast addresses are denied");
        }
        if address.is_unspecified() {
            return Err("the unspecified address is denied");
        }
        Ok(())
    }
}

/// Whether packets to `address` arrive at a socket bound to `own`.
fn reaches(own: IpAddr, address: IpAddr) -> bool {
    own.to_canonical() == address || (own.is_unspecified() && address.is_loopback())
}

fn link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_denied_where_no_service_lives_and_where_the_file_says_so() {
        let policy: EndpointPolicy =
            serde_json::from_str(r#"{"deny": ["10.96.0.0/12"], "allow": ["10.96.0.10/32", "169.254.1.0/24"]}"#)
                .unwrap();
        let check = |address: &str| policy.check(address.parse().unwrap(), 80).is_ok();
        for (address, allowed) in [
            ("192.0.2.1", true),
            ("127.0.0.1", true),
            ("10.96.0.1", false),
            ("10.96.0.10", true),
            ("::ffff:10.96.0.1", false),
            ("169.254.169.254", false),
            ("::ffff:169.254.169.254", false),
            ("169.254.1.1", true),
            ("fe80::1", false),
            ("224.0.0.1", false),
            ("ff02::1", false),
            ("0.0.0.0", false),
            ("::", false),
            ("2001:db8::1", true),
        ] {
            assert_eq!(check(address), allowed, "{address}");
        }
    }

    #[test]
    fn the_apis_own_address_is_denied_even_if_allowed() {
        let own = |text: &str| EndpointPolicy {
            allow: vec!["0.0.0.0/0".parse().unwrap()],
            own: vec![text.parse().unwrap()],
            ..EndpointPolicy::default()
        };
        let loopback = "127.0.0.1".parse().unwrap();
        assert!(own("0.0.0.0:1234").check(loopback, 1234).is_err());
        assert!(own("127.0.0.1:1234").check("::ffff:127.0.0.1".parse().unwrap(), 1234).is_err());
        assert!(own("127.0.0.1:1234").check(loopback, 1235).is_ok());
    }
}
