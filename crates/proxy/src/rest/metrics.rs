//! Metrics in the Prometheus text format, under l7mp's names and ours.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use crate::config::engine::{Histogram, Metered, Stats};

/// The content type of [`exposition`].
pub(super) const TYPE: &str = "text/plain; version=0.0.4";

/// Maximum series of a metric by endpoint, rule or session.
const MOST_SERIES: usize = 1000;

/// Writes all metrics. `objects` are counts by kind, `refused` by limit.
pub fn exposition(
    stats: &Stats,
    generation: u64,
    objects: &[(&str, usize)],
    refused: &BTreeMap<&'static str, u64>,
) -> String {
    let mut text = Text::default();
    by_object(&mut text, stats);
    metered(&mut text, &stats.metered);
    sessions(&mut text, stats);
    packets(&mut text, stats);
    text.help("portolan_proxy_config_generation", "gauge", "Generation of the current configuration.");
    text.line("portolan_proxy_config_generation", &[], generation);
    text.help("portolan_proxy_objects", "gauge", "Configured objects by kind.");
    for (kind, count) in objects {
        text.line("portolan_proxy_objects", &[("kind", kind)], count);
    }
    text.help(
        "portolan_proxy_limit_refusals_total",
        "counter",
        "Requests, sessions and messages refused by a limit of admin.limits.",
    );
    let mut limits = refused.clone();
    stats.limits.iter().for_each(|(limit, count)| *limits.entry(limit).or_default() += count);
    for (limit, count) in &limits {
        text.line("portolan_proxy_limit_refusals_total", &[("limit", limit)], count);
    }
    text.0
}

fn by_object(text: &mut Text, stats: &Stats) {
    text.help("listener_requests_total", "counter", "Sessions accepted by listener.");
    for it in &stats.listeners {
        text.line("listener_requests_total", &[("listenerName", &it.name), ("protocol", it.protocol)], it.total);
    }
    text.help("cluster_requests_total", "counter", "Session stages by cluster.");
    for it in &stats.clusters {
        text.line("cluster_requests_total", &[("clusterName", &it.name), ("protocol", it.protocol)], it.total);
    }
}

/// Counters of Metric clusters, under l7mp's names or the names in the cluster's spec.
fn metered(text: &mut Text, metered: &[Metered]) {
    let mut families: BTreeMap<String, Vec<(&Metered, u64)>> = BTreeMap::new();
    for it in metered {
        let bytes = it.byte_counter.as_deref().filter(|name| is_metric_name(name)).unwrap_or("session_byte_counter");
        let packets =
            it.packet_counter.as_deref().filter(|name| is_metric_name(name)).unwrap_or("session_packet_counter");
        families.entry(total(bytes)).or_default().push((it, it.bytes));
        families.entry(total(packets)).or_default().push((it, it.packets));
    }
    for (family, members) in families {
        text.help(&family, "counter", "Traffic through Metric clusters.");
        let mut named = 0;
        for (it, count) in members {
            match it.session.as_deref() {
                Some(session) if named < MOST_SERIES => {
                    named += 1;
                    text.line(&family, &[("clusterName", &it.cluster), ("sessionName", session)], count);
                }
                Some(_) => {}
                None => text.line(&family, &[("clusterName", &it.cluster)], count),
            }
        }
    }
}

fn sessions(text: &mut Text, stats: &Stats) {
    text.help("portolan_proxy_sessions", "gauge", "Live sessions.");
    text.line("portolan_proxy_sessions", &[], stats.sessions_active);
    text.help("portolan_proxy_sessions_total", "counter", "Sessions since process start.");
    text.line("portolan_proxy_sessions_total", &[], stats.sessions_total);
    text.help("portolan_proxy_sessions_ended_total", "counter", "Ended sessions by reason.");
    for (reason, count) in &stats.sessions_ended {
        text.line("portolan_proxy_sessions_ended_total", &[("reason", reason)], count);
    }
    text.help("portolan_proxy_retries_total", "counter", "Connection retries.");
    text.line("portolan_proxy_retries_total", &[], stats.retries);
    text.help(
        "portolan_proxy_circuit_refusals_total",
        "counter",
        "Stages refused by an open circuit breaker, by cluster and limit.",
    );
    for (cluster, limit, count) in &stats.circuits {
        text.line("portolan_proxy_circuit_refusals_total", &[("cluster", cluster), ("limit", limit)], count);
    }
    text.help("portolan_proxy_rule_hits_total", "counter", "Sessions matched by rule.");
    for (rule, count) in stats.rules.iter().take(MOST_SERIES) {
        text.line("portolan_proxy_rule_hits_total", &[("rule", rule)], count);
    }
    text.help("portolan_proxy_endpoint_up", "gauge", "Whether an endpoint accepts sessions (1) or not (0).");
    if stats.endpoints.len() <= MOST_SERIES {
        for (cluster, endpoint, up) in &stats.endpoints {
            let labels = [("cluster", &**cluster), ("endpoint", &**endpoint)];
            text.line("portolan_proxy_endpoint_up", &labels, u8::from(*up));
        }
    } else {
        aggregated(text, stats);
    }
    text.histogram("portolan_proxy_connect_seconds", "Time to connect a stage.", &stats.connect_seconds);
    text.histogram("portolan_proxy_setup_seconds", "Time to set up a session.", &stats.setup_seconds);
}

/// Aggregates by cluster when there are too many endpoints.
fn aggregated(text: &mut Text, stats: &Stats) {
    let mut up: BTreeMap<&str, u64> = BTreeMap::new();
    for (cluster, _, yes) in &stats.endpoints {
        *up.entry(cluster).or_default() += u64::from(*yes);
    }
    for (cluster, count) in up {
        text.line("portolan_proxy_endpoint_up", &[("cluster", cluster), ("endpoint", "")], count);
    }
}

fn packets(text: &mut Text, stats: &Stats) {
    let traffic = &stats.traffic;
    for (what, inward, outward) in [
        ("packets", traffic.packets_in, traffic.packets_out),
        ("bytes", traffic.bytes_in, traffic.bytes_out),
        ("segments", stats.segments_in, stats.segments_out),
    ] {
        let name = format!("portolan_proxy_{what}_total");
        let about = if what == "segments" {
            "Datagrams received with GRO or sent with GSO."
        } else {
            "Client traffic by direction."
        };
        text.help(&name, "counter", about);
        text.line(&name, &[("direction", "in")], inward);
        text.line(&name, &[("direction", "out")], outward);
    }
    text.help("portolan_proxy_drops_total", "counter", "Dropped packets by cause.");
    for (cause, count) in &stats.drops {
        text.line("portolan_proxy_drops_total", &[("cause", cause)], count);
    }
    text.help(
        "portolan_proxy_log_lines_dropped_total",
        "counter",
        "Log lines dropped because the writer was too slow.",
    );
    text.line("portolan_proxy_log_lines_dropped_total", &[], stats.log_lines_dropped);
    text.help("portolan_proxy_worker_busy_ratio", "gauge", "Share of the last second in which a worker was busy.");
    for (worker, share) in stats.workers_busy.iter().enumerate() {
        text.line("portolan_proxy_worker_busy_ratio", &[("worker", &worker.to_string())], share);
    }
    text.help("portolan_proxy_worker_restarts_total", "counter", "Worker restarts after a panic.");
    text.line("portolan_proxy_worker_restarts_total", &[], stats.worker_restarts);
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn help(&mut self, name: &str, kind: &str, about: &str) {
        writeln!(self.0, "# HELP {name} {about}\n# TYPE {name} {kind}").expect("a string takes all");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            let open = if index == 0 { '{' } else { ',' };
            write!(self.0, "{open}{label}=\"{}\"", escape(value)).expect("a string takes all");
        }
        let close = if labels.is_empty() { "" } else { "}" };
        writeln!(self.0, "{close} {value}").expect("a string takes all");
    }

    fn histogram(&mut self, name: &str, about: &str, histogram: &Histogram) {
        self.help(name, "histogram", about);
        let mut count = 0;
        for (bound, more) in &histogram.buckets {
            count += more;
            self.line(&format!("{name}_bucket"), &[("le", &bound.to_string())], count);
        }
        count += histogram.over;
        self.line(&format!("{name}_bucket"), &[("le", "+Inf")], count);
        self.line(&format!("{name}_sum"), &[], histogram.sum);
        self.line(&format!("{name}_count"), &[], count);
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn total(name: &str) -> String {
    if name.ends_with("_total") { name.to_owned() } else { format!("{name}_total") }
}

fn is_metric_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
    name.bytes().all(fits) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::engine::ByObject;

    fn shown(stats: &Stats) -> String {
        exposition(stats, 7, &[("listeners", 1)], &BTreeMap::from([("body", 2)]))
    }

    #[test]
    fn l7mps_names_and_labels_are_kept() {
        let by = |name: &str, protocol, total| ByObject { name: name.into(), protocol, total };
        let stats =
            Stats { listeners: vec![by("l\"1", "UDP", 3)], clusters: vec![by("c1", "TCP", 4)], ..Stats::default() };
        let text = shown(&stats);
        assert!(text.contains("\nlistener_requests_total{listenerName=\"l\\\"1\",protocol=\"UDP\"} 3\n"), "{text}");
        assert!(text.contains("\ncluster_requests_total{clusterName=\"c1\",protocol=\"TCP\"} 4\n"), "{text}");
        assert!(text.contains("\nportolan_proxy_limit_refusals_total{limit=\"body\"} 2\n"), "{text}");
    }

    #[test]
    fn metric_clusters_count_by_cluster_and_under_names_of_their_own() {
        let metered = |cluster: &str, counter: Option<&str>| Metered {
            cluster: cluster.into(),
            session: None,
            byte_counter: counter.map(str::to_owned),
            packet_counter: None,
            bytes: 10,
            packets: 1,
        };
        let text = shown(&Stats {
            metered: vec![metered("a", None), metered("b", Some("mine")), metered("c", Some("0 x"))],
            ..Stats::default()
        });
        for line in [
            "session_byte_counter_total{clusterName=\"a\"} 10",
            "session_packet_counter_total{clusterName=\"b\"} 1",
            "mine_total{clusterName=\"b\"} 10",
            "session_byte_counter_total{clusterName=\"c\"} 10",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line}\n{text}");
        }
    }

    #[test]
    fn sessions_are_named_up_to_a_number() {
        let one = |index: usize| Metered {
            cluster: "m".into(),
            session: Some(format!("s{index}")),
            byte_counter: None,
            packet_counter: None,
            bytes: 1,
            packets: 1,
        };
        let text = shown(&Stats { metered: (0..MOST_SERIES + 5).map(one).collect(), ..Stats::default() });
        assert_eq!(text.lines().filter(|line| line.starts_with("session_byte_counter_total{")).count(), MOST_SERIES);
    }

    #[test]
    fn endpoints_beyond_a_number_are_folded_by_cluster() {
        let endpoints = |count: usize| -> Vec<_> {
            (0..count).map(|index| ("c".into(), format!("e{index}").into(), index % 2 == 0)).collect()
        };
        let named = shown(&Stats { endpoints: endpoints(MOST_SERIES), ..Stats::default() });
        assert!(named.contains("\nportolan_proxy_endpoint_up{cluster=\"c\",endpoint=\"e1\"} 0\n"));
        let folded = shown(&Stats { endpoints: endpoints(MOST_SERIES + 2), ..Stats::default() });
        let lines: Vec<_> = folded.lines().filter(|line| line.starts_with("portolan_proxy_endpoint_up{")).collect();
        assert_eq!(lines, ["portolan_proxy_endpoint_up{cluster=\"c\",endpoint=\"\"} 501"]);
    }

    #[test]
    fn histograms_are_cumulative() {
        let connect_seconds = Histogram { buckets: vec![(0.1, 2), (1.0, 3)], over: 1, sum: 4.5 };
        let text = shown(&Stats { connect_seconds, ..Stats::default() });
        assert!(text.contains("portolan_proxy_connect_seconds_bucket{le=\"1\"} 5\n"), "{text}");
        assert!(text.contains("portolan_proxy_connect_seconds_bucket{le=\"+Inf\"} 6\n"), "{text}");
        assert!(text.contains("portolan_proxy_connect_seconds_count 6\n"), "{text}");
    }

    #[test]
    fn every_line_is_a_comment_or_a_sample_of_a_declared_metric() {
        let text = shown(&Stats::default());
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            assert!(text.contains(&format!("# TYPE {family} ")), "{line}");
        }
    }
}
