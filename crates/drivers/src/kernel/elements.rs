//! The maps and sets of the ruleset, with what they hold, as plain data.
//!
//! [`Elements`] has one field for each of them, of the same name as in the kernel. Their number is fixed; addresses, pods
//! and policies are elements.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::difference::without;
use super::mark::{Mark, Slot};
use super::nft::Family;

/// One map or set, as it is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetSpec {
    /// The table.
    pub family: Family,
    /// Its name there.
    pub name: &'static str,
    /// The parts of its key.
    pub key: &'static [FieldType],
    /// The value, if it is a map.
    pub value: Option<FieldType>,
    /// Whether keys are ranges.
    pub is_interval: bool,
    /// Whether elements may have a timeout.
    pub is_timed: bool,
    /// Whether each element counts the packets that hit it.
    pub is_counted: bool,
}

/// What a key or a value is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FieldType {
    Mark,
    Ipv4,
    Ipv6,
}

impl FieldType {
    /// Bytes in the kernel.
    pub const fn length(self) -> usize {
        match self {
            Self::Mark | Self::Ipv4 => 4,
            Self::Ipv6 => 16,
        }
    }
}

/// An element as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RawElement {
    /// The key, or the first of its range.
    pub key: Vec<u8>,
    /// The last key of the range.
    pub last: Option<Vec<u8>>,
    /// The value, if it is in a map.
    pub value: Option<Vec<u8>>,
}

/// Addresses from the first to the last, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range<A> {
    pub first: A,
    pub last: A,
}

/// The address at an egress slot or a set of them: a key with one address.
pub type SlotAddress<A> = (Mark, A);

macro_rules! elements {
    ($($(#[$doc:meta])* $field:ident($family:ident $name:literal $(, $flag:ident)*): $key:ty => $value:ty;)*) => {
        /// What the maps and sets hold.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Elements { $($(#[$doc])* pub $field: BTreeMap<$key, $value>,)* }

        /// Every map and set, in the order in which they are declared.
        pub const SETS: &[SetSpec] = &[$(SetSpec {
            $($flag: true,)*
            ..spec(Family::$family, $name, <$key as Key>::TYPES, <$value as Value>::TYPE, <$key as Key>::IS_INTERVAL)
        },)*];

        impl Elements {
            /// What is here and not, or with another value, there.
            #[must_use]
            pub fn without(&self, other: &Self) -> Self {
                Self { $($field: without(&self.$field, &other.$field),)* }
            }

            /// Inserts all that the other has.
            pub fn extend(&mut self, other: Self) {
                $(self.$field.extend(other.$field);)*
            }

            /// Removes all keys that the other has; true if all of them were here.
            pub fn remove(&mut self, other: &Self) -> bool {
                let mut were_here = true;
                $(for key in other.$field.keys() { were_here &= self.$field.remove(key).is_some(); })*
                were_here
            }

            /// How many elements there are.
            pub fn len(&self) -> usize {
                [$(self.$field.len()),*].iter().sum()
            }

            /// True if there is none.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// All elements, set by set, in the order of [`SETS`].
            pub fn raw(&self) -> Vec<Vec<RawElement>> {
                vec![$(self.$field.iter().map(|(key, value)| raw(key, value)).collect(),)*]
            }

            /// Reads an element of a set; None if it has not the form of that set's elements.
            pub fn insert_raw(&mut self, set: &SetSpec, element: &RawElement) -> Option<()> {
                match (set.family, set.name) {
                    $((Family::$family, $name) => {
                        let key = <$key as Key>::read(&element.key, element.last.as_deref())?;
                        let value = <$value as Value>::read(element.value.as_deref())?;
                        self.$field.insert(key, value);
                    })*
                    _ => return None,
                }
                Some(())
            }
        }
    };
}

elements! {
    /// Addresses of this node's pods: a slot's mark, a class, or [`Mark::UNSELECTED`].
    src4(Inet "src4"): Ipv4Addr => Mark;
    /// As `src4`.
    src6(Inet "src6"): Ipv6Addr => Mark;
    /// Destinations of a class: a slot's mark, or a class. Ranges of one class do not overlap.
    dst4(Inet "dst4"): (Mark, Range<Ipv4Addr>) => Mark;
    /// As `dst4`.
    dst6(Inet "dst6"): (Mark, Range<Ipv6Addr>) => Mark;
    /// What is known of ranges: bits of [`super::mark::scope`].
    net4(Inet "net4"): Range<Ipv4Addr> => Mark;
    /// As `net4`.
    net6(Inet "net6"): Range<Ipv6Addr> => Mark;
    /// What is known of single addresses: bits of `scope`, or [`Mark::relay_to`] the previous owner.
    addr4(Inet "addr4"): Ipv4Addr => Mark;
    /// As `addr4`.
    addr6(Inet "addr6"): Ipv6Addr => Mark;
    /// The way of a slot's mark or a class: [`Mark::owned_here`] or [`Mark::owned_by`].
    own(Inet "own"): Mark => Mark;
    /// Addresses of slots that this node translates to.
    eip4(Inet "eip4", is_counted): Mark => Ipv4Addr;
    /// As `eip4`.
    eip6(Inet "eip6", is_counted): Mark => Ipv6Addr;
    /// The pairs of `eip4`: a running flow keeps no address that its slot does not have any more.
    held4(Inet "held4"): SlotAddress<Ipv4Addr> => ();
    /// As `held4`.
    held6(Inet "held6"): SlotAddress<Ipv6Addr> => ();
    /// Laps of the lease that have begun, each for its time.
    armed(Inet "armed", is_timed): Mark => ();
    /// Laps of the lease that a majority has granted.
    granted(Inet "granted"): Mark => ();
    /// Egress addresses that may be announced on the uplink while the lease holds.
    link_held4(Netdev "held4"): Ipv4Addr => ();
    /// As `link_held4`.
    link_held6(Netdev "held6"): Ipv6Addr => ();
    /// As `armed`.
    link_armed(Netdev "armed", is_timed): Mark => ();
    /// As `granted`.
    link_granted(Netdev "granted"): Mark => ();
}

impl Elements {
    /// Has this node translate to an address.
    pub fn translate4(&mut self, slot: Slot, address: Ipv4Addr) {
        self.eip4.insert(slot.mark(), address);
        self.held4.insert((slot.mark(), address), ());
        if slot != Slot::NODE_ADDRESS {
            self.link_held4.insert(address, ());
        }
    }

    /// Has this node translate to an address.
    pub fn translate6(&mut self, slot: Slot, address: Ipv6Addr) {
        self.eip6.insert(slot.mark(), address);
        self.held6.insert((slot.mark(), address), ());
        if slot != Slot::NODE_ADDRESS {
            self.link_held6.insert(address, ());
        }
    }

    /// Lets this node use its egress addresses until the lap is taken away again.
    pub fn grant(&mut self, lap: u32) {
        for set in [&mut self.armed, &mut self.granted, &mut self.link_armed, &mut self.link_granted] {
            set.insert(Mark(lap), ());
        }
    }
}

/// A key of a map or set.
trait Key: Sized {
    const TYPES: &'static [FieldType];
    const IS_INTERVAL: bool = false;

    fn write(&self, key: &mut Vec<u8>) -> Option<Vec<u8>>;

    fn read(key: &[u8], last: Option<&[u8]>) -> Option<Self>;
}

/// A value of a map, or none.
trait Value: Sized {
    const TYPE: Option<FieldType>;

    fn write(&self) -> Option<Vec<u8>>;

    fn read(value: Option<&[u8]>) -> Option<Self>;
}

/// Something of fixed length.
trait Field: Sized + Copy {
    const TYPE: FieldType;

    fn bytes(self) -> Vec<u8>;

    fn parse(bytes: &[u8]) -> Option<Self>;
}

impl Field for Mark {
    const TYPE: FieldType = FieldType::Mark;

    fn bytes(self) -> Vec<u8> {
        self.0.to_ne_bytes().into()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(|bytes| Self(u32::from_ne_bytes(bytes)))
    }
}

impl Field for Ipv4Addr {
    const TYPE: FieldType = FieldType::Ipv4;

    fn bytes(self) -> Vec<u8> {
        self.octets().into()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        <[u8; 4]>::try_from(bytes).ok().map(Self::from)
    }
}

impl Field for Ipv6Addr {
    const TYPE: FieldType = FieldType::Ipv6;

    fn bytes(self) -> Vec<u8> {
        self.octets().into()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        <[u8; 16]>::try_from(bytes).ok().map(Self::from)
    }
}

impl<F: Field> Key for F {
    const TYPES: &'static [FieldType] = &[F::TYPE];

    fn write(&self, key: &mut Vec<u8>) -> Option<Vec<u8>> {
        key.extend(self.bytes());
        None
    }

    fn read(key: &[u8], last: Option<&[u8]>) -> Option<Self> {
        if last.is_some() { None } else { F::parse(key) }
    }
}

impl<A: Field> Key for Range<A> {
    const TYPES: &'static [FieldType] = &[A::TYPE];
    const IS_INTERVAL: bool = true;

    fn write(&self, key: &mut Vec<u8>) -> Option<Vec<u8>> {
        key.extend(self.first.bytes());
        Some(self.last.bytes())
    }

    fn read(key: &[u8], last: Option<&[u8]>) -> Option<Self> {
        Some(Self { first: A::parse(key)?, last: A::parse(last?)? })
    }
}

impl<A: Field, K: Key> Key for (A, K)
where
    Concatenated<A, K>: Types,
{
    const TYPES: &'static [FieldType] = <Concatenated<A, K> as Types>::TYPES;
    const IS_INTERVAL: bool = K::IS_INTERVAL;

    fn write(&self, key: &mut Vec<u8>) -> Option<Vec<u8>> {
        key.extend(self.0.bytes());
        let last = self.1.write(key)?;
        Some([self.0.bytes(), last].concat())
    }

    fn read(key: &[u8], last: Option<&[u8]>) -> Option<Self> {
        let (head, rest) = key.split_at_checked(A::TYPE.length())?;
        let last = match last {
            Some(last) => Some(last.split_at_checked(A::TYPE.length())?.1),
            None => None,
        };
        Some((A::parse(head)?, K::read(rest, last)?))
    }
}

/// Names the types of a key of two parts, which generic code cannot put into one constant.
struct Concatenated<A, K>(std::marker::PhantomData<(A, K)>);

trait Types {
    const TYPES: &'static [FieldType];
}

impl Types for Concatenated<Mark, Ipv4Addr> {
    const TYPES: &'static [FieldType] = &[FieldType::Mark, FieldType::Ipv4];
}

impl Types for Concatenated<Mark, Ipv6Addr> {
    const TYPES: &'static [FieldType] = &[FieldType::Mark, FieldType::Ipv6];
}

impl<A> Types for Concatenated<Mark, Range<A>>
where
    Concatenated<Mark, A>: Types,
{
    const TYPES: &'static [FieldType] = <Concatenated<Mark, A> as Types>::TYPES;
}

impl<F: Field> Value for F {
    const TYPE: Option<FieldType> = Some(F::TYPE);

    fn write(&self) -> Option<Vec<u8>> {
        Some(self.bytes())
    }

    fn read(value: Option<&[u8]>) -> Option<Self> {
        F::parse(value?)
    }
}

impl Value for () {
    const TYPE: Option<FieldType> = None;

    fn write(&self) -> Option<Vec<u8>> {
        None
    }

    fn read(value: Option<&[u8]>) -> Option<Self> {
        value.is_none().then_some(())
    }
}

const fn spec(
    family: Family,
    name: &'static str,
    key: &'static [FieldType],
    value: Option<FieldType>,
    is_interval: bool,
) -> SetSpec {
    SetSpec { family, name, key, value, is_interval, is_timed: false, is_counted: false }
}

fn raw(key: &impl Key, value: &impl Value) -> RawElement {
    let mut bytes = Vec::new();
    let last = key.write(&mut bytes);
    RawElement { key: bytes, last, value: value.write() }
}
