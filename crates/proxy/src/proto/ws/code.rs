//! Close codes, as the wire has them.

pub const NORMAL: u16 = 1000;
pub const GOING_AWAY: u16 = 1001;
pub const PROTOCOL: u16 = 1002;
pub const NO_STATUS: u16 = 1005;
pub const NOT_UTF8: u16 = 1007;
pub const TOO_BIG: u16 = 1009;
pub const INTERNAL: u16 = 1011;
