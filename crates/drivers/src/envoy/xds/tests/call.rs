//! Calls over HTTP/2, with orders that change.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::{RecvStream, SendStream};
use prost::Message as _;
use tokio::io::DuplexStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::client::{Client, kinds};
use super::{id, snapshot, unit};
use crate::envoy::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use crate::envoy::resources::{Kind, Snapshot};
use crate::envoy::xds::grpc::{METHOD, frame, take_message};
use crate::envoy::xds::server::serve_connection;
use crate::envoy::xds::{Feed, Order, Progress};

/// One call on one connection.
struct Peer {
    send: SendStream<Bytes>,
    receive: RecvStream,
    buffer: BytesMut,
    _tasks: JoinSet<()>,
}

impl Peer {
    async fn call(method: &str, orders: &watch::Sender<Order>, progress: &Arc<Progress>) -> Self {
        let (ours, theirs): (DuplexStream, DuplexStream) = tokio::io::duplex(1 << 16);
        let feed = Feed { unit: id(), orders: orders.subscribe(), progress: Arc::clone(progress) };
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_connection(theirs, feed));
        let (client, connection) = h2::client::handshake(ours).await.unwrap();
        tasks.spawn(async { connection.await.unwrap_or_default() });
        let request = http::Request::post(format!("http://xds{method}")).body(()).unwrap();
        let (response, send) = client.ready().await.unwrap().send_request(request, false).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/grpc");
        if let Some(status) = response.headers().get("grpc-status") {
            assert_eq!(status, "12");
        }
        Self { send, receive: response.into_body(), buffer: BytesMut::new(), _tasks: tasks }
    }

    fn send(&mut self, requests: Vec<DeltaDiscoveryRequest>) {
        for request in requests {
            self.send.send_data(frame(&request), false).unwrap();
        }
    }

    /// The next response; none at the end of the call.
    async fn next(&mut self) -> Option<DeltaDiscoveryResponse> {
        loop {
            if let Some(message) = take_message(&mut self.buffer).unwrap() {
                return Some(DeltaDiscoveryResponse::decode(message).unwrap());
            }
            let data = timeout(Duration::from_mins(1), self.receive.data()).await.expect("a response is due")?;
            let data = data.unwrap();
            self.receive.flow_control().release_capacity(data.len()).unwrap();
            self.buffer.extend_from_slice(&data);
        }
    }

    /// Answers as a client does until all is answered for; what was received.
    async fn settle(&mut self, client: &mut Client, progress: &Progress, unit: &Order) -> Vec<DeltaDiscoveryResponse> {
        let Order::Serve(snapshot) = unit else { panic!("there is nothing to settle on") };
        let mut all = Vec::new();
        while progress.summary().answered != snapshot.unit {
            tokio::select! {
                response = self.next() => {
                    let response = response.expect("the call goes on");
                    self.send(client.receive(&response));
                    all.push(response);
                }
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
        }
        all
    }

    async fn status(mut self) -> String {
        while self.next().await.is_some() {}
        let trailers = self.receive.trailers().await.unwrap().expect("a call ends with its status");
        trailers["grpc-status"].to_str().unwrap().to_owned()
    }
}

fn feed(listeners: &[(u16, &str, u16)]) -> (watch::Sender<Order>, Arc<Progress>) {
    (watch::Sender::new(Order::Serve(snapshot(listeners))), Arc::new(Progress::new(|| {})))
}

#[tokio::test]
async fn a_client_is_served_until_another_replica_leads() {
    let (orders, progress) = feed(&[(80, "web", 1)]);
    let mut peer = Peer::call(METHOD, &orders, &progress).await;
    let mut client = Client::accepting();
    peer.send(client.connect());
    let order = orders.borrow().clone();
    let sent = peer.settle(&mut client, &progress, &order).await;
    assert_eq!(kinds(&sent), [Kind::Cluster, Kind::Assignment, Kind::Listener]);
    assert!(progress.summary().is_connected);
    orders.send_replace(Order::StandBy);
    assert_eq!(peer.status().await, "14");
    assert_eq!(Peer::call(METHOD, &orders, &progress).await.status().await, "14");
    assert!(!progress.summary().is_connected && progress.summary().answered.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_order_goes_out_at_once_and_those_of_the_next_ten_milliseconds_are_one_change() {
    let (orders, progress) = feed(&[(80, "web", 0)]);
    let mut peer = Peer::call(METHOD, &orders, &progress).await;
    let mut client = Client::accepting();
    peer.send(client.connect());
    let order = orders.borrow().clone();
    peer.settle(&mut client, &progress, &order).await;
    let began = Instant::now();
    orders.send_replace(Order::Serve(snapshot(&[(80, "web", 1)])));
    let first = peer.next().await.expect("the call goes on");
    assert!(began.elapsed() < Duration::from_millis(5), "{:?}", began.elapsed());
    peer.send(client.receive(&first));
    for endpoints in 2..=9 {
        orders.send_replace(Order::Serve(snapshot(&[(80, "web", endpoints)])));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let order = orders.borrow().clone();
    let sent = peer.settle(&mut client, &progress, &order).await;
    assert_eq!(kinds(&sent), [Kind::Assignment], "eight orders, one response");
    assert_eq!(progress.summary().answered, Some(unit(&[(80, "web", 9)])));
}

#[tokio::test]
async fn another_node_is_refused_and_shown() {
    let (orders, progress) = feed(&[]);
    let mut peer = Peer::call(METHOD, &orders, &progress).await;
    let mut requests = Client::accepting().connect();
    requests[0].node.as_mut().unwrap().id = "egw-other/web".to_owned();
    peer.send(requests);
    assert_eq!(peer.status().await, "7");
    let mismatch = progress.summary().mismatch.expect("it is shown");
    assert!(mismatch.contains("egw-other/web"), "{mismatch}");
}

#[tokio::test]
async fn other_methods_are_not_there() {
    let (orders, progress) = feed(&[]);
    let mut peer = Peer::call("/grpc.health.v1.Health/Check", &orders, &progress).await;
    assert!(peer.next().await.is_none());
}

#[tokio::test]
async fn a_client_that_never_answers_gets_one_response_of_a_kind() {
    let (orders, progress) = feed(&[(80, "web", 1)]);
    let mut peer = Peer::call(METHOD, &orders, &progress).await;
    peer.send(Client::accepting().connect());
    let first = peer.next().await.unwrap();
    assert_eq!(first.type_url, Kind::Cluster.type_url());
    for port in 81..200 {
        orders.send_replace(Order::Serve(snapshot(&[(80, "web", 1), (port, "web", 1)])));
        tokio::task::yield_now().await;
    }
    orders.send_replace(Order::Serve(Arc::new(Snapshot::empty())));
    tokio::time::sleep(Duration::from_millis(100)).await;
    orders.send_replace(Order::Stop);
    assert!(peer.next().await.is_none_or(|response| response.type_url != Kind::Cluster.type_url()));
}
