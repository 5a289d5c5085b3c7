//! Generic UDP Encapsulation, variant 0, with the private extension words of the Acnodal gateway.
//!
//! There are two versions on the wire, and a data packet does not say which one it is: the length that the header
//! states is that of the first version in both. The version is a property of the sender, learned from its ping.
//!
//! ```text
//!         bytes 0-3      version 1                                            version 2
//! data    05 04 a0 00    gue-key (4), credentials (16), inner IPv4 packet     tunnel id (4), inner IPv4 packet
//! ping    26 01 a0 00    gue-key (4), credentials (16), tunnel id (4)         tunnel id (4)
//! ```

use super::keys::GueKey;

/// The format that a sender speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Key and credentials in every packet.
    V1,
    /// The tunnel id alone.
    V2,
}

/// What proves that a packet is of a service group: as written, padded with zero bytes.
#[derive(Clone, Copy)]
pub struct Credentials([u8; 16]);

impl Credentials {
    /// None if there are no bytes, or more than the header has room for.
    pub fn new(secret: &[u8]) -> Option<Self> {
        let mut padded = [0; 16];
        padded.get_mut(..secret.len()).filter(|part| !part.is_empty())?.copy_from_slice(secret);
        Some(Self(padded))
    }

    /// Compares in a time that says nothing about the place of a difference.
    pub fn matches(&self, other: &Self) -> bool {
        let difference = self.0.iter().zip(other.0).fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(difference) == 0
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// The part of a header that says whose packet it is.
#[derive(Debug, Clone, Copy)]
pub enum Sender {
    /// Version 1.
    Key(GueKey, Credentials),
    /// Version 2.
    Tunnel(u32),
}

/// A packet without its outer headers.
#[derive(Debug, Clone, Copy)]
pub struct Data<'a> {
    /// Whose packet it is.
    pub sender: Sender,
    /// The IP packet inside.
    pub inner: &'a [u8],
}

/// Sent by a client every 25 s, so that the gateway learns from where it can be reached.
#[derive(Debug, Clone, Copy)]
pub struct Ping {
    /// The tunnel that it is about.
    pub tunnel: u32,
    /// What proves that the tunnel is the sender's; version 2 has nothing.
    pub proof: Option<(GueKey, Credentials)>,
}

impl Ping {
    /// The format that its sender speaks.
    pub fn version(&self) -> Version {
        if self.proof.is_some() { Version::V1 } else { Version::V2 }
    }
}

/// Why bytes are not a packet of ours. A reader counts it and drops the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// There are fewer bytes than the header has.
    #[error("the packet ends within its header")]
    Truncated,
    /// The first bytes are of another variant, of plain GUE, or of unknown flags.
    #[error("the header is not one of this gateway")]
    UnknownHeader,
    /// The inner packet is not IPv4.
    #[error("the packet inside is not IPv4")]
    NotIpv4,
    /// A control packet of a length that no version has.
    #[error("the ping has a length that no version has")]
    PingLength,
}

impl Malformed {
    /// The bounded word for metrics.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Truncated => "Truncated",
            Self::UnknownHeader => "UnknownHeader",
            Self::NotIpv4 => "NotIpv4",
            Self::PingLength => "PingLength",
        }
    }
}

const DATA: [u8; 4] = [0x05, 0x04, 0xa0, 0x00];
const PING: [u8; 4] = [0x26, 0x01, 0xa0, 0x00];
/// The bit of control packets in the first byte.
const CONTROL: u8 = 0x20;

/// Bytes before the inner packet, from the outer IPv4 header on.
pub const fn overhead(version: Version) -> usize {
    const OUTER_IPV4_AND_UDP: usize = 20 + 8;
    match version {
        Version::V1 => OUTER_IPV4_AND_UDP + 24,
        Version::V2 => OUTER_IPV4_AND_UDP + 8,
    }
}

/// True if the bytes are a control packet, by their first byte.
pub fn is_control(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| first & CONTROL != 0)
}

/// Reads a data packet of a sender that speaks this version.
pub fn data(bytes: &[u8], version: Version) -> Result<Data<'_>, Malformed> {
    let rest = after(bytes, DATA)?;
    let (sender, inner) = match version {
        Version::V1 => {
            let (key, rest) = word(rest)?;
            let (credentials, inner) = credentials(rest)?;
            (Sender::Key(GueKey::split(key), credentials), inner)
        }
        Version::V2 => {
            let (tunnel, inner) = word(rest)?;
            (Sender::Tunnel(tunnel), inner)
        }
    };
    match inner.first() {
        None => Err(Malformed::Truncated),
        Some(first) if first >> 4 == 4 => Ok(Data { sender, inner }),
        Some(_) => Err(Malformed::NotIpv4),
    }
}

/// Reads a ping; its length says which version.
pub fn ping(bytes: &[u8]) -> Result<Ping, Malformed> {
    let rest = after(bytes, PING)?;
    match rest.len() {
        4 => Ok(Ping { tunnel: word(rest)?.0, proof: None }),
        24 => {
            let (key, rest) = word(rest)?;
            let (credentials, rest) = credentials(rest)?;
            Ok(Ping { tunnel: word(rest)?.0, proof: Some((GueKey::split(key), credentials)) })
        }
        0..4 => Err(Malformed::Truncated),
        _ => Err(Malformed::PingLength),
    }
}

/// Writes the header of a data packet; the inner packet follows it.
pub fn write_data_header(sender: &Sender, to: &mut Vec<u8>) {
    to.extend(DATA);
    match sender {
        Sender::Key(key, credentials) => {
            to.extend(key.pack().to_be_bytes());
            to.extend(credentials.0);
        }
        Sender::Tunnel(tunnel) => to.extend(tunnel.to_be_bytes()),
    }
}

/// Writes a ping.
pub fn write_ping(ping: &Ping, to: &mut Vec<u8>) {
    to.extend(PING);
    if let Some((key, credentials)) = &ping.proof {
        to.extend(key.pack().to_be_bytes());
        to.extend(credentials.0);
    }
    to.extend(ping.tunnel.to_be_bytes());
}

fn after(bytes: &[u8], header: [u8; 4]) -> Result<&[u8], Malformed> {
    match bytes.split_first_chunk() {
        None => Err(Malformed::Truncated),
        Some((first, rest)) if *first == header => Ok(rest),
        Some(_) => Err(Malformed::UnknownHeader),
    }
}

fn word(bytes: &[u8]) -> Result<(u32, &[u8]), Malformed> {
    let (word, rest) = bytes.split_first_chunk().ok_or(Malformed::Truncated)?;
    Ok((u32::from_be_bytes(*word), rest))
}

fn credentials(bytes: &[u8]) -> Result<(Credentials, &[u8]), Malformed> {
    let (credentials, rest) = bytes.split_first_chunk().ok_or(Malformed::Truncated)?;
    Ok((Credentials(*credentials), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INNER: [u8; 20] = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];

    fn fred() -> Credentials {
        Credentials::new(b"fredfredfredfred").unwrap()
    }

    fn one_one() -> GueKey {
        GueKey { account: 1, service: 1 }
    }

    #[test]
    fn the_ping_of_version_1_has_these_bytes() {
        let bytes = [
            0x26, 0x01, 0xa0, 0x00, 0x00, 0x01, 0x00, 0x01, 0x66, 0x72, 0x65, 0x64, 0x66, 0x72, 0x65, 0x64, 0x66, 0x72,
            0x65, 0x64, 0x66, 0x72, 0x65, 0x64, 0x00, 0x00, 0x00, 0x02,
        ];
        let mut written = Vec::new();
        write_ping(&Ping { tunnel: 2, proof: Some((one_one(), fred())) }, &mut written);
        assert_eq!(written, bytes);
        let read = ping(&bytes).unwrap();
        let (key, credentials) = read.proof.unwrap();
        assert_eq!((read.tunnel, key, read.version()), (2, one_one(), Version::V1));
        assert!(credentials.matches(&fred()));
    }

    #[test]
    fn the_other_packets_have_these_bytes() {
        let mut written = Vec::new();
        write_ping(&Ping { tunnel: 0x0102_0304, proof: None }, &mut written);
        assert_eq!(written, [0x26, 0x01, 0xa0, 0x00, 1, 2, 3, 4]);
        assert_eq!(ping(&written).unwrap().version(), Version::V2);

        written.clear();
        write_data_header(&Sender::Tunnel(9), &mut written);
        assert_eq!(written, [0x05, 0x04, 0xa0, 0x00, 0, 0, 0, 9]);

        written.clear();
        let short = Credentials::new(b"ab").unwrap();
        write_data_header(&Sender::Key(GueKey { account: 1, service: 3 }, short), &mut written);
        assert_eq!(written[..10], [0x05, 0x04, 0xa0, 0x00, 0, 1, 0, 3, b'a', b'b']);
        assert_eq!(written[10..], [0; 14], "padded with zero bytes");
    }

    #[test]
    fn a_header_costs_what_the_specification_says() {
        assert_eq!((overhead(Version::V1), overhead(Version::V2)), (52, 36));
    }

    #[test]
    fn v1_v2_by_sender() {
        let mut bytes = Vec::new();
        write_data_header(&Sender::Key(one_one(), fred()), &mut bytes);
        bytes.extend(INNER);
        let read = data(&bytes, Version::V1).unwrap();
        assert!(matches!(read.sender, Sender::Key(key, _) if key == one_one()));
        assert_eq!(read.inner, INNER);
        assert_eq!(data(&bytes, Version::V2).unwrap_err(), Malformed::NotIpv4, "the header alone does not tell");
    }

    #[test]
    fn every_truncation_is_an_error() {
        for sender in [Sender::Key(one_one(), fred()), Sender::Tunnel(7)] {
            let version = if matches!(sender, Sender::Key(..)) { Version::V1 } else { Version::V2 };
            let mut bytes = Vec::new();
            write_data_header(&sender, &mut bytes);
            for length in 0..=bytes.len() {
                assert_eq!(data(&bytes[..length], version).unwrap_err(), Malformed::Truncated, "{length}");
            }
        }
        let mut bytes = Vec::new();
        write_ping(&Ping { tunnel: 7, proof: Some((one_one(), fred())) }, &mut bytes);
        for length in (0..bytes.len()).filter(|length| *length != 8) {
            assert!(ping(&bytes[..length]).is_err(), "{length}");
        }
        bytes.push(0);
        assert_eq!(ping(&bytes).unwrap_err(), Malformed::PingLength);
    }

    #[test]
    fn plain_gue_and_unknown_flags_are_refused() {
        for header in [[0x00, 0x04, 0, 0], [0x05, 0x04, 0xa0, 0x01], [0x45, 0x04, 0xa0, 0], [0x05, 0x29, 0xa0, 0]] {
            let mut bytes = header.to_vec();
            bytes.extend([0; 4]);
            bytes.extend(INNER);
            assert_eq!(data(&bytes, Version::V2).unwrap_err(), Malformed::UnknownHeader);
        }
    }

    #[test]
    fn creds_are_bytes_not_shell() {
        for secret in
            [&b"a;reboot"[..], b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"`$(id)`\n\0x"]
        {
            let credentials = Credentials::new(secret).unwrap();
            let mut bytes = Vec::new();
            write_ping(&Ping { tunnel: 1, proof: Some((one_one(), credentials)) }, &mut bytes);
            assert_eq!(&bytes[8..8 + secret.len()], secret);
            assert_eq!(format!("{credentials:?}"), "***");
        }
        assert!(Credentials::new(b"").is_none() && Credentials::new(&[b'x'; 17]).is_none());
        assert!(!fred().matches(&Credentials::new(b"fredfredfredfreD").unwrap()));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn no_bytes_from_the_network_panic(start in 0usize..3, mut bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let header = [&[][..], &DATA, &PING][start];
            bytes.splice(..0, header.iter().copied());
            for version in [Version::V1, Version::V2] {
                if let Ok(read) = data(&bytes, version) {
                    let mut written = Vec::new();
                    write_data_header(&read.sender, &mut written);
                    written.extend(read.inner);
                    prop_assert_eq!(&written, &bytes);
                }
            }
            if let Ok(read) = ping(&bytes) {
                let mut written = Vec::new();
                write_ping(&read, &mut written);
                prop_assert_eq!(&written, &bytes);
            }
            let _ = is_control(&bytes);
        }
    }
}
