//! Loopback addresses for pods, of which several processes on one machine take different ones.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};

use ipnet::Ipv4Net;
use kube::api::ListParams;
use kube::{Api, Client};
use portolan_apiserver::controllers::slim::Pod;

use super::{address, read};

/// All loopback addresses that pods may ever have.
const ALL: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(127, 77, 0, 0), 16);
/// As many as `kubectl get pods -o wide` shows on one screen, and more.
const LENGTH: u8 = 24;
/// Who has this port on the first address of a range has the range.
const PORT: u16 = 7777;

/// A range that is ours as long as this lives.
pub struct Claim {
    pub range: Ipv4Net,
    _held: UdpSocket,
}

impl Claim {
    /// Takes the range that pods of this image were in before, or the first that nobody has.
    pub async fn take(client: &Client, image: &str) -> io::Result<Self> {
        let pods = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await;
        let pods = pods.map(|list| list.items).unwrap_or_default();
        let had = pods.iter().filter(|pod| read::is_of(pod, image)).find_map(address);
        Self::near(had)
    }

    fn near(had: Option<Ipv4Addr>) -> io::Result<Self> {
        let had = had.filter(|address| ALL.contains(address)).and_then(|address| Ipv4Net::new(address, LENGTH).ok());
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for range in had.map(|range| range.trunc()).into_iter().chain(ALL.subnets(LENGTH).into_iter().flatten()) {
            match UdpSocket::bind((range.network(), PORT)) {
                Ok(held) => return Ok(Self { range, _held: held }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_have_different_ranges_and_one_that_was_left_is_found_again() {
        let (one, other) = (Claim::near(None).unwrap(), Claim::near(None).unwrap());
        assert_ne!(one.range, other.range);
        assert!(ALL.contains(&one.range) && ALL.contains(&other.range));
        let far = Claim::near(Some(Ipv4Addr::new(127, 77, 250, 9))).unwrap();
        assert_eq!(far.range.to_string(), "127.77.250.0/24");
    }
}
