//! A remote, read once.

use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::ListParams;

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
        let slices = match Api::<Slice>::all(client).list(&all).await {
            Ok(slices) => Some(slices.items),
            Err(error) => {
                let problem = RequestProblem::of(&error);
                if problem.failure != Failure::Forbidden {
                    return Err(problem_of(problem));
                }
                None
            }
        };
        Ok(Self { services, nodes, slices })
    }
}
