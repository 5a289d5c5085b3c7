//! MD5 (RFC 1321), for the ring's points only: it places keys, it protects nothing.

/// floor(2^32 x |sin(i + 1)|), from the RFC.
#[rustfmt::skip]
const SINES: [u32; 64] = [
    0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee, 0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501,
    0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be, 0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821,
    0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa, 0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8,
    0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed, 0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a,
    0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c, 0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70,
    0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05, 0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665,
    0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039, 0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1,
    0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1, 0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391,
];

/// How a digest begins.
const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// Bytes of a message that fits into one block with its length.
const SHORT: usize = 55;

/// The digest of a message.
pub fn md5(message: &[u8]) -> [u8; 16] {
    let mut state = START.map(|word| [word]);
    let (blocks, rest) = message.as_chunks::<64>();
    for block in blocks {
        mix(&mut state, [block]);
    }
    // the rest, a one bit, zeros, and the length in bits: one block or two
    let mut tail = [0; 128];
    tail[..rest.len()].copy_from_slice(rest);
    tail[rest.len()] = 0x80;
    let end = if rest.len() <= SHORT { 64 } else { 128 };
    let bits = (message.len() as u64).wrapping_mul(8);
    tail[end - 8..end].copy_from_slice(&bits.to_le_bytes());
    for block in tail[..end].as_chunks::<64>().0 {
        mix(&mut state, [block]);
    }
    let mut digest = [0; 16];
    for (bytes, [word]) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *bytes = word.to_le_bytes();
    }
    digest
}

/// The first words of the digests of several messages, worked out side by side where all are short.
pub(super) fn first_words<const N: usize>(messages: [&[u8]; N]) -> [u32; N] {
    if messages.iter().any(|message| message.len() > SHORT) {
        return messages.map(first_word);
    }
    let blocks = messages.map(|message| {
        let mut block = [0; 64];
        block[..message.len()].copy_from_slice(message);
        block[message.len()] = 0x80;
        block[56..].copy_from_slice(&(message.len() as u64 * 8).to_le_bytes());
        block
    });
    let mut state = START.map(|word| [word; N]);
    mix(&mut state, blocks.each_ref());
    state[0]
}

/// The first word of a digest.
pub(super) fn first_word(message: &[u8]) -> u32 {
    let [a, b, c, d, ..] = md5(message);
    u32::from_le_bytes([a, b, c, d])
}

/// Mixes one block each into several digests; the compiler makes vectors of them.
fn mix<const N: usize>(state: &mut [[u32; N]; 4], blocks: [&[u8; 64]; N]) {
    let mut words = [[0; N]; 16];
    for (lane, block) in blocks.into_iter().enumerate() {
        for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
            word[lane] = u32::from_le_bytes(*bytes);
        }
    }
    let mut now = *state;
    round(&mut now, 0, [7, 12, 17, 22], |step| words[step], |b, c, d| (b & c) | (!b & d));
    round(&mut now, 16, [5, 9, 14, 20], |step| words[(5 * step + 1) % 16], |b, c, d| (d & b) | (!d & c));
    round(&mut now, 32, [4, 11, 16, 23], |step| words[(3 * step + 5) % 16], |b, c, d| b ^ c ^ d);
    round(&mut now, 48, [6, 10, 15, 21], |step| words[(7 * step) % 16], |b, c, d| c ^ (b | !d));
    for (sums, adds) in state.iter_mut().zip(now) {
        for (sum, add) in sums.iter_mut().zip(adds) {
            *sum = sum.wrapping_add(add);
        }
    }
}

/// Sixteen steps, the first with this number.
#[inline]
fn round<const N: usize>(
    state: &mut [[u32; N]; 4],
    first: usize,
    shifts: [u32; 4],
    word: impl Fn(usize) -> [u32; N],
    mixed: impl Fn(u32, u32, u32) -> u32,
) {
    let [mut a, mut b, mut c, mut d] = *state;
    for step in [0, 4, 8, 12] {
        let turn = |ahead: usize, a: [u32; N], b: [u32; N], c: [u32; N], d: [u32; N]| {
            let (sine, words) = (SINES[first + step + ahead], word(step + ahead));
            let mut turned = [0; N];
            for lane in 0..N {
                let sum = a[lane].wrapping_add(sine).wrapping_add(words[lane]);
                let sum = sum.wrapping_add(mixed(b[lane], c[lane], d[lane]));
                turned[lane] = b[lane].wrapping_add(sum.rotate_left(shifts[ahead]));
            }
            turned
        };
        a = turn(0, a, b, c, d);
        d = turn(1, d, a, b, c);
        c = turn(2, c, d, a, b);
        b = turn(3, b, c, d, a);
    }
    *state = [a, b, c, d];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(message: &str) -> String {
        md5(message.as_bytes()).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }

    #[test]
    fn the_digests_of_rfc_1321_come_out() {
        for (message, digest) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("a", "0cc175b9c0f1b6a831c399e269772661"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "d174ab98d277d9f5a5611c2c9f419d9f"),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
        ] {
            assert_eq!(hex(message), digest, "{message:?}");
        }
    }

    #[test]
    fn every_length_around_a_block_pads_right() {
        // from `head -c N /dev/zero | tr '\0' x | md5sum`
        for (length, digest) in [
            (55, "04364420e25c512fd958a70738aa8f72"),
            (56, "668a72d5ba17f08e62dabcafad6db14b"),
            (64, "c1bb4f81d892b2d57947682aeb252456"),
            (119, "ab347a5f68c8a443cfcddc633f12c24f"),
            (120, "fb98667f98096de92620b64f46e1c5b5"),
        ] {
            assert_eq!(hex(&"x".repeat(length)), digest, "{length} bytes");
        }
    }

    #[test]
    fn words_worked_out_side_by_side_are_those_of_the_digests() {
        let texts: Vec<String> = (0..60).map(|length| "0123456789".repeat(6)[..length].to_owned()).collect();
        for start in 0..56 {
            let messages: [&[u8]; 4] = std::array::from_fn(|lane| texts[start + lane].as_bytes());
            assert_eq!(first_words(messages), messages.map(first_word), "{start} to {} bytes", start + 3);
        }
    }
}
