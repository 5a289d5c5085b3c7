//! What every world and every order of answers must keep.

mod lab;
mod laws;
mod rules;
