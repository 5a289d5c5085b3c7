//! `portolan send`: sends a datagram and prints the replies.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::outcome::{Exit, Failure};
use crate::printer::Printer;

/// Send a datagram and print the replies
///
/// It checks that a listener of the mesh forwards packets, from the source port that a rule matches. Each reply is a
/// line; exits 1 if there are too few.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  portolan send udp://127.77.0.1:9001 hello --from 127.0.0.1:9000
  portolan send udp://127.77.0.1:8001 hello --from 127.0.0.1:8001 --answers 0
  portolan send udp://127.77.0.1:8002 --from 127.0.0.1:8002 --timeout 60")]
pub(crate) struct Args {
    /// The destination
    #[arg(value_name = "udp://ADDRESS:PORT", value_parser = target)]
    to: SocketAddr,

    /// The payload; without it nothing is sent, and what arrives is printed
    text: Option<String>,

    /// Source address and port; a free port by default
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Datagram")]
    from: Option<SocketAddr>,

    /// Number of replies to wait for
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Datagram")]
    answers: usize,

    /// Seconds to wait
    #[arg(long, value_name = "SECONDS", default_value_t = 2, help_heading = "Datagram")]
    timeout: u64,
}

fn target(text: &str) -> Result<SocketAddr, String> {
    let address = text.strip_prefix("udp://").and_then(|address| address.parse().ok());
    address.ok_or_else(|| "write it as udp://10.0.0.1:9001".to_owned())
}

pub(crate) fn run(args: Args, printer: &Printer) -> Result<Exit, Failure> {
    let Args { to, text, from, answers, timeout } = args;
    let failed = |what: &str, cause: std::io::Error| {
        Failure::new(Exit::No, format!("{what}: {cause}"), "list the UDP ports in use: ss -lnup")
    };
    let socket = UdpSocket::bind(from.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))))
        .map_err(|cause| failed("opening the source port failed", cause))?;
    // not connected: an ICMP error from a port that is not open yet must not end the wait
    if let Some(text) = &text {
        socket.send_to(text.as_bytes(), to).map_err(|cause| failed("sending failed", cause))?;
    }
    let end = Instant::now() + Duration::from_secs(timeout);
    let mut buffer = vec![0; 65_536];
    let mut heard = 0;
    while heard < answers {
        let left = end.saturating_duration_since(Instant::now());
        let too_few = || {
            let what = format!("{heard} of {answers} replies within {timeout} s");
            Failure::new(Exit::No, what, "check that the listener is programmed: portolan status mesh")
        };
        if left.is_zero() {
            return Err(too_few());
        }
        socket.set_read_timeout(Some(left)).map_err(|cause| failed("waiting failed", cause))?;
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) if from == to => {
                printer.data(&format!("{}\n", String::from_utf8_lossy(&buffer[..length])))?;
                heard += 1;
            }
            Ok(_) => {}
            Err(cause) if matches!(cause.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Err(too_few()),
            Err(cause) => return Err(failed("waiting failed", cause)),
        }
    }
    Ok(Exit::Yes)
}
