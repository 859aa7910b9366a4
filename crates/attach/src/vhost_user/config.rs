//! The device's features, and the configuration space that a driver reads.

use tyche_block::Geometry;
use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ,
    VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX, VIRTIO_BLK_F_WRITE_ZEROES,
};
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::{
    VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC,
};

use super::chain::DATA_SEGMENTS_MAX;
use crate::SECTOR;

/// Bytes of the configuration, with all fields for newer drivers.
const LEN: usize = 96;

/// The protocol features to negotiate.
pub(super) const PROTOCOL: VhostUserProtocolFeatures = VhostUserProtocolFeatures::MQ
    .union(VhostUserProtocolFeatures::CONFIG)
    .union(VhostUserProtocolFeatures::INFLIGHT_SHMFD)
    .union(VhostUserProtocolFeatures::REPLY_ACK);

/// Whether a feature is among those negotiated.
pub(super) fn has(features: u64, feature: u32) -> bool {
    features & (1 << feature) != 0
}

/// The features offered for a disk.
pub(super) fn features(geometry: &Geometry) -> u64 {
    let always = [
        VIRTIO_F_VERSION_1,
        VIRTIO_RING_F_EVENT_IDX,
        VIRTIO_RING_F_INDIRECT_DESC,
        VIRTIO_BLK_F_SIZE_MAX,
        VIRTIO_BLK_F_SEG_MAX,
        VIRTIO_BLK_F_BLK_SIZE,
        VIRTIO_BLK_F_FLUSH,
        VIRTIO_BLK_F_MQ,
    ];
    let sometimes = [
        (VIRTIO_BLK_F_RO, geometry.read_only),
        (VIRTIO_BLK_F_DISCARD, geometry.discard && !geometry.read_only),
        (VIRTIO_BLK_F_WRITE_ZEROES, !geometry.read_only),
    ];
    let sometimes = sometimes.into_iter().filter(|(_, wanted)| *wanted).map(|(bit, _)| bit);
    let bits = always.into_iter().chain(sometimes);
    bits.fold(VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits(), |all, bit| all | 1 << bit)
}

/// The device's configuration space.
#[derive(Clone, Debug)]
pub(super) struct Space([u8; LEN]);

impl Space {
    /// The configuration of a disk whose reads and writes have at most `payload_max` bytes.
    pub(super) fn new(geometry: &Geometry, payload_max: u32, queues: u16) -> Self {
        const PAGE: u32 = tyche_block::PAGE as u32;
        let segments_max = (payload_max / PAGE).clamp(1, DATA_SEGMENTS_MAX as u32);
        let segment_max = payload_max / segments_max / PAGE * PAGE;
        // The largest range that a 32-bit length in bytes can hold, in whole pages.
        let range_max = (u32::MAX - (PAGE - 1)) / SECTOR as u32;
        let mut space = Self([0; LEN]);
        space.put(0, (geometry.size / SECTOR).to_le_bytes());
        space.put(8, segment_max.to_le_bytes());
        space.put(12, segments_max.to_le_bytes());
        space.put(20, geometry.block_size.to_le_bytes());
        space.put(34, queues.to_le_bytes());
        space.put(36, range_max.to_le_bytes());
        space.put(40, 1_u32.to_le_bytes());
        space.put(44, (geometry.block_size / SECTOR as u32).to_le_bytes());
        space.put(48, range_max.to_le_bytes());
        space.put(52, 1_u32.to_le_bytes());
        space.put(56, [u8::from(geometry.discard)]);
        space
    }

    fn put<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) {
        self.0[offset..offset + N].copy_from_slice(&bytes);
    }

    /// A part of it; `None` if out of bounds.
    pub(super) fn part(&self, offset: u32, len: u32) -> Option<&[u8]> {
        let end = offset.checked_add(len)?;
        self.0.get(offset as usize..end as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_reads_the_properties_of_the_disk() {
        let mut geometry = Geometry { read_only: true, ..Geometry::new(1 << 30, 4096) };
        let space = Space::new(&geometry, 8 << 20, 4);
        let u32_at =
            |offset| u32::from_le_bytes(space.part(offset, 4).unwrap().try_into().unwrap());
        assert_eq!(u32_at(0), 2 << 20, "sectors");
        assert!(u64::from(u32_at(8)) * u64::from(u32_at(12)) <= 8 << 20, "longest request");
        assert_eq!((u32_at(12), u32_at(20)), (126, 4096));
        assert_eq!(space.part(34, 2).unwrap(), [4, 0]);
        assert_eq!((space.part(93, 4), space.part(u32::MAX, 2)), (None, None));
        let tiny = Space::new(&geometry, 4096, 1);
        assert_eq!(tiny.part(8, 8).unwrap(), [0, 16, 0, 0, 1, 0, 0, 0]);

        assert!(has(features(&geometry), VIRTIO_BLK_F_RO));
        assert!(!has(features(&geometry), VIRTIO_BLK_F_WRITE_ZEROES));
        (geometry.read_only, geometry.discard) = (false, true);
        assert!(!has(features(&geometry), VIRTIO_BLK_F_RO));
        assert!(has(features(&geometry), VIRTIO_BLK_F_DISCARD));
    }
}
