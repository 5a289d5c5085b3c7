//! Gateway client: Services on an API server, a stand-in of the gateway that keeps its rules, and the gateway itself.

mod fields;
mod harness;
mod life;
mod restarts;
mod rules;
mod stand_in;
mod trouble;
mod whole;
