//! `portolan proxy`: the multi-protocol data plane.

use portolan_proxy::command;
use portolan_proxy::rest::options::Options;

use crate::outcome::{Exit, Failure};

/// Run the multi-protocol proxy, configured over l7mp's REST API
///
/// It forwards streams and datagrams from one protocol to another: UDP, TCP, WebSocket, HTTP, Unix sockets, JSONSocket.
/// It has no credentials of a cluster. SIGTERM drains it, SIGHUP reloads its file. The program `portolan-proxy` is the
/// same proxy without the other commands.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  portolan proxy -c proxy.yaml
  portolan proxy --api 127.0.0.1:1234
  portolan proxy -c proxy.yaml --check")]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    let Args { options } = args;
    command::run(options).map_err(|failure| {
        let exit = if failure.exit() == Exit::Usage.code() { Exit::Usage } else { Exit::No };
        Failure::new(exit, failure.to_string(), failure.hint())
    })?;
    Ok(Exit::Yes)
}
