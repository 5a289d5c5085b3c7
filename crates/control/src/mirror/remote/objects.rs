//! A remote, read once.

use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::{ListParams, ObjectList};
use portolan_api::mirror::ServiceExport;

use super::client::client;
use super::connection::problem_of;
use super::target::{Google, Target};
use crate::mirror::slim::Slice;
use crate::mirror::validate::Problem;
use crate::runtime::problem::{Failure, RequestProblem};

/// What a remote has.
#[derive(Clone)]
pub(in crate::mirror) struct RemoteObjects {
    pub(in crate::mirror) services: Vec<Service>,
    pub(in crate::mirror) nodes: Vec<Node>,
    /// None: we may not read them.
    pub(in crate::mirror) slices: Option<Vec<Slice>>,
    /// None: we may not read them.
    pub(in crate::mirror) exports: Option<Vec<ServiceExport>>,
}

impl RemoteObjects {
    /// Reads a remote.
    pub(in crate::mirror) async fn read(
        target: &Target,
        google: &Google,
        allow_loopback: bool,
    ) -> Result<Self, Problem> {
        let access = target.resolve(google, allow_loopback).await?.access;
        let client = client(&access, allow_loopback).map_err(|message| Problem::new("KubeconfigRefused", message))?;
        let all = ListParams::default();
        let failed = |error: kube::Error| problem_of(RequestProblem::of(&error));
        let services = Api::<Service>::all(client.clone()).list(&all).await.map_err(failed)?.items;
        let nodes = Api::<Node>::all(client.clone()).list(&all).await.map_err(failed)?.items;
        let slices = unless_forbidden(Api::<Slice>::all(client.clone()).list(&all).await)?;
        let exports = match Api::<ServiceExport>::all(client).list(&all).await {
            // It does not know the kind, so it exports nothing.
            Err(kube::Error::Api(status)) if status.code == 404 => Some(Vec::new()),
            listed => unless_forbidden(listed)?,
        };
        Ok(Self { services, nodes, slices, exports })
    }
}

fn unless_forbidden<K: Clone>(listed: kube::Result<ObjectList<K>>) -> Result<Option<Vec<K>>, Problem> {
    match listed {
        Ok(listed) => Ok(Some(listed.items)),
        Err(error) => {
            let problem = RequestProblem::of(&error);
            if problem.failure == Failure::Forbidden { Ok(None) } else { Err(problem_of(problem)) }
        }
    }
}
