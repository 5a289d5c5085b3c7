//! What every driver of Envoys keeps to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use portolan_core::gateway::ports::{PortNumber, Protocol};
use portolan_core::gateway::unit::{Listener, Unit, UnitId};
use tokio::time::{Instant, sleep};

use super::{MemoryProxies, Proxies, Report, State, Units};

/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);

#[tokio::test]
async fn memory_keeps_the_contract() {
    keeps_the_contract(&MemoryProxies::new(|| {}), [127, 77, 0, 2].into()).await;
}

/// Runs units at this address through all that a controller asks for.
pub(super) async fn keeps_the_contract(proxies: &dyn Proxies, address: IpAddr) {
    assert_eq!(proxies.reports(), None, "nothing is known before anything is wanted");
    for ports in [&[8021][..], &[], &[8021, 8022]] {
        let wanted = units(address, &[("web", ports)]);
        proxies.want(wanted.clone());
        until(proxies, "what is wanted is answered for", |reports| are_answered(reports, &wanted)).await;
    }
    let two = units(address, &[("web", &[8021]), ("mail", &[8025])]);
    proxies.want(two.clone());
    until(proxies, "both units run", |reports| are_answered(reports, &two)).await;
    proxies.stand_by();
    assert_eq!(proxies.reports(), None, "another replica knows");
    let one = units(address, &[("mail", &[8025, 8026])]);
    proxies.want(one.clone());
    until(proxies, "one is left", |reports| reports.len() == 1 && are_answered(reports, &one)).await;
    proxies.want(Units::new());
    until(proxies, "none is left", BTreeMap::is_empty).await;
}

fn are_answered(reports: &BTreeMap<UnitId, Report>, wanted: &Units) -> bool {
    wanted.iter().all(|(id, unit)| {
        let is_answered = |report: &Report| report.answered.as_ref() == Some(unit) && report.state == State::Running;
        reports.get(id).is_some_and(|report| is_answered(report) && report.rejected.is_empty())
    })
}

async fn until(proxies: &dyn Proxies, what: &str, is_met: impl Fn(&BTreeMap<UnitId, Report>) -> bool) {
    let begun = Instant::now();
    loop {
        let reports = proxies.reports().expect("this replica leads");
        if is_met(&reports) {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "{what}: {reports:#?}");
        sleep(Duration::from_millis(10)).await;
    }
}

fn units(address: IpAddr, wanted: &[(&str, &[u16])]) -> Units {
    let unit = |(name, ports): &(&str, &[u16])| {
        let id = UnitId { namespace: "egw-acme".into(), name: (*name).into() };
        let listener = |port: &u16| {
            let number = PortNumber { protocol: Protocol::Tcp, port: *port };
            (number, Listener { load_balancer: (*name).into(), endpoints: BTreeSet::new() })
        };
        let listeners = ports.iter().map(listener).collect();
        (id, Arc::new(Unit { address, image: "".into(), prefix: "default".into(), listeners }))
    };
    wanted.iter().map(unit).collect()
}
