//! Cases, laws and the model of the planner.

mod assign;
mod cloud;
mod events;
mod invariants;
mod lab;
mod laws;
mod model;
mod nodes;
mod ovn;
mod repair;
mod requests;
mod size;
