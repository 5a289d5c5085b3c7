//! Pods of our own image as processes of this machine, where there is no kubelet: in `portolan up`, and in tests.
//!
//! ```text
//!   Pod ----> read: what to start, or why it cannot be
//!              |--> volumes: folders below one; Secrets are written through
//!              |--> process: each container, started again when it ends
//!              '--> status: its address, whether all containers serve
//! ```
//!
//! A pod has an address to itself, which stands for all addresses and, off the host's network, for 127.0.0.1. Only the
//! proxy runs, only emptyDir and secret are mounted; what else a pod asks for is refused in its status. Every process
//! ends with this one.

mod process;
mod range;
mod read;
mod status;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use portolan_apiserver::controllers::slim::Pod;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

pub use self::range::Claim;

use self::process::{Launch, Process, Seen};
use self::read::Plan;
use self::status::Told;
use self::volumes::Folder;
use portolan_control::runtime::Error;
use portolan_control::runtime::app::Ctx;
use portolan_control::runtime::backoff::{Backoff, Delays};
use portolan_control::runtime::reconcile::{Next, Reconciler};
use portolan_control::runtime::store::{Key, Store};
use portolan_control::runtime::tasks::Tasks;
use portolan_control::runtime::watch::Selection;

/// How pods run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Pods run here if all their containers are of this image.
    pub image: String,
    /// The program that containers run, and what comes before their arguments in place of the word `proxy`.
    pub program: PathBuf,
    pub command: Vec<String>,
    /// Addresses for pods: all of them are this machine's.
    pub range: Ipv4Net,
    /// Volumes and logs lie in folders below; its name is short, as names of sockets are.
    pub folder: PathBuf,
    /// Looks after this namespace only; empty for all.
    pub namespace: String,
}

/// Starts one loop for all pods.
pub fn start(ctx: &Ctx, options: Options) {
    let mut watches = ctx.watches();
    let within = options.namespace.clone();
    let runner = Runner {
        pods: watches.add(Selection { namespace: within.clone(), ..Selection::default() }),
        secrets: watches.add(Selection { namespace: within, ..Selection::default() }),
        client: ctx.client.clone(),
        tasks: ctx.tasks.clone(),
        wake: watches.waker(),
        options,
        ours: BTreeSet::new(),
        members: BTreeMap::new(),
        leaving: Vec::new(),
        made: 0,
        delays: Backoff::REQUESTS.delays(),
    };
    ctx.tasks.spawn("pods", ctx.reconciles("pods").run(watches, runner));
}

struct Runner {
    pods: Store<Pod>,
    secrets: Store<Secret>,
    client: Client,
    tasks: Tasks,
    wake: Arc<Notify>,
    options: Options,
    /// Pods that run here.
    ours: BTreeSet<Arc<Key>>,
    members: BTreeMap<Arc<Key>, Member>,
    /// Pods that are no more, until their processes are not either.
    leaving: Vec<Member>,
    /// Folders made so far.
    made: u64,
    /// Before what failed is tried again.
    delays: Delays,
}

/// A pod that runs here.
struct Member {
    uid: String,
    address: Ipv4Addr,
    folder: Folder,
    /// None until it could be read.
    plan: Option<Plan>,
    processes: BTreeMap<String, Process>,
    started: Timestamp,
    ready: (bool, Timestamp),
    /// The status written last.
    told: Option<Value>,
}

/// How long a pod may take to end that does not say.
const GRACE: Duration = Duration::from_secs(30);

impl Reconciler for Runner {
    async fn reconcile(&mut self) -> Next {
        drop(self.secrets.take_changes());
        for key in self.pods.take_changes() {
            let of_ours = self.pods.get(&key).is_some_and(|pod| read::is_of(&pod, &self.options.image));
            if of_ours {
                self.ours.insert(key)
            } else {
                self.ours.remove(&key)
            };
        }
        self.part();
        let mut failed = false;
        for key in self.ours.clone() {
            let Some(pod) = self.pods.get(&key) else { continue };
            if let Err(problem) = self.tend(&key, &pod).await {
                tracing::debug!(%problem, pod = %key, "a pod is tried again");
                failed = true;
            }
        }
        if failed {
            return Next::After(self.delays.pause());
        }
        self.delays.reset();
        Next::OnChange
    }
}

impl Runner {
    /// Ends what runs for pods that are no more.
    fn part(&mut self) {
        let (pods, ours) = (&self.pods, &self.ours);
        let uid = |key: &Arc<Key>| ours.get(key).and_then(|key| pods.get(key)).and_then(|pod| pod.uid());
        let gone = self.members.extract_if(.., |key, member| uid(key).as_ref() != Some(&member.uid));
        self.leaving.extend(gone.map(|(_, member)| member));
        for member in &self.leaving {
            member.end(Instant::now());
        }
        self.leaving.retain(|member| !member.is_gone());
    }

    async fn tend(&mut self, key: &Arc<Key>, pod: &Pod) -> Result<(), Error> {
        if !self.members.contains_key(key) {
            if pod.metadata.deletion_timestamp.is_some() {
                return self.confirm(pod).await;
            }
            let Some(member) = self.welcome(pod) else { return Ok(()) };
            self.members.insert(Arc::clone(key), member);
        }
        let Self { members, secrets, options, tasks, wake, .. } = self;
        let Some(member) = members.get_mut(key) else { return Ok(()) };
        if pod.metadata.deletion_timestamp.is_some() {
            let grace = pod.metadata.deletion_grace_period_seconds.and_then(|seconds| u64::try_from(seconds).ok());
            member.end_within(grace.map_or(GRACE, Duration::from_secs));
            if member.is_gone() {
                return self.confirm(pod).await;
            }
            return Ok(());
        }
        let secret = |name: &str| {
            let key = Key { namespace: key.namespace.clone(), name: name.to_owned() };
            secrets.get(&key).as_deref().cloned()
        };
        let problem = member.bring(pod, secret, options, tasks, wake).err();
        let status = member.status(pod, problem.as_deref());
        if member.told.as_ref() == Some(&status) {
            return Ok(());
        }
        self.tell(key, pod, status).await
    }

    /// Gives a pod an address and a folder; the address that it had, if it can.
    fn welcome(&mut self, pod: &Pod) -> Option<Member> {
        let mut taken: BTreeSet<Ipv4Addr> =
            self.members.values().chain(&self.leaving).map(|member| member.address).collect();
        let fits = |address: &Ipv4Addr| self.options.range.contains(address) && !taken.contains(address);
        let had = address(pod).filter(fits);
        let others = self.ours.iter().filter_map(|key| address(&*self.pods.get(key)?));
        taken.extend(others.filter(|other| Some(*other) != had));
        let Some(address) = had.or_else(|| self.options.range.hosts().find(|free| !taken.contains(free))) else {
            tracing::warn!(pod = pod.name_any(), range = %self.options.range, "no address is left for a pod");
            return None;
        };
        self.made += 1;
        let folder = match Folder::make(self.options.folder.join(self.made.to_string())) {
            Ok(folder) => folder,
            Err(error) => {
                tracing::warn!(pod = pod.name_any(), %error, "the folder of a pod cannot be made");
                return None;
            }
        };
        let now = Timestamp::now();
        Some(Member {
            uid: pod.uid().unwrap_or_default(),
            address,
            folder,
            plan: None,
            processes: BTreeMap::new(),
            started: now,
            ready: (false, now),
            told: None,
        })
    }

    async fn tell(&mut self, key: &Arc<Key>, pod: &Pod, status: Value) -> Result<(), Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let body = Patch::Merge(json!({ "metadata": { "uid": pod.uid() }, "status": status }));
        match api.patch_status(&key.name, &PatchParams::default(), &body).await {
            Ok(written) => {
                self.pods.wrote(&written);
                if let Some(member) = self.members.get_mut(key) {
                    member.told = Some(status);
                }
                Ok(())
            }
            // It is no more, or another: the watch will tell.
            Err(kube::Error::Api(answer)) if answer.is_not_found() || answer.is_conflict() => Ok(()),
            Err(cause) => Err(Error::from_request(format!("status of Pod {key}"), cause)),
        }
    }

    /// Confirms that nothing of a deleted pod runs any more.
    async fn confirm(&self, pod: &Pod) -> Result<(), Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let preconditions = Some(Preconditions { uid: pod.uid(), resource_version: None });
        let now = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
        match api.delete(&pod.name_any(), &now).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(answer)) if answer.is_not_found() || answer.is_conflict() => Ok(()),
            Err(cause) => Err(Error::from_request(format!("delete Pod {}", pod.name_any()), cause)),
        }
    }
}

fn address(pod: &Pod) -> Option<Ipv4Addr> {
    pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()
}

impl Member {
    /// Starts what does not run yet; the text says why it cannot be.
    fn bring(
        &mut self,
        pod: &Pod,
        secret: impl Fn(&str) -> Option<Secret>,
        options: &Options,
        tasks: &Tasks,
        wake: &Arc<Notify>,
    ) -> Result<(), String> {
        if self.plan.is_none() {
            self.plan = Some(read::read(pod)?);
        }
        let Some(plan) = &self.plan else { return Ok(()) };
        let filled = self.folder.fill(plan, secret);
        if self.processes.is_empty() {
            filled?;
            let host = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
            for container in &plan.containers {
                let launch = self.launch(plan, container, host, options);
                let process = Process::start(launch, restarts(pod, &container.name), tasks, Arc::clone(wake));
                self.processes.insert(container.name.clone(), process);
            }
        }
        Ok(())
    }

    fn launch(&self, plan: &Plan, container: &read::Container, host: bool, options: &Options) -> Launch {
        let address: OsString = IpAddr::from(self.address).to_string().into();
        let ready_file = self.folder.path().join(format!("{}.ready", container.name));
        let mut environment = BTreeMap::from([
            ("PORTOLAN_PROXY_ADDRESS".to_owned(), address.clone()),
            ("PORTOLAN_PROXY_WORKERS".to_owned(), "1".into()),
            ("PORTOLAN_PROXY_READY_FILE".to_owned(), ready_file.clone().into_os_string()),
        ]);
        if !host {
            environment.insert("PORTOLAN_PROXY_LOCALHOST".to_owned(), address);
        }
        environment.extend(container.environment.iter().map(|(name, value)| (name.clone(), value.into())));
        let mut arguments: Vec<OsString> = options.command.iter().map(Into::into).collect();
        arguments.push("--end-with-stdin".into());
        for (path, volume) in &container.mounts {
            let mut mount = OsString::from(format!("{path}="));
            mount.push(self.folder.volume(plan, volume));
            arguments.extend(["--mount".into(), mount]);
        }
        arguments.extend(container.arguments.iter().map(Into::into));
        let log = self.folder.path().join(format!("{}.log", container.name));
        let environment = environment.into_iter().collect();
        Launch { program: options.program.clone(), arguments, environment, ready_file, log }
    }

    fn status(&mut self, pod: &Pod, problem: Option<&str>) -> Value {
        let containers: Vec<(&str, Seen)> =
            self.processes.iter().map(|(name, process)| (name.as_str(), process.seen())).collect();
        let ready = status::is_ready(&containers);
        if self.ready.0 != ready {
            self.ready = (ready, Timestamp::now());
        }
        let (started, since) = (self.started, self.ready.1);
        Told { pod, address: self.address, problem, containers, started, since }.status()
    }

    fn end(&self, deadline: Instant) {
        self.processes.values().for_each(|process| process.end(deadline));
    }

    /// From when this is first said.
    fn end_within(&mut self, grace: Duration) {
        self.end(Instant::now() + grace);
    }

    fn is_gone(&self) -> bool {
        self.processes.values().all(Process::is_gone)
    }
}

/// How often a container was started before: whoever ran it is no more.
fn restarts(pod: &Pod, container: &str) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let before = statuses.iter().find(|status| status.name == container);
    let ran = before.filter(|status| status.container_id.as_deref().is_some_and(|id| !id.is_empty()));
    ran.map_or(0, |status| status.restart_count + 1)
}
