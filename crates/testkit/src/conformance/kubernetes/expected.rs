//! Which specs are meant, which of them cannot pass on the embedded API server, and why.

/// Parts of the names of the specs that are meant.
pub(super) const SIG: &str = "[sig-api-machinery]";
/// As [`SIG`].
pub(super) const CONFORMANCE: &str = "[Conformance]";

const NO_CONTAINER: &str = "the webhook is a container, and none runs here";
const NO_QUOTA: &str = "quotas are stored and not enforced; the spec waits for a use that nothing counts";
const NO_POLICY: &str = "admission policies are not served: one that is stored and not enforced would be a danger";

/// Parts of names, as Ginkgo's regular expressions read them too, of specs that are not run: they wait for minutes.
pub(super) const LEFT_OUT: [(&str, &str); 6] = [
    ("AdmissionWebhook", NO_CONTAINER),
    ("CustomResourceConversionWebhook", NO_CONTAINER),
    ("CustomResourceFieldSelectors", NO_CONTAINER),
    ("Aggregator", "the aggregated API server is a container, and none runs here"),
    ("ResourceQuota", NO_QUOTA),
    (
        "from the last key if the original version has been compacted away",
        "it wants another revision after five minutes, and a server on which nothing changes has none",
    ),
];

/// Parts of the names of specs that are run and fail.
pub(super) const CANNOT_PASS: &[(&str, &str)] =
    &[("MutatingAdmissionPolicy", NO_POLICY), ("ValidatingAdmissionPolicy", NO_POLICY)];
