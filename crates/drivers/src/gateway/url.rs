//! The URL of a group: where the gateway is, and which account and group of it are ours.

use std::net::IpAddr;

use http::Uri;

use super::error::GatewayError;

/// `https://gw.example/api/egw/accounts/ACCOUNT/groups/GROUP`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupUrl {
    scheme: Scheme,
    authority: String,
    host: String,
    port: u16,
    /// Everything up to the account's name.
    account_path: String,
    group: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

/// A URL that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{url}` is not the URL of a gateway's group: {problem}")]
pub struct UrlError {
    url: String,
    problem: &'static str,
}

impl GroupUrl {
    /// Reads a URL.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        // what stands before an at sign is a password
        let shown = text.rsplit_once('@').map_or(text, |(_, rest)| rest);
        let bad = |problem| UrlError { url: shown.to_owned(), problem };
        let uri: Uri = text.trim_end_matches('/').parse().map_err(|_| bad("it cannot be read"))?;
        let scheme = match uri.scheme_str() {
            Some("https") => Scheme::Https,
            Some("http") => Scheme::Http,
            _ => return Err(bad("it begins with neither https:// nor http://")),
        };
        let authority = uri.authority().map(|authority| authority.as_str().to_owned()).unwrap_or_default();
        if authority.contains('@') {
            return Err(bad("it has a login: put that into the Secret"));
        }
        if uri.query().is_some() {
            return Err(bad("it has a query"));
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(bad("it has no host"));
        }
        let is_local = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if scheme == Scheme::Http && !is_local {
            return Err(bad("use https://, as the login is sent with every request"));
        }
        let form = "its path does not end in /accounts/ACCOUNT/groups/GROUP";
        let (account_path, group) = uri.path().rsplit_once("/groups/").ok_or_else(|| bad(form))?;
        let (_, account) = account_path.rsplit_once("/accounts/").ok_or_else(|| bad(form))?;
        if !is_segment(account) || !is_segment(group) {
            return Err(bad(form));
        }
        let port = uri.port_u16().unwrap_or(if scheme == Scheme::Https { 443 } else { 80 });
        Ok(Self { scheme, authority, host, port, account_path: account_path.to_owned(), group: group.to_owned() })
    }

    /// The name of the group.
    pub fn group(&self) -> &str {
        &self.group
    }

    pub(super) fn is_tls(&self) -> bool {
        self.scheme == Scheme::Https
    }

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn account_path(&self) -> &str {
        &self.account_path
    }

    pub(super) fn group_path(&self) -> String {
        format!("{}/groups/{}", self.account_path, self.group)
    }

    /// The path and query that a link or a redirect leads to: of this gateway alone, as our login goes there.
    pub(super) fn same_host(&self, link: &str) -> Result<String, GatewayError> {
        let foreign = || GatewayError::InvalidResponse(format!("a link to another host: `{}`", link.escape_default()));
        if link.starts_with('/') && !link.starts_with("//") {
            return Ok(link.to_owned());
        }
        let uri: Uri = link.parse().map_err(|_| foreign())?;
        let scheme = if self.is_tls() { "https" } else { "http" };
        let is_same =
            uri.scheme_str() == Some(scheme) && uri.authority().is_some_and(|one| one.as_str() == self.authority);
        if !is_same {
            return Err(foreign());
        }
        Ok(uri.path_and_query().map_or("/", |path| path.as_str()).to_owned())
    }
}

fn is_segment(text: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_');
    !text.is_empty() && text.chars().all(is_plain) && text.chars().any(|letter| letter != '.')
}
