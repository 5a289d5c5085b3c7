//! Addresses per interface by instance type, for when the cloud does not say.

/// How many IPv4 addresses an interface of an instance type can have, the primary one included. Types that are not
/// listed have at least as many as the smallest.
pub(super) fn address_limit(instance_type: &str) -> u16 {
    let known = LIMITS.iter().find(|(name, _)| *name == instance_type);
    known.map_or(SMALLEST, |(_, limit)| *limit)
}

/// What every type has.
const SMALLEST: u16 = 2;

/// From AWS's documentation, "Maximum IP addresses per network interface".
const LIMITS: &[(&str, u16)] = &[
    ("t3.nano", 2),
    ("t3.micro", 2),
    ("t3.small", 4),
    ("t3.medium", 6),
    ("t3.large", 12),
    ("t3.xlarge", 15),
    ("t3.2xlarge", 15),
    ("m5.large", 10),
    ("m5.xlarge", 15),
    ("m5.2xlarge", 15),
    ("m5.4xlarge", 30),
    ("m5.8xlarge", 30),
    ("m5.12xlarge", 30),
    ("m5.16xlarge", 50),
    ("m5.24xlarge", 50),
    ("m6i.large", 10),
    ("m6i.xlarge", 15),
    ("m6i.2xlarge", 15),
    ("m6i.4xlarge", 30),
    ("m6i.8xlarge", 30),
    ("c5.large", 10),
    ("c5.xlarge", 15),
    ("c5.2xlarge", 15),
    ("c5.4xlarge", 30),
    ("c5.9xlarge", 30),
    ("c5.18xlarge", 50),
    ("c5.24xlarge", 50),
    ("r5.large", 10),
    ("r5.xlarge", 15),
    ("r5.2xlarge", 15),
    ("r5.4xlarge", 30),
];

#[test]
fn types_that_are_not_listed_have_the_smallest_limit() {
    assert_eq!(address_limit("m5.large"), 10);
    assert_eq!(address_limit("c5.24xlarge"), 50);
    assert_eq!(address_limit("u-24tb1.metal"), 2);
}
