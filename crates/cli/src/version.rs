//! The output of `--version`: version, commit, and the API versions that this binary serves.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// The text behind the program's name.
pub(crate) static TEXT: LazyLock<String> = LazyLock::new(|| {
    let commit = option_env!("PORTOLAN_COMMIT").unwrap_or("unknown");
    let served = served(&portolan_api::crds());
    format!("{} (commit {commit})\nserved API versions: {served}", env!("CARGO_PKG_VERSION"))
});

fn served(crds: &[CustomResourceDefinition]) -> String {
    let mut versions = BTreeSet::new();
    for crd in crds {
        let served = crd.spec.versions.iter().filter(|version| version.served);
        versions.extend(served.map(|version| format!("{}/{}", crd.spec.group, version.name)));
    }
    if versions.is_empty() {
        return "none".to_owned();
    }
    versions.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::crds::tests::sample;

    #[test]
    fn served_versions_are_named_once() {
        assert_eq!(served(&[]), "none");
        assert_eq!(served(&[sample("harbours"), sample("charts")]), "example.dev/v1");
    }
}
