//! Multi-tenant external load balancers: keys and ids, public addresses, ports, and tunnels to the clients' nodes.
//!
//! ```text
//! EGW --> Account --> ServiceGroup --> LoadBalancer --> Endpoint
//!                      '--> ServicePrefix --> address
//! ```

pub mod addresses;
pub mod gue;
pub mod keys;
pub mod ports;
pub mod prefix;
pub mod reserve;
