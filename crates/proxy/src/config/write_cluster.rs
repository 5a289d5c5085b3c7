//! Clusters and their endpoints on their way in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::json::{Json, Object as Fields};
use super::kind::Kind;
use super::refusal::Refusal;
use super::state::{Meta, Object};
use super::types::{Cluster, ClusterOptions, ClusterSpec, Endpoint, EndpointState, Name};
use super::write::{Draft, Nesting, Opened, Writer};
use super::{parse, spec};

/// Endpoints that a cluster had before it is written again: those that are the same keep their names and lives.
#[derive(Default)]
struct PreviousEndpoints {
    by_name: BTreeMap<Name, Arc<Endpoint>>,
    /// By spec, newest first.
    by_spec: BTreeMap<Vec<u8>, Vec<Name>>,
}

impl Writer<'_> {
    /// Adds an endpoint to a cluster, or replaces one of its own.
    pub fn endpoint(&mut self, cluster: &str, given: Option<&Json>) -> Result<Name, Refusal> {
        // no part of the cluster is held while it changes, or each endpoint of many would copy all of it
        let Some(parent) = self.state.snapshot.clusters.get(cluster) else { return Err(Refusal::not_found()) };
        let (parent, spec, count) = (Arc::clone(&parent.name), parent.spec.clone(), parent.endpoints.len());
        self.check_cluster_of(cluster, given)?;
        let draft = match self.open(Kind::Endpoint, given, Nesting::Inside(cluster))? {
            Opened::Unchanged(name) => return Ok(name),
            Opened::Draft(draft) => draft,
        };
        let kept = self.state.endpoint(&draft.name).cloned();
        let most = self.state.snapshot.admin.limits.endpoints_per_cluster;
        if kept.is_none() && count >= most {
            return Err(too_many(most));
        }
        let (endpoint, meta) = self.build_endpoint(&draft, &parent, &spec, kept.as_deref())?;
        let name = Arc::clone(&endpoint.name);
        self.state.store_endpoint(Arc::new(endpoint), meta);
        self.touch_cluster(cluster);
        Ok(name)
    }

    /// Drains an endpoint, or puts it back into service.
    pub fn endpoint_state(&mut self, name: &str, to: EndpointState) -> Result<(), Refusal> {
        let before = self.state.endpoint(name).cloned().ok_or_else(Refusal::not_found)?;
        if before.state == to {
            return Ok(());
        }
        let Some(mut meta) = self.state.meta(Kind::Endpoint, name).cloned() else { return Ok(()) };
        let cluster = meta.cluster.clone().unwrap_or_default();
        meta.generation = self.state.snapshot.generation + 1;
        meta.written = None;
        meta.view = Arc::new(endpoint_view(name, &before.given, before.weight, to));
        self.state.store_endpoint(Arc::new(Endpoint { state: to, ..Endpoint::clone(&before) }), meta);
        self.touch_cluster(&cluster);
        Ok(())
    }

    pub(super) fn cluster(&mut self, draft: &Draft<'_>) -> Result<(), Refusal> {
        let given = draft.object("spec")?;
        let typed = spec::cluster(given, &self.state.snapshot.admin)?;
        let (balancer, shown) = spec::balancer(draft.fields.get("loadbalancer"), &typed)?;
        let options: ClusterOptions = match draft.fields.get("options") {
            Some(options) => draft.options(options)?,
            None => ClusterOptions::default(),
        };
        let endpoints = self.endpoints(draft, &typed)?;
        let mut view = Fields::default();
        view.set("name", &*draft.name);
        view.set("spec", spec::cluster_view(&typed, given));
        view.set("loadbalancer", shown);
        if let Some(options) = draft.fields.get("options") {
            view.set("options", options.clone());
        }
        let meta = self.meta(draft, view, Vec::new());
        let name = Arc::clone(&draft.name);
        let cluster = Cluster { id: draft.id, name, spec: typed, endpoints, balancer, options };
        self.state.store(Object::Cluster(Arc::new(cluster)), meta);
        Ok(())
    }

    fn endpoints(&mut self, draft: &Draft<'_>, spec: &ClusterSpec) -> Result<Vec<Arc<Endpoint>>, Refusal> {
        let given = match draft.fields.get("endpoints") {
            None => &[],
            Some(given) => given.as_array().ok_or_else(|| draft.invalid("endpoints"))?,
        };
        let most = self.state.snapshot.admin.limits.endpoints_per_cluster;
        if given.len() > most {
            return Err(too_many(most));
        }
        let mut previous = self.previous(&draft.name);
        let mut used = BTreeSet::new();
        let mut endpoints = Vec::with_capacity(given.len());
        for item in given {
            let endpoint = self.member(&draft.name, spec, item, &mut previous)?;
            if !used.insert(Arc::clone(&endpoint.name)) {
                return Err(taken(&endpoint.name));
            }
            endpoints.push(endpoint);
        }
        for name in previous.by_name.keys().filter(|name| !used.contains(*name)) {
            self.state.forget_endpoint(name);
        }
        Ok(endpoints)
    }

    fn member(
        &mut self,
        cluster: &Name,
        spec: &ClusterSpec,
        given: &Json,
        previous: &mut PreviousEndpoints,
    ) -> Result<Arc<Endpoint>, Refusal> {
        let kept = match given.get("name") {
            Some(name) => name.as_str().and_then(|name| previous.by_name.get(name).cloned()),
            None => given.get("spec").and_then(|spec| previous.alike(spec)),
        };
        let mut given = given.clone();
        if let (Some(kept), Json::Object(fields)) = (&kept, &mut given) {
            // its record is rewritten under the same name and id
            fields.set("name", &*kept.name);
            self.state.forget_endpoint(&kept.name);
        }
        let named = given.get("name").and_then(Json::as_str).map(str::to_owned);
        if named.is_some_and(|name| self.state.meta(Kind::Endpoint, &name).is_some()) {
            return Err(taken(given.get("name").and_then(Json::as_str).unwrap_or_default()));
        }
        let Opened::Draft(draft) = self.open(Kind::Endpoint, Some(&given), Nesting::Inside(cluster))? else {
            return Err(Refusal::not_found());
        };
        let (endpoint, meta) = self.build_endpoint(&draft, cluster, spec, kept.as_deref())?;
        self.state.record_endpoint(Arc::clone(&endpoint.name), meta);
        Ok(Arc::new(endpoint))
    }

    fn previous(&self, cluster: &str) -> PreviousEndpoints {
        let mut previous = PreviousEndpoints::default();
        let Some(cluster) = self.state.snapshot.clusters.get(cluster) else { return previous };
        for endpoint in cluster.endpoints.iter().rev() {
            if self.state.meta(Kind::Endpoint, &endpoint.name).is_some_and(|meta| meta.auto) {
                previous.by_spec.entry(sorted(&endpoint.given)).or_default().push(Arc::clone(&endpoint.name));
            }
            previous.by_name.insert(Arc::clone(&endpoint.name), Arc::clone(endpoint));
        }
        previous
    }

    fn build_endpoint(
        &self,
        draft: &Draft<'_>,
        cluster: &Name,
        spec: &ClusterSpec,
        kept: Option<&Endpoint>,
    ) -> Result<(Endpoint, Meta), Refusal> {
        if spec.is_virtual() {
            spec::endpoint_address(None, None, spec, &self.state.snapshot.admin)?;
        }
        let given = draft.object("spec")?;
        let read = |key: &str| given.get(key);
        let address = read("address").map(|address| address.as_str().ok_or_else(|| draft.invalid("spec.address")));
        let address = address.transpose()?;
        let port = read("port").map(Json::read).transpose().map_err(|_| draft.invalid("spec.port"))?;
        spec::endpoint_address(address, port, spec, &self.state.snapshot.admin)?;
        let weight = draft.fields.get("weight").map(Json::read).transpose().map_err(|_| draft.invalid("weight"))?;
        let state = draft.fields.get("state").map(Json::read).transpose().map_err(|_| draft.invalid("state"))?;
        let (weight, state) = (weight.unwrap_or(1), state.or(kept.map(|kept| kept.state)).unwrap_or_default());
        let endpoint = Endpoint {
            id: kept.map_or(draft.id, |kept| kept.id),
            name: Arc::clone(&draft.name),
            address: address.unwrap_or_default().to_owned(),
            port,
            weight,
            state,
            given: given.clone(),
        };
        let warnings = self.loop_warning(&endpoint, spec).into_iter().collect();
        let mut meta = self.meta(draft, endpoint_view(&draft.name, given, weight, state), warnings);
        meta.id = endpoint.id;
        meta.cluster = Some(Arc::clone(cluster));
        Ok((endpoint, meta))
    }

    /// An endpoint that is a listener of this very proxy may be a loop; it may also be meant.
    fn loop_warning(&self, endpoint: &Endpoint, spec: &ClusterSpec) -> Option<String> {
        let (family, port) = spec::remote(spec)?;
        let (address, port) = (parse::ip(&endpoint.address)?, endpoint.port.or(port)?);
        let listener = self.state.listener_at(family, address, port)?;
        Some(format!(
            "{}:{port} is listener \"{listener}\" of this proxy: this may be a routing loop",
            endpoint.address
        ))
    }

    /// Endpoint names are unique in the process, so an endpoint of another cluster is never replaced.
    fn check_cluster_of(&self, cluster: &str, given: Option<&Json>) -> Result<(), Refusal> {
        let Some(name) = given.and_then(|given| given.get("name")).and_then(Json::as_str) else { return Ok(()) };
        match self.state.meta(Kind::Endpoint, name) {
            Some(meta) if !self.replace || meta.cluster.as_deref() != Some(cluster) => Err(taken(name)),
            Some(_) | None => Ok(()),
        }
    }

    /// A part of the cluster changed, so writing it again as it once was is a change.
    fn touch_cluster(&mut self, cluster: &str) {
        let generation = self.state.snapshot.generation + 1;
        self.state.edit_meta(Kind::Cluster, cluster, |meta| {
            meta.written = None;
            meta.generation = generation;
        });
    }
}

impl PreviousEndpoints {
    fn alike(&mut self, spec: &Json) -> Option<Arc<Endpoint>> {
        let name = self.by_spec.get_mut(&sorted(spec))?.pop()?;
        self.by_name.get(&name).cloned()
    }
}

fn endpoint_view(name: &str, spec: &Json, weight: u32, state: EndpointState) -> Fields {
    let mut view = Fields::default();
    view.set("name", name);
    view.set("spec", spec.clone());
    view.set("weight", u64::from(weight));
    if state == EndpointState::Draining {
        view.set("state", "draining");
    }
    view
}

fn sorted(value: &Json) -> Vec<u8> {
    let mut text = Vec::new();
    value.write_sorted(&mut text);
    text
}

fn taken(name: &str) -> Refusal {
    Refusal::conflict(format!("Cannot add endpoint: Endpoint \"{name}\" already defined"))
}

fn too_many(most: usize) -> Refusal {
    let content =
        format!("Cannot add endpoint: at most {most} per cluster are allowed (admin.limits.endpoints_per_cluster)");
    Refusal::limit("endpoints_per_cluster", content)
}
