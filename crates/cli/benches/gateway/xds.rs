//! A client of delta xDS in place of Envoy: it accepts all that it is sent, and knows when it did.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use h2::{RecvStream, SendStream};
use http::Request;
use prost::Message;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

const METHOD: &str = "http://xds/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const ASSIGNMENT: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";

#[derive(Clone, PartialEq, Message)]
struct DeltaRequest {
    #[prost(message, optional, tag = "1")]
    node: Option<Node>,
    #[prost(string, tag = "2")]
    type_url: String,
    #[prost(string, repeated, tag = "3")]
    subscribe: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    unsubscribe: Vec<String>,
    #[prost(string, tag = "6")]
    nonce: String,
}

#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, PartialEq, Message)]
struct DeltaResponse {
    #[prost(message, repeated, tag = "2")]
    resources: Vec<Resource>,
    #[prost(string, tag = "4")]
    type_url: String,
    #[prost(string, tag = "5")]
    nonce: String,
    #[prost(string, repeated, tag = "6")]
    removed: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, optional, tag = "2")]
    content: Option<Any>,
    #[prost(string, tag = "3")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// A `ClusterLoadAssignment`, as far as it is counted.
#[derive(Clone, PartialEq, Message)]
struct Assignment {
    #[prost(message, repeated, tag = "2")]
    localities: Vec<Locality>,
}

#[derive(Clone, PartialEq, Message)]
struct Locality {
    #[prost(bytes = "bytes", repeated, tag = "2")]
    endpoints: Vec<Bytes>,
}

/// What a client has, and since when.
#[derive(Debug, Clone, Default)]
pub(crate) struct Held {
    /// Listeners and clusters, by type and name.
    names: BTreeSet<(String, String)>,
    /// The endpoints as they were sent, by cluster.
    assignments: BTreeMap<String, Vec<Bytes>>,
    /// When the newest answer was sent.
    answered: Option<Instant>,
}

impl Held {
    /// True if traffic can flow to so many endpoints.
    pub(crate) fn serves(&self, endpoints: usize) -> bool {
        let has = |kind: &str| self.names.iter().any(|(of, _)| of == kind);
        has(CLUSTER) && has(LISTENER) && self.assignments.values().map(Vec::len).sum::<usize>() == endpoints
    }

    /// True if one of the endpoints is at this address.
    fn has(&self, address: &str) -> bool {
        let address = address.as_bytes();
        let is_at = |endpoint: &Bytes| endpoint.windows(address.len()).any(|part| part == address);
        self.assignments.values().flatten().any(is_at)
    }
}

/// A client of one unit; it hangs up when dropped.
pub(crate) struct Client {
    /// The unit, as `namespace/name`.
    pub(crate) id: String,
    held: watch::Receiver<Held>,
    _task: JoinSet<anyhow::Result<()>>,
}

impl Client {
    /// Connects as the Envoy that this bootstrap was written for.
    pub(crate) fn start(bootstrap: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(bootstrap)?;
        let config: Value = serde_json::from_str(&text)?;
        let id = config["node"]["id"].as_str().context("a node id")?.to_owned();
        let socket = bootstrap.with_file_name("xds.sock");
        let (report, held) = watch::channel(Held::default());
        let node = id.clone();
        let mut task = JoinSet::new();
        task.spawn(async move { converse(&socket, node, &report).await });
        Ok(Self { id, held, _task: task })
    }

    /// Waits until it has what is asked for; gives when it said so to the server.
    pub(crate) async fn until(&mut self, is_met: impl Fn(&Held) -> bool) -> anyhow::Result<Instant> {
        let waited = tokio::time::timeout(Duration::from_mins(2), self.held.wait_for(is_met)).await;
        let held = waited.with_context(|| format!("{} never got it", self.id))?.context("the call has ended")?;
        held.answered.context("it was answered")
    }

    pub(crate) async fn until_endpoint(&mut self, address: &str) -> anyhow::Result<Instant> {
        self.until(|held| held.has(address)).await
    }

    pub(crate) async fn until_no_endpoint(&mut self, address: &str) -> anyhow::Result<Instant> {
        self.until(|held| !held.has(address)).await
    }
}

async fn converse(socket: &Path, id: String, report: &watch::Sender<Held>) -> anyhow::Result<()> {
    let stream = UnixStream::connect(socket).await?;
    let (client, connection) = h2::client::Builder::new().initial_window_size(1 << 20).handshake(stream).await?;
    let talk = async {
        let request = Request::post(METHOD).header("content-type", "application/grpc").body(())?;
        let (response, mut send) = client.ready().await?.send_request(request, false)?;
        let first = |kind: &str| DeltaRequest {
            node: Some(Node { id: id.clone() }),
            type_url: kind.to_owned(),
            ..DeltaRequest::default()
        };
        say(&mut send, &first(CLUSTER))?;
        say(&mut send, &first(LISTENER))?;
        let mut receive = response.await?.into_body();
        let mut buffer = BytesMut::new();
        while let Some(response) = next(&mut receive, &mut buffer).await? {
            take(response, &mut send, report)?;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        talked = talk => talked,
        ended = connection => Ok(ended?),
    }
}

/// Accepts a response, and asks for what it makes necessary.
fn take(response: DeltaResponse, send: &mut SendStream<Bytes>, report: &watch::Sender<Held>) -> anyhow::Result<()> {
    let DeltaResponse { resources, type_url, nonce, removed } = response;
    let mut held = report.borrow().clone();
    let accepted = DeltaRequest { type_url: type_url.clone(), nonce, ..DeltaRequest::default() };
    let mut follow = DeltaRequest { type_url: ASSIGNMENT.to_owned(), ..DeltaRequest::default() };
    for Resource { name, content } in resources {
        if type_url == ASSIGNMENT {
            let assignment = Assignment::decode(content.context("a resource has content")?.value)?;
            let endpoints = assignment.localities.into_iter().flat_map(|locality| locality.endpoints).collect();
            held.assignments.insert(name, endpoints);
        } else if held.names.insert((type_url.clone(), name.clone())) && type_url == CLUSTER {
            follow.subscribe.push(name);
        }
    }
    for name in removed {
        held.assignments.remove(&name);
        if held.names.remove(&(type_url.clone(), name.clone())) && type_url == CLUSTER {
            held.assignments.remove(&name);
            follow.unsubscribe.push(name);
        }
    }
    say(send, &accepted)?;
    held.answered = Some(Instant::now());
    if !follow.subscribe.is_empty() || !follow.unsubscribe.is_empty() {
        say(send, &follow)?;
    }
    report.send_replace(held);
    Ok(())
}

fn say(send: &mut SendStream<Bytes>, request: &DeltaRequest) -> anyhow::Result<()> {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(request.encoded_len())?);
    request.encode(&mut bytes)?;
    Ok(send.send_data(bytes.freeze(), false)?)
}

async fn next(receive: &mut RecvStream, buffer: &mut BytesMut) -> anyhow::Result<Option<DeltaResponse>> {
    loop {
        if let Some((head, _)) = buffer.split_first_chunk::<5>() {
            let [flag, length @ ..] = *head;
            ensure!(flag == 0, "nothing is compressed");
            let length = usize::try_from(u32::from_be_bytes(length))?;
            if buffer.len() >= 5 + length {
                buffer.advance(5);
                return Ok(Some(DeltaResponse::decode(buffer.split_to(length).freeze())?));
            }
        }
        let Some(data) = receive.data().await else { return Ok(None) };
        let data = data?;
        receive.flow_control().release_capacity(data.len())?;
        buffer.extend_from_slice(&data);
    }
}
