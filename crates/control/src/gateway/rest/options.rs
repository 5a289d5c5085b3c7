//! The flags of the REST API.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::runtime::capability::OptionsError;

// Its documentation would become that of the command.
#[derive(Debug, Clone, clap::Args)]
#[expect(clippy::struct_field_names, reason = "they are the names of the flags")]
pub struct RestArgs {
    /// Serve the REST API with TLS on this address
    #[arg(long, env = "PORTOLAN_GATEWAY_REST_LISTEN", value_name = "ADDR:PORT", help_heading = "Gateway")]
    gateway_rest_listen: Option<SocketAddr>,

    /// Folder with tls.crt, tls.key and, for client certificates, ca.crt; read again when they change
    #[arg(long, env = "PORTOLAN_GATEWAY_REST_TLS_DIR", value_name = "DIR", help_heading = "Gateway")]
    gateway_rest_tls_dir: Option<PathBuf>,

    /// Serve the REST API without TLS on this loopback address
    #[arg(long, env = "PORTOLAN_GATEWAY_REST_PLAIN_LISTEN", value_name = "ADDR:PORT", help_heading = "Gateway")]
    gateway_rest_plain_listen: Option<SocketAddr>,

    /// Watches that an account may have open
    #[arg(
        long,
        env = "PORTOLAN_GATEWAY_REST_WATCHES",
        value_name = "NUMBER",
        default_value_t = 100,
        help_heading = "Gateway"
    )]
    gateway_rest_watches: usize,

    /// Requests that an account may send in a second, and twice as many at once
    #[arg(
        long,
        env = "PORTOLAN_GATEWAY_REST_RATE",
        value_name = "NUMBER",
        default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        help_heading = "Gateway"
    )]
    gateway_rest_rate: u32,
}

/// How the REST API is served.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to listen with TLS, and the folder of its files.
    pub tls: Option<(SocketAddr, PathBuf)>,
    /// Where to listen without TLS: a loopback address.
    pub plain: Option<SocketAddr>,
    /// Watches per account.
    pub watches: usize,
    /// Requests per account and second.
    pub rate: u32,
    /// How often the files of TLS are looked at.
    pub reread: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { tls: None, plain: None, watches: 100, rate: 50, reread: Duration::from_secs(10) }
    }
}

impl RestArgs {
    /// What the flags ask for; none if they ask for no REST API.
    pub fn config(&self) -> Result<Option<Config>, OptionsError> {
        let Self {
            gateway_rest_listen,
            gateway_rest_tls_dir,
            gateway_rest_plain_listen,
            gateway_rest_watches,
            gateway_rest_rate,
        } = self.clone();
        if let Some(address) = gateway_rest_plain_listen.filter(|address| !address.ip().is_loopback()) {
            return Err(OptionsError(format!(
                "--gateway-rest-plain-listen {address} would send passwords in the clear: use a loopback address, or --gateway-rest-listen with TLS"
            )));
        }
        let tls = match (gateway_rest_listen, gateway_rest_tls_dir) {
            (Some(listen), Some(folder)) => Some((listen, folder)),
            (None, None) => None,
            (Some(_), None) => {
                return Err(OptionsError(
                    "--gateway-rest-listen needs --gateway-rest-tls-dir: name a folder with tls.crt and tls.key".into(),
                ));
            }
            (None, Some(_)) => {
                return Err(OptionsError(
                    "--gateway-rest-tls-dir is of no use without --gateway-rest-listen: add it, or leave both out"
                        .into(),
                ));
            }
        };
        if tls.is_none() && gateway_rest_plain_listen.is_none() {
            return Ok(None);
        }
        Ok(Some(Config {
            tls,
            plain: gateway_rest_plain_listen,
            watches: gateway_rest_watches,
            rate: gateway_rest_rate,
            ..Config::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        rest: RestArgs,
    }

    fn config(flags: &[&str]) -> Result<Option<Config>, String> {
        let flags = std::iter::once("portolan").chain(flags.iter().copied());
        let program = Program::try_parse_from(flags).map_err(|problem| problem.to_string())?;
        program.rest.config().map_err(|problem| problem.to_string())
    }

    #[test]
    fn without_flags_there_is_no_rest_api() {
        assert!(config(&[]).unwrap().is_none());
    }

    #[test]
    fn passwords_are_never_sent_in_the_clear_over_a_network() {
        let problem = config(&["--gateway-rest-plain-listen", "0.0.0.0:8080"]).unwrap_err();
        assert!(problem.contains("loopback"), "{problem}");
        let config = config(&["--gateway-rest-plain-listen", "[::1]:8080"]).unwrap().unwrap();
        assert_eq!((config.watches, config.rate), (100, 50));
    }

    #[test]
    fn tls_needs_its_folder() {
        let problem = config(&["--gateway-rest-listen", "0.0.0.0:8443"]).unwrap_err();
        assert!(problem.contains("--gateway-rest-tls-dir"), "{problem}");
        let both = ["--gateway-rest-listen", "0.0.0.0:8443", "--gateway-rest-tls-dir", "/tls"];
        assert!(config(&both).unwrap().unwrap().tls.is_some());
    }
}
