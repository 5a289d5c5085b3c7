//! A request to the API and its answer, free of any HTTP library: sessions that reach a cluster of protocol
//! `L7mpController` bring them as well as the API's own server does.

use std::net::IpAddr;

/// One request, whole.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// In capitals.
    pub method: String,
    /// Path and query as on the request line, percent-encoded.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub client: Client,
}

/// Who asks.
#[derive(Debug, Clone, Default)]
pub struct Client {
    /// Where the connection comes from; `None` for a Unix socket, which is as near as loopback.
    pub address: Option<IpAddr>,
    /// It showed a certificate that our authority signed.
    pub certified: bool,
}

/// One answer, whole; the transport adds nothing but `Date` and `Connection`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// The reason phrase; HTTP/1.1 carries it.
    pub reason: String,
    /// `Content-Length` among them.
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

/// Takes requests to the API's own thread. A worker hands in and goes on; it never waits.
pub trait Desk: Send + Sync {
    /// Queues a request; `reply` is called on the API's thread. A full queue answers at once, with 429.
    fn submit(&self, request: Request, reply: Reply);

    /// Asks for the metrics on behalf of a cluster of protocol Prometheus. Whoever routes sessions there says who may
    /// read them, so nobody is asked for a token.
    fn metrics(&self, reply: Reply) {
        reply(Response { status: 503, reason: "Service Unavailable".to_owned(), ..Response::default() });
    }
}

/// What to do with an answer.
pub type Reply = Box<dyn FnOnce(Response) + Send>;

impl Request {
    /// A header's value, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}
