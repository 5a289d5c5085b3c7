//! Whom a client certificate names. The TLS layer has verified it; this only reads its subject.

use x509_parser::prelude::{AttributeTypeAndValue, FromDer, GeneralName, X509Certificate};

/// The subject of a client certificate, as Kubernetes reads it: a user and its groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    pub common_name: String,
    pub organizations: Vec<String>,
}

impl Identity {
    /// Reads a certificate in DER; none without a common name.
    pub fn read(certificate: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let text = |attribute: &AttributeTypeAndValue<'_>| attribute.as_str().ok().map(str::to_owned);
        let subject = certificate.subject();
        let common_name = subject.iter_common_name().last().and_then(text)?;
        let organizations = subject.iter_organization().filter_map(text).collect();
        (!common_name.is_empty()).then_some(Self { common_name, organizations })
    }
}

/// The URIs that a certificate in DER names.
pub fn uri_names(certificate: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    let uri = |name: &GeneralName<'_>| {
        let GeneralName::URI(uri) = name else { return None };
        Some((*uri).to_owned())
    };
    names.value.general_names.iter().filter_map(uri).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use proptest::prelude::*;
    use rcgen::DnType;

    use super::*;
    use crate::CertificateAuthority;

    #[test]
    fn a_client_certificate_names_its_user_and_groups() {
        // The library takes each type once, but does not see that these two are the same.
        let organization = DnType::CustomDnType(vec![2, 5, 4, 10]);
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "alice");
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        params.distinguished_name.push(organization, "dev");
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();

        let subject = Identity::read(certificate.der()).unwrap();

        assert_eq!(subject.common_name, "alice");
        assert_eq!(subject.organizations, ["system:masters", "dev"]);
    }

    #[test]
    fn a_client_certificate_may_name_a_uri() {
        let (now, hour) = (Timestamp::now(), Duration::from_hours(1));
        let authority = CertificateAuthority::new("test", now, hour).unwrap();
        let signed = authority.sign_client_uri("egw://unit/egw-acme/web", now, hour).unwrap();
        assert_eq!(uri_names(&signed.der().unwrap()), ["egw://unit/egw-acme/web"]);
        let other = authority.sign_client("alice", None, now, hour).unwrap();
        assert!(uri_names(&other.der().unwrap()).is_empty());
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let (now, hour) = (Timestamp::now(), Duration::from_hours(1));
        let authority = CertificateAuthority::new("test", now, hour).unwrap();
        let good = authority.sign_client("alice", Some("a"), now, hour).unwrap().der().unwrap();
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
