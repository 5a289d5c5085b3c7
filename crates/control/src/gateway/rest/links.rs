//! Paths of objects: built from names, never from a request line.

/// Where everything is.
pub(super) const PREFIX: &str = "/api/egw";

pub(super) fn account(account: &str) -> String {
    format!("{PREFIX}/accounts/{account}")
}

pub(super) fn groups(of: &str) -> String {
    format!("{}/groups", account(of))
}

pub(super) fn group(of: &str, name: &str) -> String {
    format!("{}/{name}", groups(of))
}

pub(super) fn create_service(of: &str, name: &str) -> String {
    format!("{}/services", group(of, name))
}

pub(super) fn services(of: &str) -> String {
    format!("{}/services", account(of))
}

pub(super) fn service(of: &str, name: &str) -> String {
    format!("{}/{name}", services(of))
}

pub(super) fn endpoints(of: &str, name: &str) -> String {
    format!("{}/endpoints", service(of, name))
}

pub(super) fn endpoint(of: &str, service: &str, name: &str) -> String {
    format!("{}/{name}", endpoints(of, service))
}

pub(super) fn node(of: &str, name: &str, node: &str) -> String {
    format!("{}/nodes/{node}/endpoints", service(of, name))
}
