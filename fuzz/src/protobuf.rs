//! Objects in Kubernetes' protobuf: whatever is read can be written, and then reads and writes the same.

use portolan_apiserver::protobuf::{decode, encode};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(object) = decode(bytes, ("v1", "ConfigMap")) else { return };
    if crate::has_double(&object) {
        return;
    }
    let written = encode(&object).expect("what was read has a type that is known");
    let again = decode(&written, ("", "")).expect("what was written can be read");
    assert_eq!(encode(&again), Some(written), "{object}");
}
