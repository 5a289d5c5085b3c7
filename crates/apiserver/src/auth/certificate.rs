//! Whom a client certificate names. The TLS layer has checked it; this only reads its subject.

use super::user::User;

/// Common name and organization in DER: the arcs 2.5.4.3 and 2.5.4.10.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const ORGANIZATION: &[u8] = &[0x55, 4, 10];

const INTEGER: u8 = 0x02;
const OID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// The explicit tag in front of a certificate's version.
const VERSION: u8 = 0xa0;

/// The holder of a client certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    pub common_name: String,
    pub organizations: Vec<String>,
}

impl Identity {
    /// Reads a certificate in DER; none without a common name.
    pub fn read(certificate: &[u8]) -> Option<Self> {
        let mut identity = Self::default();
        for (oid, value) in subject(certificate)? {
            let value = String::from_utf8_lossy(value).into_owned();
            match oid {
                COMMON_NAME => identity.common_name = value,
                ORGANIZATION => identity.organizations.push(value),
                _ => {}
            }
        }
        (!identity.common_name.is_empty()).then_some(identity)
    }

    pub(super) fn user(&self) -> User {
        User { name: self.common_name.clone(), groups: self.organizations.clone() }
    }
}

/// The attributes of the subject, as pairs of type and value.
fn subject(certificate: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let (certificate, _) = take(certificate, SEQUENCE)?;
    let (mut rest, _) = take(certificate, SEQUENCE)?;
    if rest.first() == Some(&VERSION) {
        rest = take(rest, VERSION)?.1;
    }
    // Serial number, signature algorithm, issuer, validity.
    for tag in [INTEGER, SEQUENCE, SEQUENCE, SEQUENCE] {
        rest = take(rest, tag)?.1;
    }
    let (mut names, _) = take(rest, SEQUENCE)?;
    let mut attributes = Vec::new();
    while !names.is_empty() {
        let (mut set, after) = take(names, SET)?;
        names = after;
        while !set.is_empty() {
            let (attribute, after) = take(set, SEQUENCE)?;
            set = after;
            let (oid, value) = take(attribute, OID)?;
            let tag = *value.first()?;
            attributes.push((oid, take(value, tag)?.0));
        }
    }
    Some(attributes)
}

/// Takes one DER element with `tag`: its content, and what follows it.
fn take(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let bytes = usize::from(first & 0x7f);
        if bytes > 4 || rest.len() < bytes {
            return None;
        }
        length = rest.iter().take(bytes).fold(0, |length, byte| length << 8 | usize::from(*byte));
        rest = rest.get(bytes..)?;
    }
    (found == tag).then_some(())?;
    Some((rest.get(..length)?, rest.get(length..)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::DnType;

    use super::*;
    use crate::auth::authority::Authority;

    #[test]
    fn a_client_certificate_names_its_user_and_groups() {
        // The library takes each type once, but does not see that these two are one.
        let organization = DnType::CustomDnType(vec![2, 5, 4, 10]);
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "alice");
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        params.distinguished_name.push(organization, "dev");
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();

        let identity = Identity::read(certificate.der()).unwrap();

        assert_eq!(identity.common_name, "alice");
        assert_eq!(identity.organizations, ["system:masters", "dev"]);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let authority = Authority::make(jiff::Timestamp::now()).unwrap();
        let good = authority.client("alice", "a", jiff::Timestamp::now()).unwrap().der().unwrap();
        for length in 0..good.len() {
            Identity::read(&good[..length]);
        }
        proptest!(|(at in 0..good.len(), byte: u8)| {
            let mut bad = good.to_vec();
            bad[at] = byte;
            Identity::read(&bad);
        });
    }
}
