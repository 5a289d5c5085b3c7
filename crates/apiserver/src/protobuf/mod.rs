//! Objects in Kubernetes' protobuf encoding, which typed Go clients prefer for built-in kinds.
//!
//! ```text
//!   "k8s\0" + Unknown { typeMeta, raw }  <-- decode, encode -->  the object as JSON
//! ```
//!
//! No kind has code of its own: `messages.txt` lists the messages of the published `generated.proto` files with the
//! names of their fields in JSON, a message per line (`=` a field's number, `*` a list, `%` a map, `+` fields that stand
//! in the object around them). A few messages are another thing in JSON, such as a time or a quantity: see
//! [`table::Form`]. `openapi.txt` is the same for the documents of OpenAPI v2, which are only written.

mod decode;
mod encode;
mod table;
mod wire;

pub use decode::decode;
pub use encode::{encode, encode_openapi, watch_event};
pub use wire::Fault;

#[cfg(test)]
mod tests;
