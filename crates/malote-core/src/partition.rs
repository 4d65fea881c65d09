//! Where a key lives.
//!
//! The partition is computed here and sent explicitly, so that every producer agrees whatever
//! client library it uses, and a raised partition count changes nothing until it is adopted on
//! purpose. The function is the Java client's: murmur2 with seed `0x9747b28c`, sign bit cleared,
//! modulo the count.

/// The partition of `key` among `count` partitions; partition 0 when `count` is 0 or 1.
pub fn of_key(key: &[u8], count: u32) -> u32 {
    let hash = murmur2(key);
    let positive =
        if crate::planted::is("partition-sign") { hash as i32 as i64 as u32 >> 1 } else { hash & 0x7fff_ffff };
    positive % count.max(1)
}

/// murmur2 as Kafka's Java client computes it.
pub fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    let mut hash: u32 = 0x9747_b28c ^ data.len() as u32;
    let (words, tail) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !tail.is_empty() {
        for (at, byte) in tail.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}
