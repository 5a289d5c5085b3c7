//! WebSocket (RFC 6455): handshakes, frames, and the connection made of them.

pub mod code;
pub mod frame;
pub mod handshake;
mod walk;

pub use frame::{Event, Opcode, Reader, Role, close_frame, write_frame};
pub use walk::Walker;
