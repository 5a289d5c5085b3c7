//! Authentication, authorization, and a record of requests.
//!
//! Bearer tokens and client certificates; full access for `system:masters`, the default public roles for everyone
//! else: role-based access control is not enforced here. A [`Recorder`] records what each user
//! requested, so that a test can compare a role with it.

mod authenticator;
pub mod authority;
mod authorizer;
pub mod kubeconfig;
mod recorder;
mod review;
mod user;

pub use authenticator::Authenticator;
pub(crate) use authenticator::token;
pub use authorizer::{Access, Authorizer};
pub use portolan_certs::Identity;
pub use recorder::{Record, Recorder};
pub use review::{REVIEWS, ReviewKind, Reviewer};
pub use user::{MASTERS, User};
