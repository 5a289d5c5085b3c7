//! What runs on nodes. Real nodes get their agent with the egress data path; until then, and for nodes that do not
//! exist, there is [`simulated`]. Pods of our own image run as processes where there is no kubelet: [`pods`].

pub mod pods;
pub mod simulated;
