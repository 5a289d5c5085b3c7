//! API requests and responses, independent of any HTTP library: they come from the API server and from sessions routed
//! to a cluster of protocol `L7mpController`.

use std::net::IpAddr;

/// A complete request.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// In upper case.
    pub method: String,
    /// Path and query as on the request line, percent-encoded.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub client: Client,
}

/// The client of a request.
#[derive(Debug, Clone, Default)]
pub struct Client {
    /// The peer address; `None` for a Unix socket, which is treated as loopback.
    pub address: Option<IpAddr>,
    /// It presented a certificate signed by the configured CA.
    pub certified: bool,
}

/// A complete response; the transport adds only `Date` and `Connection`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// The reason phrase; HTTP/1.1 carries it.
    pub reason: String,
    /// `Content-Length` among them.
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

/// Hands requests to the API thread. Calls never block, so that workers can use it.
pub trait ApiHandler: Send + Sync {
    /// Queues a request; `reply` is called on the API thread. If the queue is full, it is called at once with 429.
    fn submit(&self, request: Request, reply: Reply);

    /// Requests the metrics for a cluster of protocol Prometheus. The routing decides who may read them, so no token is
    /// required.
    fn metrics(&self, reply: Reply) {
        reply(Response { status: 503, reason: "Service Unavailable".to_owned(), ..Response::default() });
    }
}

/// Receives the response.
pub type Reply = Box<dyn FnOnce(Response) + Send>;

impl Request {
    /// A header's value, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}
