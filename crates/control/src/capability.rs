//! The table of capabilities, and how those of a table start.

use prometheus_client::registry::Registry;

use crate::runtime::app::Ctx;
use crate::runtime::capability::{Capability, Starter};
use crate::runtime::webhook::{self, Webhooks};
use crate::{egress, gateway, gateway_client, ipam, mesh, mirror};

/// Every capability. A new one is a line here.
pub const CAPABILITIES: &[&Capability] = &[
    &egress::CAPABILITY,
    &gateway::CAPABILITY,
    &gateway_client::CAPABILITY,
    &ipam::CAPABILITY,
    &mesh::CAPABILITY,
    &mirror::CAPABILITY,
];

/// Starts capabilities, and the webhook server with their handlers if there is to be one.
pub fn start(
    starters: Vec<Starter>,
    webhook: Option<webhook::Config>,
    ctx: &Ctx,
    registry: &mut Registry,
) -> Result<Option<webhook::Handle>, webhook::Error> {
    let handlers = starters.into_iter().fold(Webhooks::new(), |handlers, start| start(ctx, registry, handlers));
    let Some(config) = webhook else { return Ok(None) };
    let host = webhook::Host { tasks: &ctx.tasks, readiness: &ctx.readiness, registry };
    webhook::run(&ctx.unfenced, config, handlers, host).map(Some)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::runtime::capability::{Kind, Platform, names};

    #[test]
    fn the_kinds_of_ours_are_those_of_the_custom_resource_definitions() {
        let mut defined: BTreeMap<String, (String, String, bool)> = BTreeMap::new();
        for definition in
            portolan_api::crds().into_iter().chain(portolan_api::mcs_crds()).chain(portolan_api::openshift_crds())
        {
            let spec = definition.spec;
            let served = spec.versions.iter().find(|version| version.served).map(|version| version.name.clone());
            let name = format!("{}.{}", spec.names.plural, spec.group);
            defined.insert(name, (served.unwrap_or_default(), spec.names.kind, spec.scope == "Namespaced"));
        }
        let kinds = CAPABILITIES.iter().flat_map(|capability| capability.kinds);
        for Kind { group, version, kind, plural, namespaced, .. } in kinds {
            let listed = ((*version).to_owned(), (*kind).to_owned(), *namespaced);
            if let Some(definition) = defined.remove(&format!("{plural}.{group}")) {
                assert_eq!(listed, definition, "{plural}.{group}");
            }
        }
        assert!(defined.is_empty(), "no capability lists {:?}", defined.keys());
    }

    #[test]
    fn every_flag_has_an_environment_variable_and_a_heading_and_starts_with_no_word_of_another() {
        for capability in CAPABILITIES {
            for flag in capability.flags() {
                let long = flag.get_long().unwrap_or_default().to_owned();
                let env = flag.get_env().map(|env| env.to_string_lossy().into_owned());
                let wanted = format!("PORTOLAN_{}", long.replace('-', "_").to_uppercase());
                let is_known_elsewhere = env.as_deref().is_some_and(|env| KNOWN_ELSEWHERE.contains(&env));
                assert!(is_known_elsewhere || env == Some(wanted), "--{long} of {}: {env:?}", capability.name);
                assert!(flag.get_help_heading().is_some(), "--{long} has no heading");
                let owner = named_after(&names(CAPABILITIES), &long);
                let is_free = owner.is_none_or(|owner| owner == capability.name);
                assert!(is_free, "--{long} of {} is named after {owner:?}", capability.name);
            }
        }
    }

    /// The capability whose name a flag begins with: the longest, as `--gateway-client-url` is not one of `gateway`.
    fn named_after<'a>(names: &[&'a str], long: &str) -> Option<&'a str> {
        let begins = |name: &&&str| long.strip_prefix(**name).is_some_and(|rest| rest.starts_with('-'));
        names.iter().filter(begins).max_by_key(|name| name.len()).copied()
    }

    #[test]
    fn a_flag_is_named_after_the_capability_with_the_longest_name() {
        let names = ["gateway", "gateway-client"];
        assert_eq!(named_after(&names, "gateway-client-url"), Some("gateway-client"));
        assert_eq!(named_after(&names, "gateway-clients"), Some("gateway"));
        assert_eq!(named_after(&names, "gateways"), None);
    }

    /// Variables whose names others have given: every program of that cloud reads them.
    const KNOWN_ELSEWHERE: &[&str] = &["GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST"];

    #[test]
    fn the_defaults_of_every_capability_are_accepted() {
        for capability in CAPABILITIES {
            let configured = (capability.configure)(&capability.defaults(), &Platform::default());
            assert!(configured.is_ok(), "{}", capability.name);
        }
    }
}
