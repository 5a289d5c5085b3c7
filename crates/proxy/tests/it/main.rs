//! The proxy from outside.

mod rest;
mod traffic;
