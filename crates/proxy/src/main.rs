//! `portolan-proxy`: the proxy alone, small enough to run as a sidecar.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use portolan_proxy::command;
use portolan_proxy::rest::options::Options;

/// Run the multi-protocol proxy, configured over l7mp's REST API
///
/// The proxy accepts streams and datagrams on one protocol, passes them through middlepoints, and forwards them on
/// another. It holds no cluster credentials.
#[derive(Debug, Parser)]
#[command(
    name = "portolan-proxy",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  portolan-proxy -c proxy.yaml
  portolan-proxy --api 127.0.0.1:1234
  portolan-proxy -c proxy.yaml --check"
)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let Cli { options } = Cli::parse();
    let Err(failure) = command::run(options) else { return ExitCode::SUCCESS };
    // a closed terminal cannot show the error
    drop(writeln!(std::io::stderr(), "error: {failure}\n\nhint: {}", failure.hint()));
    ExitCode::from(failure.exit())
}
