//! What runs on nodes. Real nodes get their agent with the egress data path; until then, and for nodes that do not
//! exist, there is [`simulated`].

pub mod simulated;
