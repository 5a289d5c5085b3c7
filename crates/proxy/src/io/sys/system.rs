//! Clocks, randomness, limits and processors.

/// Milliseconds of a clock that never goes back.
pub fn monotonic_ms() -> u64 {
    clock_ms(libc::CLOCK_MONOTONIC)
}

/// Milliseconds since 1970.
pub fn unix_ms() -> u64 {
    clock_ms(libc::CLOCK_REALTIME)
}

fn clock_ms(clock: libc::clockid_t) -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is a live timespec; both clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut at) };
    at.tv_sec as u64 * 1000 + at.tv_nsec as u64 / 1_000_000
}

/// Random bytes of the kernel, for keys of hashes and masks.
pub fn random_u64() -> u64 {
    let mut value = 0u64;
    // SAFETY: the buffer is a live u64 of eight bytes; requests this small are never cut short.
    unsafe { libc::getrandom((&raw mut value).cast(), 8, 0) };
    value
}

/// Raises the limit of open descriptors to what the process may have, and returns it.
pub fn raise_descriptor_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live rlimit in both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return 1024;
        }
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
    limit.rlim_cur
}

/// Number of processors this process may run on.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Binds the calling thread to one processor; refusals are of no consequence.
pub fn pin_to(processor: usize) {
    // SAFETY: an all-zero cpu_set_t is the empty set, CPU_SET bounds-checks, and the size is that of the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Processor time the calling thread has used, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is a live timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut at) };
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}
