//! Which endpoint is in which EndpointSlice: what is recorded stays where it is, so that one endpoint more or less
//! writes one slice.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::types::{Endpoint, EndpointPort, SliceContent};
use crate::net::Family;

/// Endpoints of one remote, family and port set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) family: Family,
    pub(super) ports: Vec<EndpointPort>,
    /// Sorted by address, each address once.
    pub(super) endpoints: Arc<[Endpoint]>,
}

/// The slices to have, by index. There is always one, if only to say that there is no endpoint.
pub(super) fn pack(
    recorded: &BTreeMap<usize, &SliceContent>,
    wanted: &Wanted,
    slice_size: usize,
) -> BTreeMap<usize, SliceContent> {
    let slice_size = slice_size.max(1);
    let mut places = keep_recorded(recorded, wanted, slice_size);
    if places.values().all(BTreeMap::is_empty) {
        places = places.into_iter().take(1).collect();
    } else {
        places.retain(|_, endpoints| !endpoints.is_empty());
    }
    if places.is_empty() {
        places.insert(0, BTreeMap::new());
    }
    let slices = |places: BTreeMap<usize, BTreeMap<IpAddr, &Endpoint>>| -> BTreeMap<usize, SliceContent> {
        let content = |endpoints: BTreeMap<IpAddr, &Endpoint>| SliceContent {
            family: wanted.family,
            ports: wanted.ports.clone(),
            endpoints: endpoints.into_values().cloned().collect(),
        };
        places.into_iter().map(|(index, endpoints)| (index, content(endpoints))).collect()
    };
    let settled = slices(places.clone());
    let is_settled = settled.len() == recorded.len()
        && settled.iter().all(|(index, content)| recorded.get(index).is_some_and(|recorded| *recorded == content));
    // Only when nothing else is to be written, so that no pass writes more than two slices.
    match is_settled.then(|| mergeable(&places, slice_size)).flatten() {
        Some((into, from)) => {
            let moved = places.remove(&from).unwrap_or_default();
            places.entry(into).or_default().extend(moved);
            slices(places)
        }
        None => settled,
    }
}

/// Whether [`pack`] leaves everything as it is recorded: what it costs to know that is what most decisions cost.
pub(super) fn is_packed(recorded: &BTreeMap<usize, &SliceContent>, wanted: &Wanted, slice_size: usize) -> bool {
    let mut lengths: Vec<usize> = recorded.values().map(|content| content.endpoints.len()).collect();
    lengths.sort_unstable();
    let fits = match lengths[..] {
        [] => false,
        [one] => one <= slice_size.max(1),
        // None is empty, and no two are to be merged.
        [least, second, ..] => {
            let most = lengths.last().copied().unwrap_or_default();
            least > 0 && least + second > slice_size / 2 && most <= slice_size
        }
    };
    if !fits || lengths.iter().sum::<usize>() != wanted.endpoints.len() {
        return false;
    }
    let mut found = vec![false; wanted.endpoints.len()];
    recorded.values().all(|content| {
        // Endpoints that are neighbours in a slice mostly are in the whole.
        let mut next = 0;
        let mut is_wanted = |endpoint: &Endpoint| {
            if wanted.endpoints.get(next).is_none_or(|there| there.address != endpoint.address) {
                let rest = &wanted.endpoints[next..];
                let Ok(ahead) = rest.binary_search_by_key(&endpoint.address, |there| there.address) else {
                    return false;
                };
                next += ahead;
            }
            let is_right = wanted.endpoints[next] == *endpoint && !std::mem::replace(&mut found[next], true);
            next += 1;
            is_right
        };
        content.family == wanted.family && content.ports == wanted.ports && content.endpoints.iter().all(&mut is_wanted)
    })
}

/// Every endpoint where it is recorded; the others in the first slice with room.
fn keep_recorded<'a>(
    recorded: &BTreeMap<usize, &SliceContent>,
    wanted: &'a Wanted,
    slice_size: usize,
) -> BTreeMap<usize, BTreeMap<IpAddr, &'a Endpoint>> {
    let mut places: BTreeMap<usize, BTreeMap<IpAddr, &Endpoint>> = BTreeMap::new();
    let mut unplaced: BTreeMap<IpAddr, &Endpoint> =
        wanted.endpoints.iter().map(|endpoint| (endpoint.address, endpoint)).collect();
    for (index, content) in recorded {
        let place = places.entry(*index).or_default();
        for endpoint in &content.endpoints {
            if place.len() < slice_size
                && let Some(endpoint) = unplaced.remove(&endpoint.address)
            {
                place.insert(endpoint.address, endpoint);
            }
        }
    }
    for (address, endpoint) in unplaced {
        let with_room = places.iter().find(|(_, place)| place.len() < slice_size).map(|(index, _)| *index);
        let index =
            with_room.or_else(|| (0..=places.len()).find(|index| !places.contains_key(index))).unwrap_or_default();
        places.entry(index).or_default().insert(address, endpoint);
    }
    places
}

/// Two slices that together fill at most half of one.
fn mergeable(places: &BTreeMap<usize, BTreeMap<IpAddr, &Endpoint>>, slice_size: usize) -> Option<(usize, usize)> {
    let mut by_length: Vec<(usize, usize)> = places.iter().map(|(index, place)| (place.len(), *index)).collect();
    by_length.sort_unstable();
    match by_length[..] {
        [(one, first), (other, second), ..] if one + other <= slice_size / 2 => {
            Some((first.min(second), first.max(second)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;
    use crate::mirror::types::EndpointConditions;

    const SIZE: usize = 4;

    fn endpoint(number: u32) -> Endpoint {
        let address = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number));
        Endpoint { address, conditions: EndpointConditions::READY, zone: None, hostname: None }
    }

    fn wanted(numbers: impl IntoIterator<Item = u32>) -> Wanted {
        let endpoints = numbers.into_iter().map(endpoint).collect();
        Wanted { family: Family::V4, ports: Vec::new(), endpoints }
    }

    fn again(slices: &BTreeMap<usize, SliceContent>, wanted: &Wanted) -> BTreeMap<usize, SliceContent> {
        pack(&slices.iter().map(|(index, content)| (*index, content)).collect(), wanted, SIZE)
    }

    fn changed(before: &BTreeMap<usize, SliceContent>, after: &BTreeMap<usize, SliceContent>) -> usize {
        let indexes: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
        indexes.into_iter().filter(|index| before.get(index) != after.get(index)).count()
    }

    #[test]
    fn without_endpoints_one_empty_slice_says_so() {
        let none = pack(&BTreeMap::new(), &wanted([]), SIZE);
        assert_eq!(none.len(), 1);
        let nine = pack(&BTreeMap::new(), &wanted(0..9), SIZE);
        assert_eq!(nine.values().map(|slice| slice.endpoints.len()).collect::<Vec<_>>(), [4, 4, 1]);
        let emptied = again(&nine, &wanted([]));
        assert_eq!(emptied.values().map(|slice| slice.endpoints.len()).collect::<Vec<_>>(), [0]);
    }

    proptest! {
        #[test]
        fn one_endpoint_more_or_less_writes_one_slice_and_merging_two(
            steps in prop::collection::vec((0_u32..40, any::<bool>()), 1..80)
        ) {
            let mut there = std::collections::BTreeSet::new();
            let mut slices = pack(&BTreeMap::new(), &wanted([]), SIZE);
            for (number, add) in steps {
                let moved = if add { there.insert(number) } else { there.remove(&number) };
                let want = wanted(there.iter().copied());
                let after = again(&slices, &want);
                let recorded = slices.iter().map(|(index, content)| (*index, content)).collect();
                prop_assert_eq!(is_packed(&recorded, &want, SIZE), after == slices);
                prop_assert!(changed(&slices, &after) <= if moved { 1 } else { 2 }, "{slices:?} {after:?}");
                slices = after;
                loop {
                    let merged = again(&slices, &want);
                    let recorded = slices.iter().map(|(index, content)| (*index, content)).collect();
                    prop_assert_eq!(is_packed(&recorded, &want, SIZE), merged == slices);
                    let writes = changed(&slices, &merged);
                    prop_assert!(writes == 0 || writes == 2);
                    slices = merged;
                    if writes == 0 {
                        break;
                    }
                }
                let mut held: Vec<_> = slices.values().flat_map(|slice| &slice.endpoints).cloned().collect();
                held.sort();
                prop_assert_eq!(&held[..], &want.endpoints[..], "each endpoint once");
                prop_assert!(slices.values().all(|slice| slice.endpoints.len() <= SIZE && slice.endpoints.is_sorted()));
                prop_assert!(slices.len() == 1 || slices.values().all(|slice| !slice.endpoints.is_empty()));
            }
        }
    }
}
