//! Expressions, rules, chains and sets as nftables wants them on the wire; all numbers are in network order.

use super::wire::{attributes, put, put_nested, put_text};
use crate::kernel::elements::{FieldType, SetSpec};
use crate::kernel::nft::{
    Bytes, Chain, ChainKind, CtKey, Expression, Header, Hook, IpVersion, MetaKey, Register, Rule, Verdict,
};
use crate::kernel::ruleset::TABLE;

/// The kind of a rule's user data that holds a comment.
const COMMENT: u8 = 0;
/// Ours: what the rule is, so that a dump need not be decoded.
const FINGERPRINT: u8 = 0x70;

/// The attributes of a chain.
pub(super) fn chain(chain: &Chain) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_text(&mut bytes, 1, TABLE);
    put_text(&mut bytes, 3, chain.name);
    if let Some(Hook { point, priority, kind, link }) = &chain.hook {
        let mut hook = attributes(&[(1, &point.number().to_be_bytes()), (2, &priority.to_be_bytes())]);
        if let Some(link) = link {
            put_text(&mut hook, 3, link);
        }
        put_nested(&mut bytes, 4, &hook);
        put(&mut bytes, 5, &1_u32.to_be_bytes());
        put_text(&mut bytes, 7, chain_kind(*kind));
    }
    bytes
}

pub(super) fn chain_kind(kind: ChainKind) -> &'static str {
    match kind {
        ChainKind::Filter => "filter",
        ChainKind::Nat => "nat",
    }
}

/// The attributes of a rule.
pub(super) fn rule(chain: &Chain, rule: &Rule) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_text(&mut bytes, 1, TABLE);
    put_text(&mut bytes, 2, chain.name);
    put_nested(&mut bytes, 4, &expressions(rule));
    let mut user_data = Vec::new();
    let comment = [rule.why.as_bytes(), &[0]].concat();
    for (kind, data) in [(COMMENT, comment.as_slice()), (FINGERPRINT, &fingerprint(rule).to_be_bytes())] {
        user_data.extend([kind, u8::try_from(data.len()).expect("a comment is below 128 bytes")]);
        user_data.extend(data);
    }
    put(&mut bytes, 7, &user_data);
    bytes
}

/// A number that two rules share only if they do the same: FNV-1a of what is sent.
pub(super) fn fingerprint(rule: &Rule) -> u64 {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    expressions(rule).iter().fold(0xcbf2_9ce4_8422_2325, hash)
}

/// The fingerprint in a rule's user data.
pub(super) fn read_fingerprint(mut user_data: &[u8]) -> Option<u64> {
    loop {
        let (&[kind, length], rest) = user_data.split_first_chunk()?;
        let (data, rest) = rest.split_at_checked(length.into())?;
        if kind == FINGERPRINT {
            return data.try_into().ok().map(u64::from_be_bytes);
        }
        user_data = rest;
    }
}

/// The attributes of a set or map. The identifier is unique within its batch.
pub(super) fn set(spec: &SetSpec, identifier: u32) -> Vec<u8> {
    const INTERVAL: u32 = 4;
    const MAP: u32 = 8;
    const TIMEOUT: u32 = 0x10;
    const CONCATENATION: u32 = 0x80;
    let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
    let flags = flag(spec.is_interval, INTERVAL)
        | flag(spec.value.is_some(), MAP)
        | flag(spec.is_timed, TIMEOUT)
        | flag(spec.key.len() > 1, CONCATENATION);
    let kind = spec.key.iter().fold(0, |kind, part| kind << 6 | field(*part));
    let mut bytes = Vec::new();
    put_text(&mut bytes, 1, TABLE);
    put_text(&mut bytes, 2, spec.name);
    put(&mut bytes, 3, &flags.to_be_bytes());
    put(&mut bytes, 4, &kind.to_be_bytes());
    put(&mut bytes, 5, &length(spec.key).to_be_bytes());
    if let Some(value) = spec.value {
        put(&mut bytes, 6, &field(value).to_be_bytes());
        put(&mut bytes, 7, &length(&[value]).to_be_bytes());
    }
    if spec.key.len() > 1 {
        let mut parts = Vec::new();
        for part in spec.key {
            put_nested(&mut parts, 1, &attributes(&[(1, &length(&[*part]).to_be_bytes())]));
        }
        let mut description = Vec::new();
        put_nested(&mut description, 2, &parts);
        put_nested(&mut bytes, 9, &description);
    }
    put(&mut bytes, 10, &identifier.to_be_bytes());
    if spec.is_counted {
        put_nested(&mut bytes, 17, &attributes(&[(1, b"counter\0")]));
    }
    bytes
}

/// The number by which `nft` shows a field.
fn field(kind: FieldType) -> u32 {
    match kind {
        FieldType::Ipv4 => 7,
        FieldType::Ipv6 => 8,
        FieldType::Mark => 19,
    }
}

fn length(parts: &[FieldType]) -> u32 {
    let bytes: usize = parts.iter().map(|part| part.length()).sum();
    u32::try_from(bytes).expect("a key is a few bytes")
}

fn expressions(rule: &Rule) -> Vec<u8> {
    let mut bytes = Vec::new();
    for expression in &rule.expressions {
        let (name, data) = encode(expression);
        let mut one = Vec::new();
        put_text(&mut one, 1, name);
        put_nested(&mut one, 2, &data);
        put_nested(&mut bytes, 1, &one);
    }
    bytes
}

fn encode(expression: &Expression) -> (&'static str, Vec<u8>) {
    match expression {
        Expression::Meta(key, to) => ("meta", numbers(&[(1, number(*to)), (2, meta(*key))])),
        Expression::SetMeta(key, from) => ("meta", numbers(&[(2, meta(*key)), (3, number(*from))])),
        Expression::Ct(key, to) => ("ct", numbers(&[(1, number(*to)), (2, ct(*key))])),
        Expression::SetCtMark(from) => ("ct", numbers(&[(2, ct(CtKey::Mark)), (4, number(*from))])),
        Expression::Payload(Bytes { header, offset, length }, to) => {
            ("payload", numbers(&[(1, number(*to)), (2, base(*header)), (3, *offset), (4, *length)]))
        }
        Expression::SetPayload(Bytes { header, offset, length }, from) => {
            let place = [(5, number(*from)), (2, base(*header)), (3, *offset), (4, *length)];
            let no_checksum = [(6, 0), (7, 0), (8, 0)];
            ("payload", numbers(&[&place[..], &no_checksum].concat()))
        }
        Expression::Bitwise { from, to, mask, xor } => {
            let mut data = numbers(&[(1, number(*from)), (2, number(*to)), (3, 4)]);
            put_nested(&mut data, 4, &value(&mask.to_ne_bytes()));
            put_nested(&mut data, 5, &value(&xor.to_ne_bytes()));
            ("bitwise", data)
        }
        Expression::SwapBytes(register, bytes) => {
            let size = [(1, number(*register)), (2, number(*register)), (3, 1), (4, *bytes), (5, *bytes)];
            ("byteorder", numbers(&size))
        }
        Expression::Compare { register, is, data } => {
            let mut bytes = numbers(&[(1, number(*register)), (2, u32::from(!is))]);
            put_nested(&mut bytes, 3, &value(data));
            ("cmp", bytes)
        }
        Expression::Contains { set, key, is } => {
            let mut data = lookup(set, *key);
            if !is {
                put(&mut data, 5, &1_u32.to_be_bytes());
            }
            ("lookup", data)
        }
        Expression::Map { map, key, to } => {
            let mut data = lookup(map, *key);
            put(&mut data, 3, &number(*to).to_be_bytes());
            ("lookup", data)
        }
        Expression::Immediate(to, data) => {
            let mut bytes = numbers(&[(1, number(*to))]);
            put_nested(&mut bytes, 2, &value(data));
            ("immediate", bytes)
        }
        Expression::Snat { ip, address } => {
            let family = match ip {
                IpVersion::V4 => 2,
                IpVersion::V6 => 10,
            };
            ("nat", numbers(&[(1, 0), (2, family), (3, number(*address))]))
        }
        Expression::Dup { address, link } => ("dup", numbers(&[(1, number(*address)), (2, number(*link))])),
        Expression::Notrack => ("notrack", Vec::new()),
        Expression::Counter => ("counter", attributes(&[(1, &[0; 8]), (2, &[0; 8])])),
        Expression::RouteMss(to) => ("rt", numbers(&[(1, number(*to)), (2, 3)])),
        Expression::SetMss(from) => {
            let mut data = attributes(&[(2, &[2])]);
            data.extend(numbers(&[(3, 2), (4, 2), (6, 1), (7, number(*from))]));
            ("exthdr", data)
        }
        Expression::Verdict(verdict) => ("immediate", encode_verdict(*verdict)),
    }
}

fn encode_verdict(verdict: Verdict) -> Vec<u8> {
    let (code, chain) = match verdict {
        Verdict::Drop => (0, None),
        Verdict::Accept => (1, None),
        Verdict::Jump(chain) => (-3, Some(chain)),
        Verdict::Return => (-5_i32, None),
    };
    let mut inner = attributes(&[(1, &code.to_be_bytes())]);
    if let Some(chain) = chain {
        put_text(&mut inner, 2, chain);
    }
    let mut nested = Vec::new();
    put_nested(&mut nested, 2, &inner);
    let mut data = numbers(&[(1, 0)]);
    put_nested(&mut data, 2, &nested);
    data
}

fn lookup(set: &str, key: Register) -> Vec<u8> {
    let mut data = Vec::new();
    put_text(&mut data, 1, set);
    put(&mut data, 2, &number(key).to_be_bytes());
    data
}

fn numbers(list: &[(u16, u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, number) in list {
        put(&mut bytes, *kind, &number.to_be_bytes());
    }
    bytes
}

fn value(data: &[u8]) -> Vec<u8> {
    attributes(&[(1, data)])
}

/// The kernel counts registers of 32 bits from 8 on.
fn number(register: Register) -> u32 {
    8 + u32::from(register.0)
}

fn meta(key: MetaKey) -> u32 {
    match key {
        MetaKey::Protocol => 1,
        MetaKey::Priority => 2,
        MetaKey::Mark => 3,
        MetaKey::InputName => 6,
        MetaKey::OutputName => 7,
        MetaKey::NfProto => 15,
        MetaKey::L4Proto => 16,
    }
}

fn ct(key: CtKey) -> u32 {
    match key {
        CtKey::State => 0,
        CtKey::Direction => 1,
        CtKey::Mark => 3,
    }
}

fn base(header: Header) -> u32 {
    match header {
        Header::Link => 0,
        Header::Network => 1,
        Header::Transport => 2,
    }
}
