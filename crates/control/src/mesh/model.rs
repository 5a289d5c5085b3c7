//! What is seen -> the resolver's world, whole at first and then change by change. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use portolan_core::mesh::control::types::ObjectName;
use portolan_core::mesh::control::{Affected, Change, ProxyInfo, Resolver, Settings};

use super::events::{MeshEvents, after, before};
use super::observe::{Cache, Moved};

/// What is known of a proxy, or else taken for granted.
pub(super) fn known_facts(resolver: &Resolver, pod: &ObjectName) -> ProxyInfo {
    resolver.world().proxies.get(pod).cloned().unwrap_or_default()
}

/// Follows what moved: what that touches, and the pods whose proxies may be others now. At first that is everything.
pub(super) fn follow<'a>(
    resolver: &'a mut Option<Resolver>,
    cache: &Cache,
    settings: &Settings,
    events: &MeshEvents,
) -> (&'a mut Resolver, Affected, Vec<ObjectName>) {
    let Some(resolver) = resolver else {
        let resolver = resolver.insert(Resolver::new(cache.world(settings)));
        let pods = resolver.world().pods.keys().cloned().collect();
        let touched = resolver.all_affected();
        return (resolver, touched, pods);
    };
    let Moved { changes, pods, secrets, api_server } = cache.moved();
    let mut touched = Affected::default();
    // a node that goes stays out of reach: its address may be given again
    let mut nodes: BTreeSet<IpAddr> = changes.iter().flat_map(host_addresses).copied().collect();
    nodes.retain(|address| !resolver.world().settings.nodes.contains(address));
    if api_server || !nodes.is_empty() {
        nodes.extend(&resolver.world().settings.nodes);
        let api_servers = cache.api_servers(settings);
        join(&mut touched, resolver.change(Change::ClusterAddresses { api_servers, nodes }));
    }
    for change in changes {
        let withdrawn = before(resolver, &change);
        join(&mut touched, resolver.change(change));
        if let Some(withdrawn) = withdrawn.and_then(|withdrawn| after(resolver, withdrawn)) {
            events.withdrawn(withdrawn);
        }
    }
    let pods = if secrets { resolver.world().pods.keys().cloned().collect() } else { pods };
    (resolver, touched, pods)
}

fn host_addresses(change: &Change) -> &[IpAddr] {
    if let Change::Pod(_, Some(pod)) = change { &pod.host_addresses } else { &[] }
}

pub(super) fn join(all: &mut Affected, more: Affected) {
    for (pod, names) in more.pods {
        all.pods.entry(pod).or_default().extend(names);
    }
    all.objects.extend(more.objects);
    all.generated.extend(more.generated);
}
