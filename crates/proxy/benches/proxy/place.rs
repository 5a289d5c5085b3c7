//! The place of the benchmark: a network namespace of its own, equal socket buffers, one processor each.

use anyhow::Context as _;
use std::fs;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// What every contestant's sockets may hold. None of them sets its own.
const BUFFER: &str = "4194304";
const SETTINGS: [&str; 2] = ["/proc/sys/net/core/rmem_default", "/proc/sys/net/core/wmem_default"];

/// Where contestants run; the load comes from the other processor.
pub(crate) const THEIRS: &[usize] = &[1];
const OURS: &[usize] = &[0];
/// Where contestants with two workers run.
pub(crate) const ALL: &[usize] = &[0, 1];

/// The machine's default socket buffers, given back in the end: they cannot be set for one namespace alone.
struct Buffers(Vec<(&'static str, String)>);

impl Buffers {
    fn set() -> anyhow::Result<Self> {
        let set = |path| {
            let before = fs::read_to_string(path)?;
            fs::write(path, BUFFER)?;
            Ok((path, before))
        };
        let all: std::io::Result<Vec<_>> = SETTINGS.into_iter().map(set).collect();
        Ok(Self(all.context("setting the default socket buffers failed: run this benchmark as root")?))
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        for (path, before) in &self.0 {
            // Nothing is left to try where this fails.
            fs::write(path, before).ok();
        }
    }
}

/// Sets the machine up, runs this program again as `inner` with the same arguments, and puts everything back.
pub(crate) fn run_inside(inner: &str) -> anyhow::Result<ExitCode> {
    let buffers = Buffers::set()?;
    let mut child = Command::new(std::env::current_exe()?).arg(inner).args(std::env::args().skip(1)).spawn()?;
    INNER.store(child.id().cast_signed(), Relaxed);
    // A signal ends the inner program, and this one goes on to give the buffers back.
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler reads an atomic and calls `kill`, both of which a handler may do.
        unsafe { libc::signal(signal, end_inner as *const () as libc::sighandler_t) };
    }
    let status = child.wait();
    drop(buffers);
    let code = status?.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

static INNER: AtomicI32 = AtomicI32::new(0);

extern "C" fn end_inner(_signal: libc::c_int) {
    // SAFETY: a child that was not waited for yet, so the number is still its own.
    unsafe { libc::kill(INNER.load(Relaxed), libc::SIGKILL) };
}

/// Leaves the machine's network for one that has nothing but a loopback.
pub(crate) fn own_network() -> anyhow::Result<()> {
    pin(OURS);
    let name = b"lo\0".map(u8::cast_signed);
    // SAFETY: plain system calls on values that live here; all-zero is a valid `ifreq`, which holds `lo` and flags.
    let done = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[..name.len()].copy_from_slice(&name);
        libc::unshare(libc::CLONE_NEWNET) == 0 && {
            let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
            request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_LOOPBACK | libc::IFF_RUNNING) as libc::c_short;
            let done = libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw const request) == 0;
            libc::close(socket);
            done
        }
    };
    anyhow::ensure!(done, "making a network namespace failed ({})", std::io::Error::last_os_error());
    // each session takes a port, and so does its client
    fs::write("/proc/sys/net/ipv4/ip_local_port_range", "10000 65535").context("widening the port range failed")
}

/// Starts a program on these processors.
pub(crate) fn spawn(command: &mut Command, processors: &[usize]) -> std::io::Result<std::process::Child> {
    // a child inherits where its parent may run
    pin(processors);
    let child = command.spawn();
    pin(OURS);
    child
}

/// Puts the calling thread onto the contestants' processors, before all of them.
///
/// A forwarder that is faster than its load never has a backlog, and what it then pays for is being woken. Here a
/// volley is sent before the forwarder gets to run, so each one works through full batches, as it would under full
/// load, and none is judged by how much it idles.
pub(crate) fn beside(processors: &[usize]) {
    pin(processors);
    schedule(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1);
}

/// Puts it back onto the other processor, as one among many.
pub(crate) fn apart() {
    schedule(libc::SCHED_OTHER, 0);
    pin(OURS);
}

fn schedule(policy: libc::c_int, priority: libc::c_int) {
    let wanted = libc::sched_param { sched_priority: priority };
    // SAFETY: a live parameter of the right type.
    let done = unsafe { libc::sched_setscheduler(0, policy, &raw const wanted) };
    assert_eq!(done, 0, "root may choose how its threads are scheduled");
}

/// Binds the calling thread to these processors.
pub(crate) fn pin(processors: &[usize]) {
    // SAFETY: an all-zero cpu_set_t is the empty set, and its own size is passed.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for processor in processors {
            libc::CPU_SET(*processor, &mut set);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
