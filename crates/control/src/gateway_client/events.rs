//! Events of the gateway client besides those of conditions: addresses that come and go.

use k8s_openapi::api::core::v1::Service;

use crate::runtime::events::{EventDetails, EventType, Recorder};

/// Records that the addresses of a Service changed.
pub(super) fn addresses(recorder: &Recorder, service: &Service, now: &[String]) {
    let (reason, note) = match now {
        [] => ("AddressWithdrawn", "the gateway no longer has an address for it".to_owned()),
        addresses => ("AddressAssigned", format!("the gateway gave it {}", addresses.join(", "))),
    };
    let details = EventDetails { reason, action: "Announce", note: &note };
    recorder.record(service, EventType::Normal, &details);
}
