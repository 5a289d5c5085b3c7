//! System calls, each behind a safe function.
//!
//! Everything here is thin: one call, one `io::Result`. What a call means for a session is decided above.

mod addr;
mod batch;
mod call;
mod epoll;
mod file;
mod gather;
mod pipe;
mod privileges;
mod socket;
mod system;
mod unix;

pub use addr::{SockAddr, plain};
pub use batch::{BATCH, Received, RecvBatch};
pub use call::{get_option, set_option};
pub use epoll::{Epoll, FAILURES_ONCE, READ, Ready, WRITE, WakeUp};
pub use file::append_inside;
pub use gather::{Gather, Sent, send_one};
pub use pipe::Pipe;
pub use privileges::{Identity, become_user, is_root};
pub use socket::*;
pub use system::*;
pub use unix::*;
