//! Which request asks for what.

use http::Method;
use percent_encoding::percent_decode_str;

use super::links::PREFIX;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    OpenApi,
    Health,
    ShowAccount,
    ListGroups,
    ShowGroup,
    CreateService,
    ListServices,
    ShowService,
    ReplaceService,
    DeleteService,
    ListEndpoints,
    CreateEndpoint,
    ShowEndpoint,
    PutEndpoint,
    DeleteEndpoint,
    ReplaceNode,
    WatchAccount,
    WatchService,
}

/// A path below the prefix, and what its methods ask for.
pub(super) struct Route {
    pub(super) path: &'static str,
    pub(super) actions: &'static [(Method, Action)],
}

const fn route(path: &'static str, actions: &'static [(Method, Action)]) -> Route {
    Route { path, actions }
}

pub(super) const ROUTES: &[Route] = &[
    route("/openapi.json", &[(Method::GET, Action::OpenApi)]),
    route("/healthz", &[(Method::GET, Action::Health)]),
    route("/accounts/{account}", &[(Method::GET, Action::ShowAccount)]),
    route("/accounts/{account}/groups", &[(Method::GET, Action::ListGroups)]),
    route("/accounts/{account}/groups/{group}", &[(Method::GET, Action::ShowGroup)]),
    route("/accounts/{account}/groups/{group}/services", &[(Method::POST, Action::CreateService)]),
    route("/accounts/{account}/services", &[(Method::GET, Action::ListServices)]),
    route(
        "/accounts/{account}/services/{service}",
        &[
            (Method::GET, Action::ShowService),
            (Method::PUT, Action::ReplaceService),
            (Method::DELETE, Action::DeleteService),
        ],
    ),
    route(
        "/accounts/{account}/services/{service}/endpoints",
        &[(Method::GET, Action::ListEndpoints), (Method::POST, Action::CreateEndpoint)],
    ),
    route(
        "/accounts/{account}/services/{service}/endpoints/{endpoint}",
        &[
            (Method::GET, Action::ShowEndpoint),
            (Method::PUT, Action::PutEndpoint),
            (Method::DELETE, Action::DeleteEndpoint),
        ],
    ),
    route("/accounts/{account}/services/{service}/nodes/{node}/endpoints", &[(Method::PUT, Action::ReplaceNode)]),
    route("/accounts/{account}/watch", &[(Method::GET, Action::WatchAccount)]),
    route("/accounts/{account}/services/{service}/watch", &[(Method::GET, Action::WatchService)]),
];

/// A route and the names that the path has in it.
pub(super) struct Matched {
    pub(super) route: &'static Route,
    names: Vec<String>,
}

impl Matched {
    /// The action of a method.
    pub(super) fn action(&self, method: &Method) -> Option<Action> {
        self.route.actions.iter().find(|(of, _)| of == method).map(|(_, action)| *action)
    }

    /// The methods that there are.
    pub(super) fn allowed(&self) -> String {
        let methods: Vec<&str> = self.route.actions.iter().map(|(method, _)| method.as_str()).collect();
        methods.join(", ")
    }

    /// The account, the group or service in it, and the endpoint or node of that; empty where the path has none.
    pub(super) fn names(&self) -> [&str; 3] {
        let name = |place: usize| self.names.get(place).map(String::as_str).unwrap_or_default();
        [name(0), name(1), name(2)]
    }
}

/// Finds the route of a path. Names are decoded once they are apart, so none of them makes a path of its own.
pub(super) fn find(path: &str) -> Option<Matched> {
    let below = path.strip_prefix(PREFIX)?;
    ROUTES.iter().find_map(|route| Some(Matched { route, names: names(route.path, below)? }))
}

fn names(template: &str, path: &str) -> Option<Vec<String>> {
    let (mut wanted, mut found) = (template.split('/'), path.split('/'));
    let mut names = Vec::new();
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return Some(names),
            (Some(part), Some(name)) if part.starts_with('{') => {
                names.push(percent_decode_str(name).decode_utf8_lossy().into_owned());
            }
            (Some(part), Some(same)) if part == same => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_slash_is_part_of_a_name() {
        let found = find("/api/egw/accounts/a%2Fservices%2Fb").unwrap();
        assert_eq!(found.names(), ["a/services/b", "", ""]);
        assert_eq!(found.route.path, "/accounts/{account}");
        let found = find("/api/egw/accounts/a/services/s/nodes/2001:db8::1/endpoints").unwrap();
        assert_eq!(found.names(), ["a", "s", "2001:db8::1"]);
        assert!(find("/api/egw/accounts").is_none() && find("/accounts/a").is_none());
        assert!(find("/api/egw/accounts/a/").is_none() && find("/api/egwx/healthz").is_none());
    }

    #[test]
    fn a_path_has_the_methods_of_its_route() {
        let found = find("/api/egw/accounts/a/services/s").unwrap();
        assert_eq!(found.allowed(), "GET, PUT, DELETE");
        assert_eq!(found.action(&Method::POST), None);
        assert_eq!(found.action(&Method::DELETE), Some(Action::DeleteService));
    }
}
