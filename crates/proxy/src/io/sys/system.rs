//! Clocks, randomness, limits and processors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Milliseconds of the monotonic clock.
pub fn monotonic_ms() -> u64 {
    clock_ms(ClockId::Monotonic)
}

/// Milliseconds since 1970.
pub fn unix_ms() -> u64 {
    clock_ms(ClockId::Realtime)
}

fn clock_ms(clock: ClockId) -> u64 {
    let at = clock_gettime(clock);
    at.tv_sec as u64 * 1000 + at.tv_nsec as u64 / 1_000_000
}

/// Random bytes of the kernel, for keys of hashes and masks.
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    // requests this small are neither interrupted nor cut short
    getrandom(&mut bytes, GetRandomFlags::empty()).ok();
    u64::from_ne_bytes(bytes)
}

/// Raises the soft limit of open descriptors to the hard limit, and returns it.
pub fn raise_descriptor_limit() -> u64 {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).ok();
    maximum.unwrap_or(u64::MAX)
}

/// Number of processors this process may run on.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Binds the calling thread to one processor; a refusal is ignored.
pub fn pin_to(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor % CpuSet::MAX_CPU);
    sched_setaffinity(None, &set).ok();
}

/// Processor time the calling thread has used, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    let at = clock_gettime(ClockId::ThreadCPUTime);
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}
