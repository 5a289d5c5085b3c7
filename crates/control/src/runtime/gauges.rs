//! Gauges that show what there is, all at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Gauges by label. Whoever reads them while they are set finds each that was there before and is still.
#[derive(Debug, Clone)]
pub struct Gauges<L> {
    family: Family<L, Gauge>,
    shown: Arc<Mutex<BTreeSet<L>>>,
}

impl<L: Clone + Debug + Ord + Hash + EncodeLabelSet + Send + Sync + 'static> Gauges<L> {
    /// Registers gauges under a name.
    pub fn register(registry: &mut Registry, name: &str, help: &str) -> Self {
        let family = Family::default();
        registry.register(name, help, family.clone());
        Self { family, shown: Arc::default() }
    }

    /// Sets these; others go. Values of the same label are added.
    pub fn show(&self, values: impl IntoIterator<Item = (L, i64)>) {
        let mut sums: BTreeMap<L, i64> = BTreeMap::new();
        for (label, value) in values {
            *sums.entry(label).or_default() += value;
        }
        let mut shown = self.shown.lock();
        for gone in shown.iter().filter(|label| !sums.contains_key(*label)) {
            self.family.remove(gone);
        }
        for (label, sum) in &sums {
            self.family.get_or_create(label).set(*sum);
        }
        *shown = sums.into_keys().collect();
    }

    /// All go.
    pub fn clear(&self) {
        self.show([]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
    struct Zone {
        zone: &'static str,
    }

    #[test]
    fn what_is_not_shown_again_goes() {
        let mut registry = Registry::default();
        let gauges = Gauges::register(&mut registry, "nodes", "Nodes by zone");
        let text = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            let mut lines: Vec<String> =
                text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
            lines.sort();
            lines
        };
        gauges.show([(Zone { zone: "a" }, 1), (Zone { zone: "b" }, 2), (Zone { zone: "b" }, 3)]);
        assert_eq!(text(), ["nodes{zone=\"a\"} 1", "nodes{zone=\"b\"} 5"]);
        gauges.show([(Zone { zone: "b" }, 7)]);
        assert_eq!(text(), ["nodes{zone=\"b\"} 7"]);
        gauges.clear();
        assert_eq!(text(), [""; 0]);
    }
}
