//! What a path of the Kubernetes API points at.

/// What a path points at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target<'a> {
    /// All objects of a resource, in one namespace or everywhere.
    Collection { resource: &'a str },
    /// One object, or a part of it such as its status.
    Object { resource: &'a str },
    /// Anything else: discovery, health, versions.
    Other,
}

impl<'a> Target<'a> {
    pub(super) fn of(path: &'a str) -> Self {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (["api", _, rest @ ..] | ["apis", _, _, rest @ ..]) = &parts[..] else { return Self::Other };
        match *rest {
            // `namespaces/x/status` is a part of a namespace, `namespaces/x/pods` a collection within it.
            ["namespaces", _, "status" | "finalize"] => Self::Object { resource: "namespaces" },
            ["namespaces", _, resource] | [resource] => Self::Collection { resource },
            ["namespaces", _, resource, _, ..] | [resource, _, ..] => Self::Object { resource },
            [] => Self::Other,
        }
    }

    pub(super) fn resource(self) -> Option<&'a str> {
        match self {
            Self::Collection { resource } | Self::Object { resource } => Some(resource),
            Self::Other => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_apart() {
        for (path, target) in [
            ("/api/v1/nodes", Target::Collection { resource: "nodes" }),
            ("/api/v1/nodes/n1", Target::Object { resource: "nodes" }),
            ("/api/v1/nodes/n1/status", Target::Object { resource: "nodes" }),
            ("/api/v1/namespaces", Target::Collection { resource: "namespaces" }),
            ("/api/v1/namespaces/shop", Target::Object { resource: "namespaces" }),
            ("/api/v1/namespaces/shop/finalize", Target::Object { resource: "namespaces" }),
            ("/api/v1/namespaces/shop/pods", Target::Collection { resource: "pods" }),
            ("/api/v1/namespaces/shop/pods/p1/eviction", Target::Object { resource: "pods" }),
            ("/apis/coordination.k8s.io/v1/namespaces/x/leases", Target::Collection { resource: "leases" }),
            ("/apis/coordination.k8s.io/v1/namespaces/x/leases/y", Target::Object { resource: "leases" }),
            ("/apis/apps/v1", Target::Other),
            ("/apis", Target::Other),
            ("/readyz", Target::Other),
        ] {
            assert_eq!(Target::of(path), target, "{path}");
        }
    }
}
