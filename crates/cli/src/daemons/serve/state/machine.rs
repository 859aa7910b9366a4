//! The past of this machine: the boot of its kernel, and the state that its hypervisor has started
//! it from.
//!
//! Linux does not export the generation ID of a virtual machine; a change under a running kernel is
//! noticed by the [engine](tyche_engine::restore). QEMU also passes the ID to the guest's firmware,
//! where it can be read at any time (qemu_fw_cfg).

use std::fs;

use uuid::Uuid;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// QEMU's data for the firmware, and the offset of the ID in it.
const QEMU: &str = "/sys/firmware/qemu_fw_cfg/by_name/etc/vmgenid_guid/raw";
const QEMU_OFFSET: usize = 40;

/// Boot ID of the kernel. If the kernel does not provide one, each call returns another.
pub(super) fn boot() -> Uuid {
    let id = fs::read_to_string(BOOT_ID).ok();
    id.and_then(|id| Uuid::parse_str(id.trim()).ok()).unwrap_or_else(Uuid::new_v4)
}

/// The generation ID of the virtual machine, if it can be read.
pub(super) fn vm_generation() -> Option<Uuid> {
    let blob = fs::read(QEMU).ok()?;
    Some(Uuid::from_bytes(blob.get(QEMU_OFFSET..QEMU_OFFSET + 16)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_has_one_name() {
        assert_eq!(boot(), boot());
    }
}
