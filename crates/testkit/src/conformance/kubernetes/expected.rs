//! What cannot pass on the embedded API server, and why.

/// Areas of specs that are not run. Each has a program in a pod, which they wait for over minutes.
pub(super) const LEFT_OUT: [(&str, &str); 3] = [
    ("AdmissionWebhook", "the webhook is a container, and none runs here"),
    ("CustomResourceConversionWebhook", "the webhook is a container, and none runs here"),
    ("Aggregator", "the aggregated API server is a container, and none runs here"),
];

/// The ends of specs that are run and fail.
pub(super) const CANNOT_PASS: &[(&str, &str)] = &[];
