//! What rules see of an HTTP request.

use crate::proto::http1::Head;
use serde_json::{Map, Value, json};
use std::net::SocketAddr;

/// The metadata of a session that began with this request.
pub(crate) fn http_metadata(head: &Head, local: SocketAddr, peer: Option<SocketAddr>) -> Value {
    let names = head.headers.iter().map(|(name, _)| name.clone());
    let headers: Map<String, Value> =
        names.map(|name| (name.clone(), Value::String(head.header(&name).unwrap_or_default()))).collect();
    let peer_ip = peer.map(|peer| peer.ip().to_string()).unwrap_or_default();
    json!({
        "IP": { "src_addr": peer_ip, "dst_addr": local.ip().to_string() },
        "TCP": { "src_port": peer.map_or(0, |peer| peer.port()), "dst_port": local.port() },
        "HTTP": {
            "version": head.version(), "method": head.method(), "url": url(head.target()),
            "headers": headers,
        },
    })
}

/// The parts of a request's target, as l7mp takes it apart: protocol, host and port are those of the target itself, so
/// they are empty unless it is a whole URL.
fn url(target: &str) -> Value {
    let (protocol, authority, rest) = split_target(target);
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_ascii_lowercase();
    let port = authority.rsplit_once(':').map(|(_, port)| port).filter(|port| port.bytes().all(|b| b.is_ascii_digit()));
    let (path, fragment) = rest.split_once('#').map_or((rest, ""), |(path, _)| (path, &rest[path.len()..]));
    let slash = if protocol.is_empty() || path.starts_with('/') { "" } else { "/" };
    let path = format!("{slash}{path}");
    let slashes = if protocol.is_empty() { "" } else { "//" };
    let (pathname, query) = path.split_once('?').unwrap_or((&path, ""));
    json!({
        "url": target, "href": format!("{protocol}{slashes}{authority}{path}{fragment}"), "protocol": protocol,
        "host": authority, "port": port.unwrap_or_default(), "path": path, "query": query, "pathname": pathname,
    })
}

/// Protocol with its colon, authority, and the rest of a target; the first two are empty unless it is a whole URL.
fn split_target(target: &str) -> (String, &str, &str) {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    match target.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => {
            let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
            (format!("{}:", scheme.to_ascii_lowercase()), authority, path)
        }
        _ => (String::new(), "", target),
    }
}

/// Path and query of a target, which clients of proxies send as a whole URL.
pub(crate) fn origin_form(target: &str) -> &str {
    let (protocol, _, path) = split_target(target);
    if !protocol.is_empty() && path.is_empty() { "/" } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_taken_apart_as_by_l7mp() {
        for (target, parts) in [
            ("/chat?x=1", ["/chat?x=1", "", "", "", "/chat?x=1", "x=1"]),
            ("/", ["/", "", "", "", "/", ""]),
            ("*", ["*", "", "", "", "*", ""]),
            ("/a?u=http://h/", ["/a?u=http://h/", "", "", "", "/a?u=http://h/", "u=http://h/"]),
            ("http://H:80/p?q=1#f", ["http://h:80/p?q=1#f", "http:", "h:80", "80", "/p?q=1", "q=1"]),
            ("HTTPS://u:p@h", ["https://h/", "https:", "h", "", "/", ""]),
            ("http://[::1]:8?q", ["http://[::1]:8/?q", "http:", "[::1]:8", "8", "/?q", "q"]),
        ] {
            let url = url(target);
            let got = ["href", "protocol", "host", "port", "path", "query"].map(|key| url[key].as_str().unwrap());
            assert_eq!(got, parts, "{target}");
        }
        assert_eq!(["/a?b", "http://h/a?b", "http://h"].map(origin_form), ["/a?b", "/a?b", "/"]);
    }
}
