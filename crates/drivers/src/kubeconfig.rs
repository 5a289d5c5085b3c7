//! Kubeconfigs of other clusters, from Secrets: whoever may write the Secret must not be able to run commands, read
//! files or send requests from here. So only what is needed is accepted, and everything else is refused by name.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use http::Uri;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;

/// How to reach an API server.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    /// URL of the API server.
    pub server: String,
    /// Certificates to trust, in PEM. None: the public authorities.
    pub ca: Option<Vec<u8>>,
    /// The name in the server's certificate, if it is not that of the URL.
    pub tls_server_name: Option<String>,
    /// Who we are there.
    pub identity: Identity,
}

/// Who we are at an API server.
#[derive(Clone, PartialEq, Eq)]
pub enum Identity {
    /// A bearer token.
    Token(String),
    /// A client certificate with its key, both in PEM.
    Certificate {
        /// The certificate chain.
        certificate: Vec<u8>,
        /// Its private key.
        key: Vec<u8>,
    },
}

// Secrets are in no log.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Access({})", self.server)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Token(_) => "Token",
            Self::Certificate { .. } => "Certificate",
        })
    }
}

impl Access {
    /// What to trust at the server, and who we are there.
    pub fn tls(&self) -> Result<ClientConfig, KubeconfigRefused> {
        let mut roots = RootCertStore::empty();
        match &self.ca {
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(pem) => {
                let wrong = || refused("cluster.certificate-authority-data", "it holds no certificate in PEM");
                for certificate in certificates(pem).ok_or_else(wrong)? {
                    roots.add(certificate).map_err(|_| wrong())?;
                }
            }
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|cause| refused("cluster.server", &cause.to_string()))?
            .with_root_certificates(roots);
        match &self.identity {
            Identity::Token(_) => Ok(builder.with_no_client_auth()),
            Identity::Certificate { certificate, key } => {
                let chain = certificates(certificate)
                    .ok_or_else(|| refused("user.client-certificate-data", "it holds no certificate in PEM"))?;
                let wrong =
                    || refused("user.client-key-data", "it holds no private key in PEM that fits the certificate");
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| wrong())?;
                builder.with_client_auth_cert(chain, key).map_err(|_| wrong())
            }
        }
    }
}

fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|certificates| !certificates.is_empty())
}

/// Why a kubeconfig is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct KubeconfigRefused {
    field: String,
    problem: String,
}

/// Reads the cluster and the user of a context; of the current one if none is named.
pub fn parse(text: &str, context: Option<&str>, allow_loopback: bool) -> Result<Access, KubeconfigRefused> {
    let file: Value = serde_saphyr::from_str(text).map_err(|_| refused("kubeconfig", "it is not YAML"))?;
    let context = context.filter(|context| !context.is_empty()).or_else(|| file["current-context"].as_str());
    let context = context.ok_or_else(|| refused("current-context", "it is missing: set it, or name a context"))?;
    let chosen = named(&file, "contexts", context, "context")?;
    let reference = |field: &str| {
        let name = chosen.get(field).and_then(Value::as_str).filter(|name| !name.is_empty());
        name.ok_or_else(|| refused(&format!("contexts[{context}].{field}"), "it is missing"))
    };
    let cluster = named(&file, "clusters", reference("cluster")?, "cluster")?;
    let user = named(&file, "users", reference("user")?, "user")?;
    check_fields("cluster", &cluster, &CLUSTER_FIELDS)?;
    check_fields("user", &user, &USER_FIELDS)?;
    let server = string(&cluster, "server").ok_or_else(|| refused("cluster.server", "it is missing"))?;
    check_server(&server, allow_loopback)?;
    Ok(Access {
        server,
        ca: data(&cluster, "cluster", "certificate-authority-data")?,
        tls_server_name: string(&cluster, "tls-server-name"),
        identity: identity(&user)?,
    })
}

type Fields = BTreeMap<String, Value>;

/// A field, and why it is refused unless it is empty.
type FieldRule = (&'static str, Option<&'static str>);

const FILE: Option<&str> = Some("files are not read: put the content into the field that ends with -data");
const IMPERSONATION: Option<&str> = Some("impersonation is not allowed: use credentials of the account itself");
const PASSWORD: Option<&str> = Some("API servers take no passwords: use a token or a client certificate");

const CLUSTER_FIELDS: [FieldRule; 8] = [
    ("server", None),
    ("certificate-authority-data", None),
    ("tls-server-name", None),
    ("disable-compression", None),
    ("extensions", None),
    ("certificate-authority", FILE),
    ("insecure-skip-tls-verify", Some("the server must be verified: give certificate-authority-data")),
    ("proxy-url", Some("proxies are not used: remove it")),
];

const USER_FIELDS: [FieldRule; 15] = [
    ("token", None),
    ("client-certificate-data", None),
    ("client-key-data", None),
    ("extensions", None),
    ("exec", Some("commands are not run: use a token or a client certificate")),
    ("auth-provider", Some("authentication plugins are not used: use a token or a client certificate")),
    ("tokenFile", FILE),
    ("client-certificate", FILE),
    ("client-key", FILE),
    ("username", PASSWORD),
    ("password", PASSWORD),
    ("as", IMPERSONATION),
    ("as-uid", IMPERSONATION),
    ("as-groups", IMPERSONATION),
    ("as-user-extra", IMPERSONATION),
];

fn check_fields(of: &str, fields: &Fields, rules: &[FieldRule]) -> Result<(), KubeconfigRefused> {
    for (name, _) in fields.iter().filter(|(_, value)| !is_empty(value)) {
        let problem = match rules.iter().find(|(known, _)| known == name) {
            Some((_, None)) => continue,
            Some((_, Some(problem))) => problem,
            None => "it is not known: remove it",
        };
        return Err(refused(&format!("{of}.{name}"), problem));
    }
    Ok(())
}

/// The entry of this name in a list of named entries.
fn named(file: &Value, list: &str, name: &str, inner: &str) -> Result<Fields, KubeconfigRefused> {
    let entries = file[list].as_array().into_iter().flatten();
    let entry = entries.into_iter().find(|entry| entry["name"].as_str() == Some(name));
    let fields = entry.and_then(|entry| entry[inner].as_object());
    let fields = fields.ok_or_else(|| refused(list, &format!("there is no {inner} named `{}`", short(name))))?;
    Ok(fields.clone().into_iter().collect())
}

fn identity(user: &Fields) -> Result<Identity, KubeconfigRefused> {
    let certificate = data(user, "user", "client-certificate-data")?;
    let key = data(user, "user", "client-key-data")?;
    match (string(user, "token"), certificate, key) {
        (Some(token), None, None) if token.chars().all(|letter| letter.is_ascii_graphic()) => {
            Ok(Identity::Token(token))
        }
        (Some(_), None, None) => Err(refused("user.token", "it has characters that no token has")),
        (None, Some(certificate), Some(key)) => Ok(Identity::Certificate { certificate, key }),
        (None, Some(_), None) => Err(refused("user.client-key-data", "it is missing")),
        (None, None, Some(_)) => Err(refused("user.client-certificate-data", "it is missing")),
        (None, None, None) => Err(refused("user", "give a token, or client-certificate-data with client-key-data")),
        (Some(_), _, _) => Err(refused("user", "give either a token or a client certificate, not both")),
    }
}

fn check_server(server: &str, allow_loopback: bool) -> Result<(), KubeconfigRefused> {
    let field = "cluster.server";
    let uri: Uri = server.parse().map_err(|_| refused(field, "it is not a URL"))?;
    if uri.scheme_str() != Some("https") {
        return Err(refused(field, "it must begin with https://"));
    }
    if uri.authority().is_none_or(|authority| authority.as_str().contains('@')) {
        return Err(refused(field, "it must have a host, and no user"));
    }
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_local_name = host == "localhost" || host.ends_with(".localhost");
    let forbidden = match host.parse() {
        Ok(address) => forbidden_address(address, allow_loopback),
        Err(_) if is_local_name && !allow_loopback => Some(LOOPBACK),
        Err(_) => None,
    };
    forbidden.map_or(Ok(()), |problem| Err(refused(field, problem)))
}

/// Why no request may go to an address; names are checked when they are resolved.
pub fn forbidden_address(address: IpAddr, allow_loopback: bool) -> Option<&'static str> {
    let address = address.to_canonical();
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if address.is_loopback() {
        (!allow_loopback).then_some(LOOPBACK)
    } else if link_local {
        Some("it leads to a link-local address, like the metadata service of clouds")
    } else if address.is_unspecified() || address.is_multicast() {
        Some("it leads to an address that no server has")
    } else {
        None
    }
}

const LOOPBACK: &str = "it leads to this machine itself: give the address of the remote cluster";

fn data(fields: &Fields, of: &str, name: &str) -> Result<Option<Vec<u8>>, KubeconfigRefused> {
    let Some(text) = string(fields, name) else { return Ok(None) };
    let decoded = base64::engine::general_purpose::STANDARD.decode(text.trim());
    decoded.map(Some).map_err(|_| refused(&format!("{of}.{name}"), "it is not base64"))
}

fn string(fields: &Fields, name: &str) -> Option<String> {
    fields.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

fn refused(field: &str, problem: &str) -> KubeconfigRefused {
    KubeconfigRefused { field: short(field), problem: problem.to_owned() }
}

fn short(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: east\n\
             contexts: [{{ name: east, context: {{ cluster: east, user: mirror, namespace: shop }} }}]\n\
             clusters: [{{ name: east, cluster: {{ {cluster} }} }}]\n\
             users: [{{ name: mirror, user: {{ {user} }} }}]\n"
        )
    }

    const SERVER: &str = "server: 'https://east.example:6443'";
    const TOKEN: &str = "token: abc.def";

    #[test]
    fn a_token_or_a_client_certificate_is_accepted() {
        let cluster = format!("{SERVER}, certificate-authority-data: Y2E=, tls-server-name: api");
        let access = parse(&file(&cluster, TOKEN), None, false).unwrap();
        assert_eq!(access.server, "https://east.example:6443");
        assert_eq!((access.ca.as_deref(), access.tls_server_name.as_deref()), (Some(&b"ca"[..]), Some("api")));
        assert_eq!(access.identity, Identity::Token("abc.def".to_owned()));
        let both = "client-certificate-data: Y2VydA==, client-key-data: a2V5, exec: null, as-groups: []";
        let access = parse(&file(SERVER, both), Some("east"), false).unwrap();
        let expected = Identity::Certificate { certificate: b"cert".to_vec(), key: b"key".to_vec() };
        assert_eq!((access.identity, access.ca), (expected, None));
    }

    #[test]
    fn every_field_that_reads_files_runs_commands_or_goes_elsewhere_is_refused_by_name() {
        for (cluster, user, field) in [
            (SERVER, "exec: { command: sh }", "user.exec"),
            (SERVER, "auth-provider: { name: gcp }", "user.auth-provider"),
            (SERVER, "tokenFile: /etc/shadow", "user.tokenFile"),
            (SERVER, "client-certificate: /x, client-key-data: a2V5", "user.client-certificate"),
            (SERVER, "client-key: /x, client-certificate-data: a2V5", "user.client-key"),
            (SERVER, "username: a, password: b", "user.password"),
            (SERVER, "username: a", "user.username"),
            (SERVER, "token: a, as: admin", "user.as"),
            (SERVER, "token: a, as-uid: '1'", "user.as-uid"),
            (SERVER, "token: a, as-groups: ['system:masters']", "user.as-groups"),
            (SERVER, "token: a, as-user-extra: { a: [b] }", "user.as-user-extra"),
            (SERVER, "token: a, client-certificate-data: a2V5, client-key-data: a2V5", "user"),
            (SERVER, "token: \"a\\r\\nX: y\"", "user.token"),
            (SERVER, "client-key-data: a2V5", "user.client-certificate-data"),
            (SERVER, "surprise: 1", "user.surprise"),
            (SERVER, "", "user"),
            ("certificate-authority: /x, server: 'https://a'", TOKEN, "cluster.certificate-authority"),
            ("insecure-skip-tls-verify: true, server: 'https://a'", TOKEN, "cluster.insecure-skip-tls-verify"),
            ("proxy-url: 'http://a', server: 'https://a'", TOKEN, "cluster.proxy-url"),
            ("certificate-authority-data: '%', server: 'https://a'", TOKEN, "cluster.certificate-authority-data"),
            ("server: 'http://east.example'", TOKEN, "cluster.server"),
            ("server: 'https://admin@east.example'", TOKEN, "cluster.server"),
            ("server: 'https://127.0.0.1:6443'", TOKEN, "cluster.server"),
            ("server: 'https://[::1]:6443'", TOKEN, "cluster.server"),
            ("server: 'https://[::ffff:127.0.0.1]'", TOKEN, "cluster.server"),
            ("server: 'https://localhost'", TOKEN, "cluster.server"),
            ("server: 'https://169.254.169.254'", TOKEN, "cluster.server"),
            ("server: 'https://[fe80::1]'", TOKEN, "cluster.server"),
            ("server: 'https://0.0.0.0'", TOKEN, "cluster.server"),
            ("server: /a", TOKEN, "cluster.server"),
            ("", TOKEN, "cluster.server"),
        ] {
            let error = parse(&file(cluster, user), None, false).expect_err(&format!("{cluster} {user}"));
            assert_eq!(error.field, field, "{cluster} {user}: {error}");
        }
        assert!(parse(&file("server: 'https://127.0.0.1:6443'", TOKEN), None, true).is_ok(), "for tests");
        assert!(parse(&file("server: 'https://169.254.169.254'", TOKEN), None, true).is_err());
    }

    #[test]
    fn what_is_missing_is_named() {
        for (text, context, expected) in [
            ("][", None, "kubeconfig: it is not YAML"),
            ("{}", None, "current-context: it is missing: set it, or name a context"),
            (&file(SERVER, TOKEN), Some("west"), "contexts: there is no context named `west`"),
        ] {
            assert_eq!(parse(text, context, false).unwrap_err().to_string(), expected);
        }
        let error = parse(&file(SERVER, "token: sesame, exec: { command: sh }"), None, false).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("sesame"), "{error:?}");
        let access = parse(&file(SERVER, "token: sesame"), None, false).unwrap();
        assert!(!format!("{access:?} {:?}", access.identity).contains("sesame"));
    }
}
