//! Envoys cannot be run here.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use portolan_core::gateway::unit::{Report, State, UnitId};

use super::{Proxies, Units};

/// Reports every unit as missing, with the reason.
pub struct UnavailableProxies {
    why: Arc<str>,
    /// None while another replica leads.
    wanted: Mutex<Option<Units>>,
}

impl UnavailableProxies {
    /// `why` says what to do.
    pub fn new(why: &str) -> Self {
        Self { why: why.into(), wanted: Mutex::new(None) }
    }
}

impl Proxies for UnavailableProxies {
    fn want(&self, units: Units) {
        *self.wanted.lock() = Some(units);
    }

    fn stand_by(&self) {
        *self.wanted.lock() = None;
    }

    fn reports(&self) -> Option<BTreeMap<UnitId, Report>> {
        let wanted = self.wanted.lock();
        let report =
            || Report { answered: None, rejected: BTreeMap::new(), state: State::Missing(Arc::clone(&self.why)) };
        Some(wanted.as_ref()?.keys().map(|id| (id.clone(), report())).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use portolan_core::gateway::unit::Unit;

    use super::*;

    #[test]
    fn each_unit_that_is_wanted_is_missing_for_the_reason_given() {
        let proxies = UnavailableProxies::new("no folder");
        assert_eq!(proxies.reports(), None);
        let id = UnitId { namespace: "egw-acme".into(), name: "web".into() };
        let unit = Unit {
            address: Ipv4Addr::LOCALHOST.into(),
            image: "".into(),
            prefix: "default".into(),
            listeners: BTreeMap::new(),
        };
        proxies.want(BTreeMap::from([(id.clone(), Arc::new(unit))]));
        let states =
            proxies.reports().map(|reports| reports.into_iter().map(|(id, report)| (id, report.state)).collect());
        assert_eq!(states, Some(vec![(id, State::Missing("no folder".into()))]));
        proxies.stand_by();
        assert_eq!(proxies.reports(), None);
    }
}
