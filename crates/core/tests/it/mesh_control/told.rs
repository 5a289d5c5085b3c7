//! Proxies that are told change by change, by somebody who looked at them once.

use std::collections::BTreeMap;

use portolan_core::mesh::control::types::ObjectName;
use portolan_core::mesh::control::wire::ProxyConfig;
use portolan_core::mesh::control::*;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::laws::{runner, tape};
use super::proxy::Proxy;
use super::worlds;

const SEQUENCES: u32 = 300;

/// A proxy, and what is thought of it.
struct Told {
    proxy: Proxy,
    known: ObservedConfig,
    desired: ProxyConfig,
}

impl Told {
    fn met(ownership: &Ownership, desired: ProxyConfig) -> Result<Self, TestCaseError> {
        let proxy = Proxy::with_foreign();
        let known = ObservedConfig::of(&proxy.config());
        let mut told = Self { proxy, known, desired };
        told.tell(None, ownership)?;
        Ok(told)
    }

    fn tell(&mut self, names: Option<&ConfigKeys>, ownership: &Ownership) -> Result<(), TestCaseError> {
        let names = names.filter(|_| self.desired.insertions.is_empty());
        let steps = match names {
            Some(names) => {
                let ours = self.desired.only(names);
                diff(&ours, &self.known.only(names, &ours, ownership), ProxyImplementation::Portolan, ownership)
            }
            None => diff(&self.desired, &self.known, ProxyImplementation::Portolan, ownership),
        };
        for call in &steps.calls {
            self.proxy.take(call).map_err(|why| TestCaseError::fail(format!("{why}: {call:?}")))?;
        }
        self.known.learn(names, &self.desired, ownership);
        Ok(())
    }
}

#[test]
fn a_proxy_told_change_by_change_holds_what_it_should_and_what_it_is_thought_to() {
    let ownership = Ownership::default();
    let outcome = runner(SEQUENCES).run(&tape(300), |bytes| {
        let mut tape = worlds::Tape::new(&bytes);
        let mut resolver = Resolver::new(worlds::world(&mut tape));
        let mut proxies: BTreeMap<ObjectName, Told> = BTreeMap::new();
        for (pod, desired) in resolver.plan().desired {
            proxies.insert(pod, Told::met(&ownership, desired)?);
        }
        for _ in 0..6 {
            let change = worlds::change(&mut tape, resolver.world());
            let touched = resolver.change(change);
            for (pod, names) in touched.pods {
                let Some(told) = proxies.get_mut(&pod) else {
                    proxies.insert(pod.clone(), Told::met(&ownership, resolver.desired(&pod))?);
                    continue;
                };
                let had_insertions = !told.desired.insertions.is_empty();
                told.desired.replace(&names, &resolver.desired_of(&pod, &names));
                told.tell(if had_insertions { None } else { Some(&names) }, &ownership)?;
            }
            for (pod, told) in &proxies {
                let holds = ObservedConfig::of(&told.proxy.config());
                prop_assert_eq!(&told.known, &holds, "pod {}", pod);
                let left = diff(&resolver.desired(pod), &holds, ProxyImplementation::Portolan, &ownership);
                prop_assert_eq!(left.calls, Vec::new(), "pod {}", pod);
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
