//! The flow table: which session a datagram belongs to.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Identifies a flow: the socket it arrives on, and the peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct FlowKey {
    /// In halves, so that it takes 24 bytes and not 32.
    address: [u64; 2],
    pub listener: u32,
    pub port: u16,
}

impl FlowKey {
    pub const fn new(address: u128, listener: u32, port: u16) -> Self {
        Self { address: [(address >> 64) as u64, address as u64], listener, port }
    }
}

/// An open-addressing table from flow to slot. One worker owns it; nothing in it is shared.
pub struct FlowTable {
    seed: u64,
    /// Upper half: tag (never 0 when used). Lower half: slot.
    cells: Vec<u64>,
    used: usize,
}

const EMPTY: u64 = 0;

impl FlowTable {
    /// The seed is random per process, so that clients cannot choose colliding flows.
    pub fn new(seed: u64) -> Self {
        Self { seed, cells: vec![EMPTY; 64], used: 0 }
    }

    pub const fn len(&self) -> usize {
        self.used
    }

    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The slot of `key`, whose hash was asked for; `key_of` reads the key that a slot has.
    pub fn get(&self, hash: u64, key: &FlowKey, key_of: impl Fn(u32) -> FlowKey) -> Option<u32> {
        let mask = self.cells.len() - 1;
        let tag = tag(hash);
        let mut at = hash as usize & mask;
        loop {
            let cell = self.cells[at];
            if cell == EMPTY {
                return None;
            }
            if cell & TAG == tag && key_of(cell as u32) == *key {
                return Some(cell as u32);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a flow that is not in the table.
    pub fn insert(&mut self, hash: u64, slot: u32, key_of: impl Fn(u32) -> FlowKey) {
        if (self.used + 1) * 4 > self.cells.len() * 3 {
            self.grow(key_of);
        }
        self.place(hash, slot);
        self.used += 1;
    }

    /// Takes a flow out, closing the gap so that later ones are still found.
    pub fn remove(&mut self, key: &FlowKey, key_of: impl Fn(u32) -> FlowKey) -> Option<u32> {
        let hash = self.hash(key);
        let mask = self.cells.len() - 1;
        let mut at = hash as usize & mask;
        let slot = loop {
            let cell = self.cells[at];
            if cell == EMPTY {
                return None;
            }
            if cell & TAG == tag(hash) && key_of(cell as u32) == *key {
                break cell as u32;
            }
            at = (at + 1) & mask;
        };
        self.cells[at] = EMPTY;
        self.used -= 1;
        let mut gap = at;
        let mut next = (at + 1) & mask;
        while self.cells[next] != EMPTY {
            let home = self.hash(&key_of(self.cells[next] as u32)) as usize & mask;
            // The cell may move back if its home is not between the gap and where it is.
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(gap) & mask) {
                self.cells[gap] = self.cells[next];
                self.cells[next] = EMPTY;
                gap = next;
            }
            next = (next + 1) & mask;
        }
        Some(slot)
    }

    fn grow(&mut self, key_of: impl Fn(u32) -> FlowKey) {
        let old = std::mem::take(&mut self.cells);
        self.cells = vec![EMPTY; old.len() * 2];
        for cell in old.into_iter().filter(|cell| *cell != EMPTY) {
            self.place(self.hash(&key_of(cell as u32)), cell as u32);
        }
    }

    fn place(&mut self, hash: u64, slot: u32) {
        let mask = self.cells.len() - 1;
        let mut at = hash as usize & mask;
        while self.cells[at] != EMPTY {
            at = (at + 1) & mask;
        }
        self.cells[at] = tag(hash) | u64::from(slot);
    }

    pub fn hash(&self, key: &FlowKey) -> u64 {
        let mut bytes = [0; 22];
        bytes[..8].copy_from_slice(&key.address[0].to_ne_bytes());
        bytes[8..16].copy_from_slice(&key.address[1].to_ne_bytes());
        bytes[16..20].copy_from_slice(&key.listener.to_ne_bytes());
        bytes[20..].copy_from_slice(&key.port.to_ne_bytes());
        xxh3_64_with_seed(&bytes, self.seed)
    }
}

const TAG: u64 = 0xffff_ffff_0000_0000;

const fn tag(hash: u64) -> u64 {
    (hash & TAG) | 1 << 63
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(i: u32) -> FlowKey {
        FlowKey::new(u128::from(i / 7) << 9, i % 3, (i % 65_521) as u16)
    }

    #[test]
    fn every_flow_is_found_after_any_removals() {
        let keys: Vec<FlowKey> = (0..20_000).map(key).collect();
        let key_of = |slot: u32| keys[slot as usize];
        let mut table = FlowTable::new(42);
        for (slot, key) in keys.iter().enumerate() {
            let hash = table.hash(key);
            assert_eq!(table.get(hash, key, key_of), None);
            table.insert(hash, slot as u32, key_of);
        }
        for slot in (0..keys.len()).step_by(3) {
            assert_eq!(table.remove(&keys[slot], key_of), Some(slot as u32));
            assert_eq!(table.remove(&keys[slot], key_of), None);
        }
        for (slot, key) in keys.iter().enumerate() {
            assert_eq!(table.get(table.hash(key), key, key_of), (slot % 3 != 0).then_some(slot as u32));
        }
        assert_eq!(table.len(), keys.len() - keys.len().div_ceil(3));
    }
}
