//! `portolan-proxy`: the proxy alone, small enough to stand beside every pod.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use portolan_proxy::command;
use portolan_proxy::rest::options::Options;

/// Run the multi-protocol proxy, configured over l7mp's REST API
///
/// It takes streams and datagrams in on one protocol, leads them through middlepoints, and out on another. It holds no
/// credentials of any cluster.
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
    // a terminal that is gone has nobody to tell
    drop(writeln!(std::io::stderr(), "error: {failure}\n\nhint: {}", failure.hint()));
    ExitCode::from(failure.exit())
}
