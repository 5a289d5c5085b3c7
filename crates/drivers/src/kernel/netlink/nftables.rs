//! The ruleset and its elements: loaded in one transaction, changed in one, and read back.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::expression;
use super::socket::{NETFILTER, Socket};
use super::wire::{APPEND, CREATE, Message, be32, find, parse, put, put_nested, put_text, text, u16_at};
use crate::kernel::elements::{Elements, RawElement, SETS, SetSpec};
use crate::kernel::nft::{Chain, Family, Hook, HookPoint};
use crate::kernel::ruleset::{Parameters, TABLE, TUNNEL_LINK, chains};
use crate::kernel::state::{Delta, Ruleset, RulesetChange};
use crate::kernel::{KernelError, NodeNumber};

const SUBSYSTEM: u16 = 10;
const NEW_TABLE: u16 = 0;
const GET_TABLE: u16 = 1;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const GET_CHAIN: u16 = 4;
const NEW_RULE: u16 = 6;
const GET_RULE: u16 = 7;
const NEW_SET: u16 = 9;
const GET_SET: u16 = 10;
const NEW_ELEMENT: u16 = 12;
const GET_ELEMENT: u16 = 13;
const DELETE_ELEMENT: u16 = 14;
const BEGIN: u16 = 0x10;
const END: u16 = 0x11;

/// Of an element that only ends the range before it.
const INTERVAL_END: u32 = 1;
/// The kind of a table's user data that holds our parameters.
const PARAMETERS: u8 = 0x70;
/// Bytes of elements in one message: a list of attributes is below 64 KiB.
const MESSAGE: usize = 32 << 10;

pub(super) struct Nftables {
    socket: Socket,
}

impl Nftables {
    pub(super) fn open() -> Result<Self, KernelError> {
        Ok(Self { socket: Socket::open(NETFILTER, 0)? })
    }

    /// The number by which the kernel names our changes.
    pub(super) fn port(&self) -> Result<u32, KernelError> {
        self.socket.port()
    }

    /// Changes tables and elements in one transaction, or sends nothing. Without the tunnel, its chain is left out: the
    /// ruleset counts as damaged then, and is loaded again.
    pub(super) fn apply(&mut self, delta: &Delta, has_tunnel: bool) -> Result<(), KernelError> {
        let mut messages = Vec::new();
        if delta.ruleset.is_some() {
            messages.extend(Family::ALL.into_iter().flat_map(absent));
        }
        if let Some(RulesetChange::Load(parameters)) = &delta.ruleset {
            load(parameters, has_tunnel, &mut messages);
        }
        elements(DELETE_ELEMENT, &delta.remove_elements, &mut messages);
        elements(NEW_ELEMENT, &delta.add_elements, &mut messages);
        let mark = |kind| Message::new(kind, 0, &[0, 0, 0, 10]);
        self.socket.batch("changes of the ruleset", &mark(BEGIN), messages, &mark(END))
    }

    /// Reads the ruleset's state, and its elements if there is one.
    pub(super) fn dump(&mut self) -> Result<(Ruleset, Elements), KernelError> {
        let tables = self.tables()?;
        if tables.is_empty() {
            return Ok((Ruleset::Absent, Elements::default()));
        }
        let Some(parameters) = tables.iter().find_map(|table| table.parameters.clone()) else {
            return Ok((Ruleset::Damaged(tables.into_iter().map(|table| table.line).collect()), Elements::default()));
        };
        let mut actual: BTreeSet<String> = tables.into_iter().map(|table| table.line).collect();
        actual.extend(self.chains()?);
        actual.extend(self.rules()?);
        actual.extend(self.sets()?);
        let differences: BTreeSet<String> = actual.symmetric_difference(&shape(&parameters)).cloned().collect();
        if !differences.is_empty() {
            return Ok((Ruleset::Damaged(differences), Elements::default()));
        }
        Ok((Ruleset::Loaded(parameters), self.elements()?))
    }

    fn tables(&mut self) -> Result<Vec<Table>, KernelError> {
        let tables = self.socket.dump("tables", &message(Family::Inet, GET_TABLE, 0).of_any_family(), |received| {
            let (family, attributes) = ours(received.body)?;
            Some(attributes.map(|attributes| {
                let flags = find(attributes, 2).and_then(be32).unwrap_or_default();
                let parameters = find(attributes, 6).and_then(read_parameters);
                Table { line: format!("{family} table, flags {flags}"), parameters }
            }))
        })?;
        Ok(tables.into_iter().flatten().collect())
    }

    fn chains(&mut self) -> Result<Vec<String>, KernelError> {
        let chains = self.socket.dump("chains", &message(Family::Inet, GET_CHAIN, 0).of_any_family(), |received| {
            let (family, attributes) = ours(received.body)?;
            let Some(attributes) = attributes else { return Some(None) };
            let name = find(attributes, 3).and_then(text)?;
            let hook = find(attributes, 4).map(|hook| {
                let number = |kind| find(hook, kind).and_then(be32).unwrap_or_default();
                let link = find(hook, 3).and_then(text).unwrap_or_default();
                let kind = find(attributes, 7).and_then(text).unwrap_or_default();
                let policy = find(attributes, 5).and_then(be32).unwrap_or_default();
                hook_line(number(1), number(2), kind, link, policy)
            });
            Some(Some(chain_line(family, name, &hook.unwrap_or_default())))
        })?;
        Ok(chains.into_iter().flatten().collect())
    }

    fn rules(&mut self) -> Result<Vec<String>, KernelError> {
        let mut lines = Vec::new();
        // A dump of one table ends with the first of that name, so families are asked for one by one.
        for family in Family::ALL {
            let mut of_table = message(family, GET_RULE, 0);
            put_text(&mut of_table.body, 1, TABLE);
            let rules = self.socket.dump("rules", &of_table, |received| {
                let attributes = received.body.get(4..)?;
                let chain = find(attributes, 2).and_then(text)?.to_owned();
                Some((chain, find(attributes, 7).and_then(expression::read_fingerprint)))
            })?;
            let mut counts: BTreeMap<String, usize> = BTreeMap::new();
            for (chain, fingerprint) in rules {
                let count = counts.entry(chain.clone()).or_default();
                *count += 1;
                lines.push(rule_line(family.number(), &chain, *count, fingerprint));
            }
        }
        Ok(lines)
    }

    fn sets(&mut self) -> Result<Vec<String>, KernelError> {
        let sets = self.socket.dump("sets", &message(Family::Inet, GET_SET, 0).of_any_family(), |received| {
            let (family, attributes) = ours(received.body)?;
            let Some(attributes) = attributes else { return Some(None) };
            let name = find(attributes, 2).and_then(text)?;
            let number = |kind| find(attributes, kind).and_then(be32).unwrap_or_default();
            Some(Some(set_line(family, name, [number(3), number(5), number(7)])))
        })?;
        Ok(sets.into_iter().flatten().collect())
    }

    fn elements(&mut self) -> Result<Elements, KernelError> {
        let mut elements = Elements::default();
        for set in SETS {
            let mut request = message(set.family, GET_ELEMENT, 0);
            put_text(&mut request.body, 1, TABLE);
            put_text(&mut request.body, 2, set.name);
            let lists = self.socket.dump("elements", &request, |received| {
                let list = find(received.body.get(4..)?, 3).unwrap_or_default();
                parse(list).map(|(_, element)| Element::read(element)).collect::<Option<Vec<_>>>()
            })?;
            let found = lists.into_iter().flatten().filter(|element| !element.is_timed);
            let found: Vec<RawElement> = if set.is_interval && set.key.len() == 1 {
                ranges(found)
            } else {
                found.map(|element| element.raw).collect()
            };
            for element in found {
                elements.insert_raw(set, &element).ok_or(KernelError::Malformed { what: "elements" })?;
            }
        }
        Ok(elements)
    }
}

struct Table {
    line: String,
    parameters: Option<Parameters>,
}

struct Element {
    raw: RawElement,
    is_timed: bool,
    is_end: bool,
}

impl Element {
    fn read(bytes: &[u8]) -> Option<Self> {
        let data = |kind| Some(find(find(bytes, kind)?, 1)?.to_vec());
        let raw = RawElement { key: data(1)?, last: data(10), value: data(2) };
        let flags = find(bytes, 3).and_then(be32).unwrap_or_default();
        Some(Self { raw, is_timed: find(bytes, 4).is_some(), is_end: flags & INTERVAL_END != 0 })
    }
}

/// Joins the two elements of which the kernel makes a range: its first key, and the one after its last.
fn ranges(elements: impl Iterator<Item = Element>) -> Vec<RawElement> {
    let (ends, starts): (Vec<_>, Vec<_>) = elements.partition(|element| element.is_end);
    let ends: BTreeSet<Vec<u8>> = ends.into_iter().map(|element| element.raw.key).collect();
    let last = |start: &[u8]| {
        let after = ends.range::<[u8], _>((Bound::Excluded(start), Bound::Unbounded)).next();
        Some(after.map_or_else(|| vec![0xff; start.len()], |after| step(after, u8::wrapping_sub, 0)))
    };
    starts.into_iter().map(|Element { raw, .. }| RawElement { last: last(&raw.key), ..raw }).collect()
}

/// The number before or after one in network order. `carries` is the digit from which the next one changes too.
fn step(number: &[u8], change: fn(u8, u8) -> u8, carries: u8) -> Vec<u8> {
    let mut next = number.to_vec();
    for digit in next.iter_mut().rev() {
        let carry = *digit == carries;
        *digit = change(*digit, 1);
        if !carry {
            break;
        }
    }
    next
}

/// Deletes a table, whether it is there or not.
fn absent(family: Family) -> [Message; 2] {
    [NEW_TABLE, DELETE_TABLE].map(|kind| {
        let mut message = message(family, kind, if kind == NEW_TABLE { CREATE } else { 0 });
        put_text(&mut message.body, 1, TABLE);
        message
    })
}

/// Makes tables, sets, chains and rules, in the order in which they need each other.
fn load(parameters: &Parameters, has_tunnel: bool, messages: &mut Vec<Message>) {
    for family in Family::ALL {
        let mut table = message(family, NEW_TABLE, CREATE);
        put_text(&mut table.body, 1, TABLE);
        put(&mut table.body, 6, &write_parameters(parameters));
        messages.push(table);
    }
    for (set, identifier) in SETS.iter().zip(1..) {
        messages.push(with_body(set.family, NEW_SET, CREATE, &expression::set(set, identifier)));
    }
    let mut chains = chains(parameters);
    chains.retain(|chain| has_tunnel || !chain.is_of_link(TUNNEL_LINK));
    for chain in &chains {
        messages.push(with_body(chain.family, NEW_CHAIN, CREATE, &expression::chain(chain)));
    }
    for chain in &chains {
        for rule in &chain.rules {
            messages.push(with_body(chain.family, NEW_RULE, CREATE | APPEND, &expression::rule(chain, rule)));
        }
    }
}

fn elements(kind: u16, elements: &Elements, messages: &mut Vec<Message>) {
    for (set, elements) in SETS.iter().zip(elements.raw()) {
        let mut list = Vec::new();
        for element in &elements {
            write_element(set, element, &mut list);
            if list.len() > MESSAGE {
                messages.push(element_list(kind, set, &std::mem::take(&mut list)));
            }
        }
        if !list.is_empty() {
            messages.push(element_list(kind, set, &list));
        }
    }
}

fn element_list(kind: u16, set: &SetSpec, list: &[u8]) -> Message {
    let mut message = message(set.family, kind, if kind == NEW_ELEMENT { CREATE } else { 0 });
    put_text(&mut message.body, 1, TABLE);
    put_text(&mut message.body, 2, set.name);
    put_nested(&mut message.body, 3, list);
    message
}

fn write_element(set: &SetSpec, element: &RawElement, list: &mut Vec<u8>) {
    let data = |bytes: &mut Vec<u8>, kind, data: &[u8]| {
        let mut value = Vec::new();
        put(&mut value, 1, data);
        put_nested(bytes, kind, &value);
    };
    let mut bytes = Vec::new();
    data(&mut bytes, 1, &element.key);
    if let Some(value) = &element.value {
        data(&mut bytes, 2, value);
    }
    let has_end_element = set.key.len() == 1;
    match &element.last {
        Some(last) if has_end_element => {
            put_nested(list, 1, &bytes);
            // The range up to the highest address has no end.
            if last.iter().any(|byte| *byte != 0xff) {
                let mut end = Vec::new();
                data(&mut end, 1, &step(last, u8::wrapping_add, 0xff));
                put(&mut end, 3, &INTERVAL_END.to_be_bytes());
                put_nested(list, 1, &end);
            }
        }
        Some(last) => {
            data(&mut bytes, 10, last);
            put_nested(list, 1, &bytes);
        }
        None => put_nested(list, 1, &bytes),
    }
}

/// What a whole ruleset looks like in a dump, line by line.
fn shape(parameters: &Parameters) -> BTreeSet<String> {
    let mut lines: BTreeSet<String> =
        Family::ALL.iter().map(|family| format!("{} table, flags 0", family.number())).collect();
    for (set, identifier) in SETS.iter().zip(1..) {
        let attributes = expression::set(set, identifier);
        let number = |kind| find(&attributes, kind).and_then(be32).unwrap_or_default();
        lines.insert(set_line(set.family.number(), set.name, [number(3), number(5), number(7)]));
    }
    for chain in chains(parameters) {
        let Chain { family, name, hook, rules } = &chain;
        let hook = hook.as_ref().map(|Hook { point, priority, kind, link }| {
            let link = link.as_deref().unwrap_or_default();
            hook_line(HookPoint::number(*point), priority.cast_unsigned(), expression::chain_kind(*kind), link, 1)
        });
        lines.insert(chain_line(family.number(), name, &hook.unwrap_or_default()));
        let rules = rules.iter().zip(1..);
        lines.extend(
            rules.map(|(rule, count)| rule_line(family.number(), name, count, Some(expression::fingerprint(rule)))),
        );
    }
    lines
}

fn chain_line(family: u8, name: &str, hook: &str) -> String {
    format!("{family} chain {name}{hook}")
}

fn hook_line(point: u32, priority: u32, kind: &str, link: &str, policy: u32) -> String {
    format!(", {kind} at {point} priority {} link `{link}` policy {policy}", priority.cast_signed())
}

fn rule_line(family: u8, chain: &str, count: usize, fingerprint: Option<u64>) -> String {
    format!("{family} chain {chain} rule {count}: {fingerprint:x?}")
}

fn set_line(family: u8, name: &str, numbers: [u32; 3]) -> String {
    format!("{family} set {name}: {numbers:?}")
}

fn write_parameters(parameters: &Parameters) -> Vec<u8> {
    let uplink = parameters.uplink.as_bytes();
    let length = u8::try_from(2 + uplink.len()).expect("a link's name is below 16 bytes");
    [&[PARAMETERS, length][..], &parameters.node.get().to_ne_bytes(), uplink].concat()
}

fn read_parameters(user_data: &[u8]) -> Option<Parameters> {
    let (&[kind, length], rest) = user_data.split_first_chunk()?;
    let (node, uplink) = rest.get(..length.into())?.split_at_checked(2)?;
    let node = NodeNumber::new(u16_at(node, 0)?)?;
    (kind == PARAMETERS).then(|| Some(Parameters { node, uplink: text(uplink)?.to_owned() }))?
}

/// The family of an object, and its attributes if it belongs to our table.
fn ours(body: &[u8]) -> Option<(u8, Option<&[u8]>)> {
    let (header, attributes) = body.split_at_checked(4)?;
    let table = find(attributes, 1).and_then(text)?;
    Some((header[0], (table == TABLE).then_some(attributes)))
}

fn message(family: Family, kind: u16, flags: u16) -> Message {
    Message::new(SUBSYSTEM << 8 | kind, flags, &[family.number(), 0, 0, 0])
}

fn with_body(family: Family, kind: u16, flags: u16, body: &[u8]) -> Message {
    let mut message = message(family, kind, flags);
    message.body.extend(body);
    message
}

impl Message {
    fn of_any_family(mut self) -> Self {
        self.body[0] = 0;
        self
    }
}
