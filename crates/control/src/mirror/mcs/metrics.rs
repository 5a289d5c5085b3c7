//! Shared Services in numbers.

use portolan_core::mirror::mcs::Outcome;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family as Metric;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::clusterset::Clusterset;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

/// Shared Services in numbers.
#[derive(Debug, Clone, Default)]
pub(in crate::mirror) struct ImportMetrics {
    imports: Metric<StateLabel, Gauge>,
    decided: Counter,
}

impl ImportMetrics {
    pub(in crate::mirror) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("portolan_mirror");
        let help = "Names that clusters export, by what became of them; conflict and unmet count besides";
        registry.register("imports", help, metrics.imports.clone());
        registry.register("import_decisions", "Decisions about exported names", metrics.decided.clone());
        metrics
    }

    /// So many names were decided about.
    pub(in crate::mirror) fn decided(&self, names: usize, clusterset: &Clusterset) {
        if names == 0 {
            return;
        }
        self.decided.inc_by(u64::try_from(names).unwrap_or(u64::MAX));
        let mut counts = [("imported", 0), ("held", 0), ("not_imported", 0), ("conflict", 0), ("unmet", 0)];
        for decision in clusterset.decisions.values() {
            let outcome = match decision.outcome {
                Outcome::Imported => 0,
                Outcome::Held(_) => 1,
                Outcome::NotImported(_) => 2,
            };
            counts[outcome].1 += 1;
            counts[3].1 += i64::from(!decision.conflicts.is_empty());
            counts[4].1 += i64::from(!decision.unmet.is_empty());
        }
        for (state, count) in counts {
            self.imports.get_or_create(&StateLabel { state }).set(count);
        }
    }

    /// This replica no longer knows.
    pub(in crate::mirror) fn forget(&self) {
        self.imports.clear();
    }
}
