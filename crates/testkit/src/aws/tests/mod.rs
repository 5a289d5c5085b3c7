//! The rules of EC2, each shown once by calls over the wire.

mod addresses;
mod calls;
mod instances;

use std::net::Ipv4Addr;
use std::time::Duration;

use http::Request;
use jiff::{SignedDuration, Timestamp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::keys::Key;
use super::{FakeEc2, Ran, sigv4};

/// An account with one subnet, and somebody who calls.
struct Lab {
    ec2: FakeEc2,
    subnet: String,
    key: Key,
    /// How far the caller's clock is ahead.
    clock_ahead: SignedDuration,
    /// The test itself breaks rules.
    breaks_rules: bool,
}

/// An answer.
#[derive(Debug)]
struct Reply {
    status: u16,
    body: String,
}

impl Reply {
    /// The error code; empty if there is none.
    fn code(&self) -> &str {
        let start = self.body.split("<Code>").nth(1).unwrap_or_default();
        start.split("</Code>").next().unwrap_or_default()
    }

    /// The texts of all elements of a name.
    fn texts(&self, name: &str) -> Vec<&str> {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        self.body.split(&*open).skip(1).filter_map(|part| part.split(&*close).next()).collect()
    }
}

impl Lab {
    async fn new() -> anyhow::Result<Self> {
        let ec2 = FakeEc2::start().await?;
        let subnet = ec2.add_subnet("a", "10.0.0.0/24".parse()?);
        let key = ec2.keys().issue(None);
        Ok(Self { ec2, subnet, key, clock_ahead: SignedDuration::ZERO, breaks_rules: false })
    }

    fn run(&self, size: &str) -> Ran {
        let ran = self.ec2.run(&self.subnet, size, 1).remove(0);
        self.ec2.boot(&ran.instance);
        ran
    }

    /// Calls; an error is a connection that was cut.
    async fn try_call(&self, action: &str, parameters: &[(&str, &str)]) -> anyhow::Result<Reply> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("Action", action).append_pair("Version", "2016-11-15").extend_pairs(parameters);
        let body = form.finish();
        let time = (Timestamp::now() + self.clock_ahead).strftime("%Y%m%dT%H%M%SZ").to_string();
        let host = self.ec2.endpoint().trim_start_matches("http://").to_owned();
        let mut request = Request::post("/")
            .header("host", &host)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("x-amz-date", &time);
        if let Some(token) = &self.key.token {
            request = request.header("x-amz-security-token", token);
        }
        let (head, ()) = request.body(())?.into_parts();
        let authorization = sigv4::authorization(&head, body.as_bytes(), &self.key, &time);
        let mut text = format!("POST / HTTP/1.1\r\nauthorization: {authorization}\r\nconnection: close\r\n");
        for (name, value) in &head.headers {
            text += &[name.as_str(), ": ", value.to_str()?, "\r\n"].concat();
        }
        text += &["content-length: ", &body.len().to_string(), "\r\n\r\n", &body].concat();
        let mut stream = TcpStream::connect(&host).await?;
        stream.write_all(text.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned();
        let status = status.ok_or_else(|| anyhow::anyhow!("the connection was cut"))?;
        Ok(Reply { status, body })
    }

    async fn call(&self, action: &str, parameters: &[(&str, &str)]) -> Reply {
        self.try_call(action, parameters).await.expect("it is answered")
    }

    async fn assign(&self, interface: &str, address: &str) -> Reply {
        let parameters = [("NetworkInterfaceId", interface), ("PrivateIpAddress.1", address)];
        self.call("AssignPrivateIpAddresses", &parameters).await
    }

    async fn take(&self, interface: &str, address: &str) -> Reply {
        let parameters =
            [("NetworkInterfaceId", interface), ("PrivateIpAddress.1", address), ("AllowReassignment", "true")];
        self.call("AssignPrivateIpAddresses", &parameters).await
    }

    async fn unassign(&self, interface: &str, address: &str) -> Reply {
        let parameters = [("NetworkInterfaceId", interface), ("PrivateIpAddress.1", address)];
        self.call("UnassignPrivateIpAddresses", &parameters).await
    }

    /// The addresses that a describe shows on an interface.
    async fn shown(&self, interface: &str) -> Vec<String> {
        let reply = self.call("DescribeNetworkInterfaces", &[("NetworkInterfaceId.1", interface)]).await;
        let set = reply.texts("privateIpAddressesSet").join("");
        Reply { status: 200, body: set }.texts("privateIpAddress").into_iter().map(str::to_owned).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.breaks_rules {
            assert_eq!(self.ec2.violations(), Vec::<String>::new());
        }
    }
}

const fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

/// A lag that no test waits for.
const FOREVER: Duration = Duration::from_hours(1000);
