//! A slab: slots keep their number while they are used, and a generation detects stale keys.

/// Names one tenant of one slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Key {
    pub slot: u32,
    pub generation: u32,
}

/// Bits of a generation that fit into an epoll token beside the slot.
const GENERATIONS: u32 = 0xf_ffff;

struct Slot<T> {
    generation: u32,
    tenant: Option<T>,
}

/// A store of `T` by [`Key`].
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn insert(&mut self, tenant: T) -> Key {
        if let Some(slot) = self.free.pop() {
            let entry = &mut self.slots[slot as usize];
            entry.tenant = Some(tenant);
            return Key { slot, generation: entry.generation };
        }
        self.slots.push(Slot { generation: 0, tenant: Some(tenant) });
        Key { slot: (self.slots.len() - 1) as u32, generation: 0 }
    }

    pub fn remove(&mut self, key: Key) -> Option<T> {
        let entry = self.slots.get_mut(key.slot as usize).filter(|entry| entry.generation == key.generation)?;
        let tenant = entry.tenant.take()?;
        entry.generation = (entry.generation + 1) & GENERATIONS;
        self.free.push(key.slot);
        Some(tenant)
    }

    pub fn get(&self, key: Key) -> Option<&T> {
        self.slots.get(key.slot as usize).filter(|entry| entry.generation == key.generation)?.tenant.as_ref()
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slots.get_mut(key.slot as usize).filter(|entry| entry.generation == key.generation)?.tenant.as_mut()
    }

    /// Takes a tenant out for a while; its slot stays its own until [`Slab::put`] or [`Slab::vacate`].
    pub fn take(&mut self, key: Key) -> Option<T> {
        self.slots.get_mut(key.slot as usize).filter(|entry| entry.generation == key.generation)?.tenant.take()
    }

    /// Brings back what [`Slab::take`] took.
    pub fn put(&mut self, key: Key, tenant: T) {
        self.slots[key.slot as usize].tenant = Some(tenant);
    }

    /// Gives up the slot of a tenant that was taken.
    pub fn vacate(&mut self, key: Key) {
        let entry = &mut self.slots[key.slot as usize];
        if entry.generation == key.generation {
            entry.tenant = None;
            entry.generation = (entry.generation + 1) & GENERATIONS;
            self.free.push(key.slot);
        }
    }

    /// The current tenant of a slot, and its key.
    pub fn at(&self, slot: u32) -> Option<(Key, &T)> {
        let entry = self.slots.get(slot as usize)?;
        Some((Key { slot, generation: entry.generation }, entry.tenant.as_ref()?))
    }

    pub fn at_mut(&mut self, slot: u32) -> Option<(Key, &mut T)> {
        let entry = self.slots.get_mut(slot as usize)?;
        Some((Key { slot, generation: entry.generation }, entry.tenant.as_mut()?))
    }

    /// All keys in order of slots.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        let used = self.slots.iter().enumerate().filter(|(_, entry)| entry.tenant.is_some());
        used.map(|(slot, entry)| Key { slot: slot as u32, generation: entry.generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_key_does_not_open_the_slot_of_a_new_tenant() {
        let mut slab = Slab::default();
        let old = slab.insert('a');
        assert_eq!(slab.remove(old), Some('a'));
        let new = slab.insert('b');
        assert_eq!(new.slot, old.slot);
        assert_eq!((slab.get(old), slab.get(new)), (None, Some(&'b')));
        assert_eq!((slab.remove(old), slab.len()), (None, 1));
    }
}
