//! Stand-ins for EC2, STS and the instance metadata service, on loopback. They enforce the rules of the real ones:
//! signatures are verified, keys end, reads lag behind writes, and calls are throttled.
//!
//! They share no code with the driver, so that a mistake there is not repeated here.

mod ec2;
mod imds;
mod keys;
pub mod moto;
mod server;
mod sigv4;
mod sts;
#[cfg(test)]
mod tests;

pub use ec2::{Answered, Ec2Call, Ec2Fault, FakeEc2, Neighbour, PrimaryInterface, Ran, Throttle};
pub use imds::FakeImds;
pub use keys::{KeyRing, StaticKeys};
pub use sts::FakeSts;

/// The region of the stand-ins.
pub const REGION: &str = "eu-central-1";
