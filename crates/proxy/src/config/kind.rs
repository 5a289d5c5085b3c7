//! The kinds of objects and their names in the API.

/// A kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Listener,
    Cluster,
    RuleList,
    Rule,
    Route,
    Endpoint,
}

impl Kind {
    pub const ALL: [Self; 6] = [Self::Listener, Self::Cluster, Self::RuleList, Self::Rule, Self::Route, Self::Endpoint];

    /// As in `Cannot add listener: ...`.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Listener => "listener",
            Self::Cluster => "cluster",
            Self::RuleList => "RuleList",
            Self::Rule => "rule",
            Self::Route => "route",
            Self::Endpoint => "endpoint",
        }
    }

    /// As in `Listener "N" already defined`.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Listener => "Listener",
            Self::Cluster => "Cluster",
            Self::RuleList => "RuleList",
            Self::Rule => "Rule",
            Self::Route => "Route",
            Self::Endpoint => "Endpoint",
        }
    }

    /// As in `Cannot delete Route: Unknown Route "N"`: l7mp capitalises routes here.
    pub const fn deleted(self) -> &'static str {
        match self {
            Self::Route => "Route",
            Self::Listener | Self::Cluster | Self::RuleList | Self::Rule | Self::Endpoint => self.noun(),
        }
    }

    /// As in `web-EndPoint-0`.
    pub const fn generated(self) -> &'static str {
        match self {
            Self::Endpoint => "EndPoint",
            Self::Listener | Self::Cluster | Self::RuleList | Self::Rule | Self::Route => self.title(),
        }
    }

    /// The key of an object in a request body.
    pub const fn key(self) -> &'static str {
        match self {
            Self::RuleList => "rulelist",
            Self::Listener | Self::Cluster | Self::Rule | Self::Route | Self::Endpoint => self.noun(),
        }
    }

    /// The kind's segment in a path and its key in a whole configuration.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Listener => "listeners",
            Self::Cluster => "clusters",
            Self::RuleList => "rulelists",
            Self::Rule => "rules",
            Self::Route => "routes",
            Self::Endpoint => "endpoints",
        }
    }

    /// Finds a kind by its segment or its key.
    pub fn find(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.plural() == word || kind.key() == word)
    }
}
