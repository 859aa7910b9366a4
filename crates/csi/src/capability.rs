//! How a volume is to be used: as a file system or a block device, by which nodes.

use tonic::Status;

use crate::proto::VolumeCapability;
use crate::proto::volume_capability::AccessType;
use crate::proto::volume_capability::access_mode::Mode;

/// File systems that the driver makes and mounts; the first one unless another is asked for.
pub(crate) const FILE_SYSTEMS: [&str; 2] = ["ext4", "xfs"];
/// Options of a mount, and the length of each, at most.
const MOUNT_OPTIONS: (usize, usize) = (32, 256);

/// The use of a volume that a request asks for, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Capability {
    pub(crate) access: Access,
    /// Whether nodes never write.
    pub(crate) is_read_only: bool,
    /// Whether several nodes may have it at a time.
    pub(crate) has_many_nodes: bool,
    /// Whether one workload has it at a time.
    pub(crate) has_one_path: bool,
}

/// The form in which a workload sees a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// A block device.
    Block,
    /// A file system of that type, mounted with these options.
    Mount(&'static str, Vec<String>),
}

impl Capability {
    /// Checks what a request asks for.
    ///
    /// # Errors
    /// `InvalidArgument` if it asks for nothing, or for what the driver does not have.
    pub(crate) fn required(asked: Option<&VolumeCapability>) -> Result<Self, Status> {
        let missing = || Status::invalid_argument("the request has no capability of the volume");
        Self::parse(asked.ok_or_else(missing)?).map_err(Status::invalid_argument)
    }

    /// Checks each of several; there must be one.
    ///
    /// # Errors
    /// As [`required`](Self::required).
    pub(crate) fn all(asked: &[VolumeCapability]) -> Result<Vec<Self>, Status> {
        if asked.is_empty() {
            return Err(Status::invalid_argument("the request has no capabilities of the volume"));
        }
        asked.iter().map(|it| Self::required(Some(it))).collect()
    }

    fn parse(asked: &VolumeCapability) -> Result<Self, String> {
        let access = match &asked.access_type {
            Some(AccessType::Block(_)) => Access::Block,
            Some(AccessType::Mount(mount)) => {
                if !mount.volume_mount_group.is_empty() {
                    return Err("a group of a mount (volume_mount_group) is not supported".into());
                }
                mount_access(&mount.fs_type, &mount.mount_flags)?
            }
            None => return Err("the capability of the volume is neither block nor mount".into()),
        };
        let mode = asked.access_mode.as_ref().map_or(Mode::Unknown, |it| it.mode());
        let (is_read_only, has_many_nodes) = match mode {
            Mode::SingleNodeWriter | Mode::SingleNodeSingleWriter | Mode::SingleNodeMultiWriter => {
                (false, false)
            }
            Mode::SingleNodeReaderOnly => (true, false),
            Mode::MultiNodeReaderOnly => (true, true),
            Mode::MultiNodeMultiWriter if access == Access::Block => (false, true),
            Mode::MultiNodeMultiWriter => {
                return Err(
                    "several nodes can write to a block device only: a file system of one \
                            machine does not survive two"
                        .into(),
                );
            }
            Mode::MultiNodeSingleWriter | Mode::Unknown => {
                return Err(format!("the access mode {} is not supported", mode.as_str_name()));
            }
        };
        let has_one_path = mode == Mode::SingleNodeSingleWriter;
        Ok(Self { access, is_read_only, has_many_nodes, has_one_path })
    }

    /// Whether several nodes may write at a time, which the export has to allow.
    pub(crate) fn is_shared(&self) -> bool {
        self.has_many_nodes && !self.is_read_only
    }
}

fn mount_access(kind: &str, options: &[String]) -> Result<Access, String> {
    let kind = if kind.is_empty() { FILE_SYSTEMS[0] } else { kind };
    let known = FILE_SYSTEMS.iter().find(|it| **it == kind);
    let message = || format!("the file system is to be one of {}", FILE_SYSTEMS.join(", "));
    let kind = known.ok_or_else(message)?;
    let (count, length) = MOUNT_OPTIONS;
    let is_fit = |option: &String| !option.is_empty() && option.len() <= length;
    if options.len() > count || !options.iter().all(is_fit) {
        return Err(format!("{count} options of a mount at most, of 1 to {length} bytes each"));
    }
    Ok(Access::Mount(kind, options.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::volume_capability::{AccessMode, BlockVolume, MountVolume};

    fn asked(access: AccessType, mode: Mode) -> Result<Capability, Status> {
        Capability::required(Some(&VolumeCapability {
            access_type: Some(access),
            access_mode: Some(AccessMode { mode: mode.into() }),
        }))
    }

    fn mount(kind: &str) -> AccessType {
        AccessType::Mount(MountVolume { fs_type: kind.into(), ..MountVolume::default() })
    }

    #[test]
    fn modes_say_how_many_nodes_have_it_and_whether_they_write() {
        let block = || AccessType::Block(BlockVolume {});
        for (access, mode, read_only, many, shared) in [
            (mount(""), Mode::SingleNodeWriter, false, false, false),
            (mount("xfs"), Mode::SingleNodeSingleWriter, false, false, false),
            (mount("ext4"), Mode::SingleNodeMultiWriter, false, false, false),
            (mount(""), Mode::SingleNodeReaderOnly, true, false, false),
            (mount(""), Mode::MultiNodeReaderOnly, true, true, false),
            (block(), Mode::MultiNodeMultiWriter, false, true, true),
        ] {
            let it = asked(access, mode).unwrap();
            let found = (it.is_read_only, it.has_many_nodes, it.is_shared());
            assert_eq!(found, (read_only, many, shared), "{mode:?}");
            assert_eq!(it.has_one_path, mode == Mode::SingleNodeSingleWriter);
        }
        let made = asked(mount(""), Mode::SingleNodeWriter).unwrap();
        assert_eq!(made.access, Access::Mount("ext4", Vec::new()));
    }

    #[test]
    fn what_the_driver_does_not_have_is_refused() {
        for (access, mode, word) in [
            (mount(""), Mode::MultiNodeMultiWriter, "block device only"),
            (mount(""), Mode::MultiNodeSingleWriter, "MULTI_NODE_SINGLE_WRITER"),
            (mount(""), Mode::Unknown, "UNKNOWN"),
            (mount("ntfs"), Mode::SingleNodeWriter, "ext4, xfs"),
        ] {
            let error = asked(access, mode).unwrap_err();
            assert_eq!(error.code(), tonic::Code::InvalidArgument);
            assert!(error.message().contains(word), "{error}");
        }
        for missing in [None, Some(&VolumeCapability::default())] {
            let error = Capability::required(missing).unwrap_err();
            assert_eq!(error.code(), tonic::Code::InvalidArgument);
        }
        assert!(Capability::all(&[]).is_err());
    }
}
