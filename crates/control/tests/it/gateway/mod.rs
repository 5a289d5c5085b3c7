//! Gateway: accounts, load balancers and endpoints on an API server, Envoys in memory.

mod addresses;
mod cleanup;
mod harness;
mod keys;
mod life;
mod races;
mod seed;
