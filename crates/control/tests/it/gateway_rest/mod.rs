//! The REST API of gateway, as clients of 2020 and of today speak to it.

mod attacks;
mod harness;
mod limits;
mod logins;
mod services;
mod story;
mod watch;
