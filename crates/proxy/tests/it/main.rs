//! The proxy from outside.

mod properties;
mod rest;
mod traffic;
